"""Starting a row's process, watching its log, and telling what became of it.

- in a process of its own, so that seconds, memory and a crash are the row's alone;
- Ctrl-C reaches the row through this side only: it is asked to stop, a training run saves its
  state; a second Ctrl-C ends it at once;
- libraries say how far they are in words of their own; the last percentage in the log is shown.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

from glocal.errors import Interrupted
from glocal.lab.benchmark.benchmark_rows import STAGE, Job, Row
from glocal.lab.benchmark.benchmark_worker import STOPPED

__all__ = ["Tick", "run_job"]

Tick = Callable[[str, float, "float | None"], None]  # stage, seconds, per cent

_PERCENT = re.compile(r"(\d+(?:\.\d+)?) ?%")
_POLL_SECONDS = 0.25
WORKER = ["-m", "glocal.lab.benchmark.benchmark_worker"]
_THREAD_VARIABLES = (
    "OMP_NUM_THREADS",
    "MKL_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "RAYON_NUM_THREADS",
)


def run_job(job: Job, tick: Tick) -> Row:
    """Measure a row in a process of its own; a failure becomes the row's status.

    Args:
        job: What to measure.
        tick: Called now and then with the stage, the seconds since the start, and how much of the
            stage is done where that is known.

    Raises:
        Interrupted: The user stopped.
    """
    folder, row_path = Path(job.folder), Path(job.row_path)
    row_path.unlink(missing_ok=True)
    cache = folder / "cache"  # of its own: tokens found ready would make its training look cheap
    log = folder / "log.txt"
    path = job.save()
    try:
        status = _watch(path, log, _environment(job, cache), tick)
    except KeyboardInterrupt as error:
        raise Interrupted(
            f"stopped while measuring '{job.contender.name}'; finished rows are kept, and the same "
            "command goes on from here"
        ) from error
    finally:
        shutil.rmtree(cache, ignore_errors=True)
    if row_path.is_file():
        return Row.load(row_path)
    row = job.failed(_crash(status, log))
    row.save(row_path)
    return row


def _watch(job: Path, log: Path, environment: dict[str, str], tick: Tick) -> int:
    command = [sys.executable, *WORKER, str(job)]
    with log.open("wb") as file:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=file,
            stderr=subprocess.STDOUT,
            env=environment,
            start_new_session=True,
        )
    started, reader = time.monotonic(), _LogReader(log)
    try:
        while process.poll() is None:
            reader.read()
            tick(reader.stage, time.monotonic() - started, reader.percent)
            time.sleep(_POLL_SECONDS)
        if process.returncode == STOPPED:  # asked to stop by somebody else
            raise KeyboardInterrupt
    except KeyboardInterrupt:
        process.terminate()
        process.wait()
        raise
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()
    return process.returncode


class _LogReader:
    """Follows a log: the stage it is in, and the last percentage since anything else was said."""

    def __init__(self, path: Path) -> None:
        self.path, self.position, self.rest = path, 0, ""
        self.stage = "starting"
        self.percent: float | None = None

    def read(self) -> None:
        """Take in what is new; a bar may grow on a line that is not ended yet."""
        with self.path.open("rb") as file:
            file.seek(self.position)
            text = self.rest + file.read().decode(errors="replace")
            self.position = file.tell()
        *lines, self.rest = re.split(r"[\r\n]+", text)
        for line in lines:
            if line.startswith(STAGE):
                self.stage = line.removeprefix(STAGE)
            if line.strip():
                self.percent = _last_percent(line)
        growing = _last_percent(self.rest)
        self.percent = self.percent if growing is None else growing


def _last_percent(line: str) -> float | None:
    found = _PERCENT.findall(line)
    return min(100.0, float(found[-1])) if found else None


def _environment(job: Job, cache: Path) -> dict[str, str]:
    threads = dict.fromkeys(_THREAD_VARIABLES, str(job.threads))
    return {**os.environ, **threads, "GLOCAL_CACHE": str(cache), "PYTHONUNBUFFERED": "1"}


def _crash(status: int, log: Path) -> str:
    lines = [line for line in log.read_text(errors="replace").splitlines() if line.strip()]
    last = f": {lines[-1].strip()[:200]}" if lines else ""
    killed = " (out of memory?)" if status in (-9, 137) else ""
    return f"its process ended with status {status}{killed}{last}; see {log}"
