"""What the user sees while a model trains: a bar on a terminal, plain lines elsewhere.

Speed, time left, loss and the last dev score are in one line; messages of the run appear above it.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from types import TracebackType
from typing import Any

from glocal.cli import console
from glocal.config.durations import format_seconds
from glocal.train.listener import TrainListener

__all__ = ["TrainingProgress", "format_scores", "format_seconds"]


class TrainingProgress(TrainListener):
    """Shows a training run; a context manager, so that the bar is always taken down."""

    def __init__(self) -> None:
        self._bar: Any = None
        self._task: Any = None
        self._last_score = ""
        self._last_line = time.monotonic()

    def __enter__(self) -> TrainingProgress:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._take_down()

    def on_start(self, info: Mapping[str, Any]) -> None:
        """Put up the bar; the one of a member before goes."""
        self._take_down()
        if console.settings.quiet or not console.stderr().is_terminal:
            return
        from rich.progress import BarColumn, Progress, TextColumn

        self._bar = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            TextColumn("{task.percentage:>3.0f}%  {task.fields[state]}"),
            console=console.stderr(),
            transient=True,
            refresh_per_second=4,
        )
        self._bar.start()
        self._task = self._bar.add_task(
            info.get("member", "training"), total=info.get("steps"), state=""
        )

    def on_step(self, info: Mapping[str, Any]) -> None:
        """Move the bar, or print a line now and then."""
        state = self._state(info)
        if self._bar is not None:
            self._bar.update(
                self._task, completed=info["step"], total=info.get("steps"), state=state
            )
        elif time.monotonic() - self._last_line >= console.PLAIN_SECONDS:
            self._last_line = time.monotonic()
            member = f"{info['member']}: " if "member" in info else ""
            console.note(f"{member}step {info['step']:,} of {info['steps']:,}, {state}")

    def on_evaluation(self, info: Mapping[str, Any]) -> None:
        """Print the scores, and keep the one that counts for the bar."""
        scores, metric = info["scores"], info["metric"]
        self._last_score = format_scores({metric: scores[metric]})
        best = ", the best so far" if info["best"] else ""
        console.note(f"dev after step {info['step']:,}: {format_scores(scores)}{best}")

    def on_message(self, text: str) -> None:
        """Pass a message on."""
        console.note(text)

    def on_end(self, info: Mapping[str, Any]) -> None:
        """Take the bar down."""
        self._take_down()

    def _take_down(self) -> None:
        if self._bar is not None:
            self._bar.stop()
            self._bar = None

    def _state(self, info: Mapping[str, Any]) -> str:
        parts = [f"loss {info['loss']:.3f}"] if info.get("loss") is not None else []
        if info.get("docs_per_second"):
            parts.append(f"{info['docs_per_second']:,.0f} texts/s")
        if info.get("seconds_left") is not None:
            parts.append(f"{format_seconds(info['seconds_left'])} left")
        return ", ".join([*parts, self._last_score] if self._last_score else parts)


def format_scores(scores: Mapping[str, float]) -> str:
    """Scores as percentages: `P@1 91.2, P@5 67.0`."""
    return ", ".join(f"{name} {100 * value:.1f}" for name, value in scores.items())
