"""Child processes of jobs: `python -m glocal.lab.experiment.child_process FOLDER` is one.

The child runs the job of FOLDER/job.json and writes FOLDER/result.json, also when the job fails.
Its output is the job's log. It ends by itself when the parent is gone. The parent follows the log:

- Ctrl-C reaches a child through the parent only: the child is asked to stop, and a training run
  saves its state; a second Ctrl-C ends it at once;
- the last percentage in the log is shown as progress, whichever library printed it.
"""

from __future__ import annotations

import contextlib
import logging
import os
import re
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed, wait
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from glocal.errors import Interrupted
from glocal.lab.experiment.jobs import Job, JobListener, JobState, Result
from glocal.lab.machine import usable_cores

if TYPE_CHECKING:
    from glocal.lab.experiment.runner import RunView

WORKER = ["-m", "glocal.lab.experiment.child_process"]
STOPPED = 130  # exit status of a child that the user stopped
STAGE = "== "  # opens a log line that names the stage
_PERCENT = re.compile(r"(\d+(?:\.\d+)?) ?%")
_POLL_SECONDS, _PARENT_SECONDS = 0.25, 2.0
_THREADS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "RAYON_NUM_THREADS")


class _Children:
    """The child processes of a runner.

    Args:
        jobs: Jobs to run.
        threads: Threads each child may use, where its job does not say.
        view: Receives the events.
    """

    def __init__(self, jobs: Sequence[Job], threads: int, view: RunView) -> None:
        self.jobs, self.threads, self.view = jobs, threads, view
        self.stop, self.kill = threading.Event(), threading.Event()

    def run(self, number: int, *, shown: bool) -> Result | None:
        """Run one job; return its result, or None if the user stopped it."""
        if self.stop.is_set():
            return None
        job = self.jobs[number]
        job.blank.save(job.folder)
        with self.view.start(number + 1, len(self.jobs), job.method) as listener:
            status = self._watch(job, listener if shown else JobListener())
        result = Result.load(job.folder)
        if status == 0 and result is not None:
            return result
        if status == STOPPED:
            self.stop.set()
        if self.stop.is_set():
            return None
        error = _crash(status, job.folder / "log.txt")
        result = replace(job.blank, status=JobState.FAILED, error=error)
        result.save(job.folder)
        return result

    def _watch(self, job: Job, listener: JobListener) -> int:
        """Start the child process and follow it to its end; return its exit status."""
        threads = str(job.conditions.threads or self.threads)
        environment = {**os.environ, **dict.fromkeys(_THREADS, threads), "PYTHONUNBUFFERED": "1"}
        cache, log = job.folder / "cache", job.folder / "log.txt"
        if job.conditions.timed:  # tokens found in a cache would make its training look cheap
            environment["GLOCAL_CACHE"] = str(cache)
        with log.open("wb") as file:
            process = subprocess.Popen(
                [sys.executable, *WORKER, str(job.folder)],
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=subprocess.STDOUT,
                env=environment,
                start_new_session=True,
            )
        started, reader, asked = time.monotonic(), LogReader(log), False
        try:
            while process.poll() is None:
                if self.kill.is_set():
                    process.kill()
                elif self.stop.is_set() and not asked:
                    process.terminate()
                    asked = True
                reader.read()
                listener.on_progress(reader.stage, time.monotonic() - started, reader.percent)
                time.sleep(_POLL_SECONDS)
            return process.returncode
        finally:
            process.kill()  # nothing happens if it has ended
            process.wait()
            shutil.rmtree(cache, ignore_errors=True)


def run_in_children(jobs: Sequence[Job], children: int, *, out: Path, view: RunView) -> None:
    """Run each job in a child process, `children` of them at a time.

    Raises:
        Interrupted: If the user stopped.
    """
    if not jobs:
        return
    children = min(children, len(jobs))
    processes = _Children(jobs, max(1, usable_cores() // children), view)
    out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=out, prefix=".splits-") as folder:
        written = jobs[0].splits.write(Path(folder))
        for job in jobs:
            job.save(written)
        with ThreadPoolExecutor(children) as pool:
            # Of several children at a time, none shows its progress.
            shown = children == 1
            futures = [pool.submit(processes.run, n, shown=shown) for n in range(len(jobs))]
            try:
                for future in as_completed(futures):
                    if (result := future.result()) is not None:
                        view.on_end(result, kept=False)
            except BaseException as error:
                processes.stop.set()
                with contextlib.suppress(KeyboardInterrupt):
                    wait(futures)
                processes.kill.set()
                if not isinstance(error, KeyboardInterrupt):
                    raise
    if processes.stop.is_set():
        raise Interrupted(
            "stopped; finished results are kept, and the same command continues from here"
        )


class LogReader:
    """Follows a log: its stage, and the last percentage since any other line.

    Args:
        path: The log.
    """

    def __init__(self, path: Path) -> None:
        self.path, self.position, self.rest = path, 0, ""
        self.stage = "starting"
        self.percent: float | None = None

    def read(self) -> None:
        """Read what is new; a bar may grow on a line that has not ended yet."""
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


def _crash(status: int, log: Path) -> str:
    lines = [line for line in log.read_text(errors="replace").splitlines() if line.strip()]
    last = f": {lines[-1].strip()[:200]}" if lines else ""
    killed = " (out of memory?)" if status in (-9, 137) else ""
    return f"its process ended with status {status}{killed}{last}; see {log}"


# --- in the child ----------------------------------------------------------------------------


class LogListener(JobListener):
    """Writes progress to the log."""

    def on_step(self, info: Mapping[str, Any]) -> None:
        """Write a percentage."""
        share = 100 * info["step"] / max(1, info["steps"])
        member = f"{info['member']}, " if "member" in info else ""
        self.on_message(f"{member}{share:.1f} % (step {info['step']:,} of {info['steps']:,})")

    def on_stage(self, stage: str) -> None:
        """Write the name of the stage that starts."""
        self.on_message(f"{STAGE}{stage}")

    def on_message(self, text: str) -> None:
        """Write a line."""
        sys.stderr.write(f"{text}\n")
        sys.stderr.flush()


def main(arguments: list[str]) -> int:
    """Run the job of a folder."""
    from glocal.lab.experiment.runner import run_job

    threading.Thread(target=_watch_parent, args=(os.getppid(),), daemon=True).start()
    logging.basicConfig(format="%(message)s")
    logging.getLogger("glocal.lab").setLevel(logging.DEBUG)  # tracebacks belong to the log
    try:
        run_job(Job.load(Path(arguments[0])), LogListener())
    except (Interrupted, KeyboardInterrupt):
        return STOPPED
    return 0


def _watch_parent(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(_PARENT_SECONDS)
    os._exit(STOPPED)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
