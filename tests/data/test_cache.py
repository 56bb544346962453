import pytest

from glocal.data.cache import cache_dir
from glocal.errors import DataError


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
    assert cache_dir(create=False) == tmp_path / expected


def test_a_folder_that_cannot_be_made_says_how_to_mend_it(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("GLOCAL_CACHE", str(tmp_path / "file"))
    with pytest.raises(DataError, match="set GLOCAL_CACHE"):
        cache_dir("tokens")
