"""The feedback store: corrections as training rows, append-only and safe against crashes.

- One JSONL file for each model, `DIR/MODEL.jsonl`; every line is a row that training reads.
- A row is acknowledged after it is on the disk (`fsync`); rows that arrive together share one.
- A crash can leave half a row at the end, which was never acknowledged: it is cut off when the file
  is opened the next time. A failed write (a full disk) is undone the same way.
- A lock keeps two servers from writing to one file.
"""

from __future__ import annotations

import json
import os
import queue
import threading
from collections.abc import Iterable, Mapping
from concurrent.futures import Future
from datetime import UTC, datetime
from pathlib import Path
from typing import IO, Any

from glocal.data.atomic import exclusive, fsync_folder
from glocal.errors import ConfigError

_END = None


class FeedbackStore:
    """Stores corrections in a folder.

    Args:
        folder: The folder; created if need be.

    Raises:
        ConfigError: The folder cannot be written to, or another process writes to it.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.n_rows = 0
        self._lock = exclusive(folder / "feedback")
        try:
            folder.mkdir(parents=True, exist_ok=True)
            self._lock.__enter__()
        except BlockingIOError as error:
            raise ConfigError(
                f"another process writes to the feedback folder {folder} ({error.strerror}); "
                "choose another folder, or stop that process"
            ) from error
        except OSError as error:
            raise ConfigError(
                f"the feedback folder {folder} cannot be written to ({error.strerror}); "
                "choose another place"
            ) from error
        self._files: dict[str, IO[bytes]] = {}
        self._arrived: queue.SimpleQueue[tuple[str, bytes, Future[None]] | None] = (
            queue.SimpleQueue()
        )
        self._thread = threading.Thread(target=self._work, name="glocal-feedback", daemon=True)
        self._thread.start()

    def append(self, model: str, rows: Iterable[Mapping[str, Any]]) -> Future[None]:
        """Queue rows for a model; the future is done when they are on the disk."""
        time = datetime.now(UTC).isoformat(timespec="milliseconds")
        lines = b"".join(
            json.dumps({**row, "model": model, "time": time}, ensure_ascii=False).encode() + b"\n"
            for row in rows
        )
        done: Future[None] = Future()
        done.set_running_or_notify_cancel()  # a client that goes away cannot cancel it
        self._arrived.put((model, lines, done))
        return done

    def close(self) -> None:
        """Write what waits, close the files and release the folder."""
        self._arrived.put(_END)
        self._thread.join()
        self._lock.__exit__(None, None, None)

    def _work(self) -> None:
        ending = False
        while not ending:
            arrived = [self._arrived.get()]
            while not self._arrived.empty():
                arrived.append(self._arrived.get())
            ending = _END in arrived
            by_model: dict[str, list[tuple[bytes, Future[None]]]] = {}
            for item in arrived:
                if item is not None:
                    by_model.setdefault(item[0], []).append(item[1:])
            for model, parts in by_model.items():
                self._write(model, parts)
        for file in self._files.values():
            file.close()

    def _write(self, model: str, parts: list[tuple[bytes, Future[None]]]) -> None:
        lines = b"".join(lines for lines, _ in parts)
        try:
            file = self._open(model)
            _append(file, lines)
        except OSError as error:
            for _, done in parts:
                done.set_exception(error)
            return
        self.n_rows += lines.count(b"\n")
        for _, done in parts:
            done.set_result(None)

    def _open(self, model: str) -> IO[bytes]:
        if model not in self._files:
            path = self.folder / f"{model}.jsonl"
            file: IO[bytes] = path.open("ab+", buffering=0)
            _cut_half_row(file)
            self._files[model] = file
            fsync_folder(self.folder)
        return self._files[model]


def _append(file: IO[bytes], lines: bytes) -> None:
    size = file.seek(0, os.SEEK_END)
    try:
        rest = memoryview(lines)
        while rest:
            rest = rest[file.write(rest) :]
        os.fsync(file.fileno())
    except OSError:
        file.truncate(size)
        raise


def _cut_half_row(file: IO[bytes]) -> None:
    """Remove what stands after the last line break."""
    end = file.seek(0, os.SEEK_END)
    while end:
        start = max(0, end - 65_536)
        file.seek(start)
        found = file.read(end - start).rfind(b"\n")
        if found >= 0:
            end = start + found + 1
            break
        end = start
    file.truncate(end)
