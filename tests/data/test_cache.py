import numpy as np
import pytest

from glocal.data.cache import cache_dir, cached, cached_arrays
from glocal.errors import DataError, ModelError

SPEC = {"numbers": (np.int32, (3, 2)), "empty": (np.float32, (0, 4))}


def test_environment_decides(tmp_path, monkeypatch):
    monkeypatch.setenv("GLOCAL_CACHE", str(tmp_path / "chosen"))
    assert cache_dir("tokens") == tmp_path / "chosen" / "tokens"
    assert (tmp_path / "chosen" / "tokens").is_dir()


@pytest.mark.parametrize(
    ("platform", "variable", "expected"),
    [
        ("linux", "XDG_CACHE_HOME", "glocal"),
        ("win32", "LOCALAPPDATA", "glocal"),
    ],
)
def test_platform_default(tmp_path, monkeypatch, platform, variable, expected):
    monkeypatch.delenv("GLOCAL_CACHE")
    monkeypatch.setattr("glocal.data.cache.sys.platform", platform)
    monkeypatch.setenv(variable, str(tmp_path))
    assert cache_dir() == tmp_path / expected


def test_a_folder_that_cannot_be_made_says_how_to_fix_it(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("GLOCAL_CACHE", str(tmp_path / "file"))
    with pytest.raises(DataError, match="set GLOCAL_CACHE"):
        cache_dir("tokens")


@pytest.fixture
def counted(tmp_path, monkeypatch):
    """Ask for an entry; the result and how often it was computed."""
    monkeypatch.setenv("GLOCAL_CACHE", str(tmp_path))
    calls = []

    def fill(arrays):
        calls.append(1)
        arrays["numbers"][:] = np.arange(6).reshape(3, 2)

    return lambda key="key": (cached_arrays("things", [key], SPEC, fill), len(calls))


def test_computed_once_and_mapped(counted):
    for _ in range(2):
        arrays, calls = counted()
        assert calls == 1
        assert isinstance(arrays["numbers"], np.memmap)
        assert arrays["numbers"].tolist() == [[0, 1], [2, 3], [4, 5]]
        assert arrays["empty"].shape == (0, 4)
    assert counted("other")[1] == 2


@pytest.mark.parametrize("content", [None, b"", b"\x93NUMPY\x01\x00", "shape"])
def test_a_damaged_entry_is_built_again(counted, tmp_path, content):
    counted()
    (path,) = (tmp_path / "things").glob("*/numbers.npy")
    if content is None:
        path.unlink()
    elif content == "shape":
        np.save(path, np.zeros((3, 3), dtype=np.int32))
    else:
        path.write_bytes(content)
    arrays, calls = counted()
    assert calls == 2
    assert arrays["numbers"].tolist() == [[0, 1], [2, 3], [4, 5]]


def test_a_full_disk_is_one_clear_error_and_leaves_nothing(counted, tmp_path, monkeypatch):
    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("glocal.data.cache.replace_dir", full)
    with pytest.raises(DataError, match=r"No space left on device.*set GLOCAL_CACHE"):
        counted()
    assert list((tmp_path / "things").iterdir()) == []


def test_an_interruption_leaves_nothing(tmp_path, monkeypatch):
    monkeypatch.setenv("GLOCAL_CACHE", str(tmp_path))

    def stop(_):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        cached_arrays("things", ["key"], SPEC, stop)
    assert list((tmp_path / "things").iterdir()) == []


def test_the_reader_decides_whether_an_entry_is_damaged(tmp_path, monkeypatch):
    monkeypatch.setenv("GLOCAL_CACHE", str(tmp_path))
    written = []

    def write(folder):
        written.append(1)
        (folder / "content").write_text(str(len(written)))

    def read(entry):
        if (content := (entry / "content").read_text()) == "1":
            raise ModelError("too old")
        return content

    with pytest.raises(DataError, match="just written cannot be read back"):
        cached("things", ["key"], write=write, read=read)
    assert cached("things", ["key"], write=write, read=read) == "2"
    assert cached("things", ["key"], write=write, read=read) == "2"
    assert len(list((tmp_path / "things").iterdir())) == 1
