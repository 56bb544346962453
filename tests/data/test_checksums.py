"""Checksums of a folder's files: every change is noticed, and a cache entry that changed is built
again."""

import json
import logging

import pytest

from glocal.data.cache import cache_dir, cached
from glocal.data.checksums import (
    CHECKSUMS_FILE,
    changed_files,
    file_checksum,
    read_checksums,
    write_checksums,
)


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "a").write_bytes(b"some bytes" * 100)
    (tmp_path / "empty").touch()
    (tmp_path / "card").write_text("may change")
    (tmp_path / "inner").mkdir()
    (tmp_path / "inner" / "b").write_bytes(b"others")
    write_checksums(tmp_path, skip=["card"])
    return tmp_path


def test_xxh3_of_a_known_content(tmp_path):
    (tmp_path / "empty").touch()
    assert file_checksum(tmp_path / "empty") == "2d06800538d394c2"  # XXH3's published value


def test_all_files_are_listed_but_the_skipped_one(folder):
    assert set(read_checksums(folder)) == {"a", "empty", "inner/b"}
    assert changed_files(folder, read_checksums(folder)) == []


@pytest.mark.parametrize(
    "change",
    [
        lambda path: path.write_bytes(path.read_bytes()[:-1] + bytes([path.read_bytes()[-1] ^ 1])),
        lambda path: path.write_bytes(path.read_bytes()[:-1]),
        lambda path: path.write_bytes(b""),
        lambda path: path.unlink(),
    ],
    ids=["bit", "cut", "emptied", "removed"],
)
def test_a_change_is_noticed(folder, change):
    change(folder / "inner" / "b")
    assert changed_files(folder, read_checksums(folder)) == ["inner/b"]


def test_files_outside_the_folder_are_never_read(folder, tmp_path_factory):
    outside = tmp_path_factory.mktemp("outside") / "secret"
    outside.write_text("secret")
    names = {str(outside): file_checksum(outside), "\0": "", "inner": ""}
    assert changed_files(folder, names) == list(names)


@pytest.mark.parametrize(
    "content",
    [b"", b"{", b"[]", b"{}", b'{"algorithm": "md5", "files": {}}', b"[" * 100_000,
     b'{"algorithm": "xxh3_64", "files": [1]}', b'{"algorithm": "xxh3_64", "files": {"a": 1}}'],
)  # fmt: skip
def test_a_damaged_list_is_an_error(folder, content):
    (folder / CHECKSUMS_FILE).write_bytes(content)
    with pytest.raises(ValueError, match="damaged"):
        read_checksums(folder)


def test_a_cache_entry_that_changed_is_built_again(tmp_path, monkeypatch, caplog):
    monkeypatch.setenv("GLOCAL_CACHE", str(tmp_path))
    built = []

    def write(folder):
        built.append(folder)
        (folder / "value").write_text("right")

    def open_it():
        return cached("tokens", ["key"], write=write, read=lambda e: (e / "value").read_text())

    assert [open_it(), open_it()] == ["right", "right"]
    assert len(built) == 1
    (entry,) = cache_dir("tokens").iterdir()
    (entry / "value").write_text("wrong")
    with caplog.at_level(logging.WARNING):
        assert open_it() == "right"
    assert len(built) == 2
    assert "value" in caplog.text
    (entry / CHECKSUMS_FILE).unlink()  # as an earlier version wrote it
    assert open_it() == "right"
    assert len(built) == 3
    assert json.loads((entry / CHECKSUMS_FILE).read_text())["files"].keys() == {"value"}
