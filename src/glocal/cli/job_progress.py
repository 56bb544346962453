"""Progress of jobs on stderr: which one runs, how far it is, and its scores."""

from __future__ import annotations

import time
from typing import Any

from glocal.cli import console
from glocal.cli.training_progress import TrainingProgress, format_scores, format_seconds
from glocal.lab.experiment.jobs import JobListener, Result
from glocal.lab.experiment.methods import Method
from glocal.lab.experiment.runner import RunView
from glocal.terminal import PLAIN_SECONDS


class JobProgress(TrainingProgress, JobListener):
    """Shows a job: a bar while it trains in this process, a line while it is in a child."""

    def __init__(self, method: Method) -> None:
        super().__init__()
        self.method, self.last = method, time.monotonic()
        self.status: Any = None

    def on_progress(self, stage: str, seconds: float, percent: float | None) -> None:
        """Show the stage: a changing line on a terminal, a line now and then elsewhere."""
        share = "" if percent is None else f" {percent:.0f} %"
        text = f"{self.method.title}: {stage}{share}, {format_seconds(seconds)}"
        if console.stderr().is_terminal and not console.settings.quiet:
            if self.status is None:
                self.status = console.stderr().status(text)
                self.status.start()
            self.status.update(text)
        elif time.monotonic() - self.last >= PLAIN_SECONDS:
            self.last = time.monotonic()
            console.note(text)

    def __exit__(self, *exception: object) -> None:
        super().__exit__(*exception)
        if self.status is not None:
            self.status.stop()


class JobView(RunView):
    """Shows the events of a runner."""

    def on_reuse(self, number: int, total: int) -> None:
        """Say how many results were copied."""
        console.note(f"{number} of {total} variants reused from other studies")

    def start(self, number: int, total: int, method: Method) -> JobProgress:
        """Say which job starts."""
        count = f"[{number}/{total}] " if total > 1 else ""
        console.note(f"{count}{method.title} ({method.library})")
        return JobProgress(method)

    def on_end(self, result: Result, *, kept: bool) -> None:
        """Show the scores, or why there are none."""
        if not result.is_done:
            console.warn(f"{result.title} failed: {result.error}")
            return
        scores = {name: result.score(name) or 0.0 for name in ("P@1", "P@3", "P@5", "nDCG@5")}
        trained = format_seconds(result.cost["train_seconds"])
        done = "done before" if kept else f"trained in {trained}, on {result.split}"
        console.note(f"{result.title}: {done}: {format_scores(scores)}")
