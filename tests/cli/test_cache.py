import json
import re
from pathlib import Path

import pytest

import glocal
from glocal.cli.cache import format_bytes
from glocal.data.cache import cache_dir
from glocal.data.cache_contents import CACHE_KINDS


@pytest.fixture
def filled(tmp_path, monkeypatch):
    monkeypatch.setenv("GLOCAL_CACHE", str(tmp_path))
    (cache_dir("tokens") / "a").mkdir()
    (cache_dir("tokens") / "a" / "ids.npy").write_bytes(b"x" * 1500)
    (cache_dir("sparse") / "b").write_bytes(b"y" * 10)
    foreign = cache_dir() / "thesis.txt"
    foreign.write_text("not ours")
    return foreign


def test_show(run, filled):
    found = json.loads(run("cache", "show", "--json").stdout)
    assert [(e["name"], e["bytes"]) for e in found["entries"]] == [("sparse", 10), ("tokens", 1500)]
    shown = run("cache", "show").stdout
    assert "tokenised texts" in shown
    assert "1.5 kB" in shown


def test_clear_removes_only_what_the_library_made(run, filled):
    assert "Removed 10 bytes (sparse)" in run("cache", "clear", "sparse").stderr
    assert cache_dir("tokens", create=False).is_dir()
    assert run("cache", "clear").exit_code == 0
    assert not cache_dir("tokens", create=False).exists()
    assert filled.read_text() == "not ours"
    assert "Removed 0 bytes." in run("cache", "clear").stderr


def test_an_unknown_folder(run):
    result = run("cache", "clear", "token")
    assert result.exit_code == 1
    assert "did you mean 'tokens'?" in result.stderr


def test_every_folder_of_the_cache_is_known():
    source = "".join(p.read_text("utf-8") for p in Path(glocal.__file__).parent.rglob("*.py"))
    used = re.findall(r'cache(?:_dir|d_arrays|d_folder)\(\s*"([a-z-]+)"', source)
    assert len(set(used)) > 4
    assert set(used) <= set(CACHE_KINDS)


def test_sizes():
    assert [format_bytes(n) for n in (0, 999, 1500, 2_000_000, 3.2e9, 4e12)] == [
        "0 bytes", "999 bytes", "1.5 kB", "2.0 MB", "3.2 GB", "4.0 TB",
    ]  # fmt: skip
