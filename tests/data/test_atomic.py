import errno
import os
import shutil
import subprocess
import sys

import pytest

from glocal.data.atomic import (
    atomic_write,
    exclusive,
    remove_leftovers,
    replace_dir,
    temporary_dir,
    why_not_written,
)


def names(folder):
    return sorted(entry.name for entry in folder.iterdir())


def test_writes_and_creates_folders(tmp_path):
    with atomic_write(tmp_path / "a" / "b.txt") as file:
        file.write(b"new")
    assert (tmp_path / "a" / "b.txt").read_bytes() == b"new"
    assert names(tmp_path / "a") == ["b.txt"]


def test_target_appears_only_at_the_end(tmp_path):
    with atomic_write(tmp_path / "b.txt") as file:
        file.write(b"new")
        file.flush()
        assert not (tmp_path / "b.txt").exists()


@pytest.mark.parametrize("error", [OSError(28, "No space left on device"), KeyboardInterrupt()])
def test_failure_keeps_the_old_file_and_leaves_nothing_behind(tmp_path, error):
    (tmp_path / "b.txt").write_bytes(b"old")

    def fail_half_way():
        with atomic_write(tmp_path / "b.txt") as file:
            file.write(b"half")
            raise error

    with pytest.raises(type(error)):
        fail_half_way()
    assert (tmp_path / "b.txt").read_bytes() == b"old"
    assert names(tmp_path) == ["b.txt"]


def test_result_is_as_readable_as_other_new_files(tmp_path):
    (tmp_path / "plain").write_bytes(b"")
    with atomic_write(tmp_path / "atomic") as file:
        file.write(b"x")
    assert (tmp_path / "atomic").stat().st_mode == (tmp_path / "plain").stat().st_mode


def test_replace_dir_takes_the_place_of_the_old_one(tmp_path):
    final = tmp_path / "model"
    final.mkdir()
    (final / "old").write_text("old")
    with temporary_dir(final) as folder:
        (folder / "new").write_text("new")
        replace_dir(folder, final)
    assert names(final) == ["new"]
    assert names(tmp_path) == ["model"]


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux exchanges folders at once")
def test_there_is_a_directory_at_every_moment(tmp_path, monkeypatch):
    final, new = tmp_path / "model", tmp_path / "new"
    final.mkdir()
    new.mkdir()
    (new / "new").write_text("new")
    monkeypatch.setattr("glocal.data.atomic.os.replace", lambda *paths: pytest.fail("set aside"))
    replace_dir(new, final)
    assert names(final) == ["new"]
    assert names(tmp_path) == ["model"]


def test_failed_rename_puts_the_old_directory_back(tmp_path, monkeypatch):
    final = tmp_path / "model"
    final.mkdir()
    (final / "old").write_text("old")
    real = os.replace

    def fail_for_new(source, target):
        if str(source).endswith(".tmp"):
            raise OSError(28, "No space left on device")
        real(source, target)

    monkeypatch.setattr("glocal.data.atomic.os.replace", fail_for_new)
    # As on a system where two folders cannot change places at once.
    monkeypatch.setattr("glocal.data.atomic._exchange", lambda first, second: False)
    new = tmp_path / "new.tmp"
    new.mkdir()
    with pytest.raises(OSError, match="No space"):
        replace_dir(new, final)
    new.rmdir()
    assert names(final) == ["old"]
    assert names(tmp_path) == ["model"]


def test_temporary_dir_goes_when_the_block_fails(tmp_path):
    def fail_half_way():
        with temporary_dir(tmp_path / "model") as folder:
            (folder / "half").write_text("x")
            raise RuntimeError

    with pytest.raises(RuntimeError):
        fail_half_way()
    assert names(tmp_path) == []


def test_a_lock_ends_with_the_process_that_holds_it(tmp_path):
    script = (
        "import os, sys; from glocal.data.atomic import exclusive\n"
        "with exclusive(sys.argv[1]): print('held', flush=True); sys.stdin.read()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", script, str(tmp_path / "m")],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    ) as holder:  # fmt: skip
        assert holder.stdout.readline() == "held\n"
        refused = pytest.raises(BlockingIOError, match=f"process {holder.pid}")
        with refused, exclusive(tmp_path / "m"):
            pytest.fail("two processes hold the lock")
        holder.kill()
        holder.wait()
        with exclusive(tmp_path / "m"):
            pass
    assert list(tmp_path.iterdir()) == []


# --- locks --------------------------------------------------------------------------------------


class WindowsLocks:
    """The part of `msvcrt` that locks need: a lock lasts while its file is open."""

    LK_NBLCK = 2

    def __init__(self):
        self.held = {}

    def locking(self, handle, mode, size):
        assert (mode, size) == (self.LK_NBLCK, 1)
        assert os.lseek(handle, 0, os.SEEK_CUR) > 1000, "the number in the file must stay readable"
        number = os.fstat(handle).st_ino
        before = self.held.get(number, -1)
        if before != handle and self._is_open(before, number):  # numbers are used again
            raise PermissionError(errno.EACCES, "locked")
        self.held[number] = handle

    def _is_open(self, handle, number):
        try:
            return os.fstat(handle).st_ino == number
        except OSError:
            return False


@pytest.mark.parametrize("system", ["flock", "windows"])
def test_one_process_at_a_time(tmp_path, monkeypatch, system):
    if system == "windows":
        monkeypatch.setitem(sys.modules, "fcntl", None)
        monkeypatch.setitem(sys.modules, "msvcrt", WindowsLocks())
    path = tmp_path / "model"
    held = pytest.raises(BlockingIOError, match=rf"process {os.getpid()} holds the lock")
    with exclusive(path), held, exclusive(path):
        pytest.fail("two at once")
    with exclusive(path):
        pass
    assert not names(tmp_path)


def test_without_locks_the_number_in_the_file_counts(tmp_path, monkeypatch):
    refused = OSError(errno.ENOLCK, "no locks available")
    monkeypatch.setattr("fcntl.flock", lambda *_: (_ for _ in ()).throw(refused))
    file = tmp_path / "model.lock"
    file.write_text(str(os.getppid()))
    held = pytest.raises(BlockingIOError, match=rf"process {os.getppid()} holds the lock")
    with held, exclusive(tmp_path / "model"):
        pytest.fail("two at once")
    gone = subprocess.Popen([sys.executable, "-c", ""])
    gone.wait()
    file.write_text(str(gone.pid))  # of a process that was killed
    with exclusive(tmp_path / "model"):
        assert file.read_text() == str(os.getpid())
    assert not names(tmp_path)


def test_leftovers_of_a_kind_are_removed(tmp_path):
    with temporary_dir(tmp_path / "a[1]", kind="edited-") as folder:
        assert folder.name.startswith(".a[1].edited-")
        for name in (".a[1].other.tmp", ".a1.edited-x.tmp", ".b.edited-x.tmp"):
            (tmp_path / name).mkdir()
        remove_leftovers(tmp_path / "a[1]", kind="edited-")
        assert names(tmp_path) == [".a1.edited-x.tmp", ".a[1].other.tmp", ".b.edited-x.tmp"]


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (OSError(28, "No space left on device"), "No space left on device"),
        (OSError("the graph is incomplete"), "the graph is incomplete"),
        (shutil.Error([("a", "b", "[Errno 28] No space left on device: 'a' -> 'b'")]), "No space"),
        (shutil.Error([("a", "b", "something else")]), "something else"),
    ],
)
def test_the_reason_of_a_failed_write_is_short(error, reason):
    assert why_not_written(error).startswith(reason)
    assert "->" not in why_not_written(error)
