"""Progress of long work: bars on a terminal or in a notebook, plain lines elsewhere."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Self

from glocal.config.durations import format_seconds
from glocal.progress import Progress
from glocal.train.listener import TrainListener

if TYPE_CHECKING:
    from rich.console import Console

PLAIN_SECONDS = 10.0  # between two progress lines where bars cannot be drawn


def open_console(verbose: bool | None) -> Console | None:
    """Return a console for progress on stderr, or None to show nothing.

    Args:
        verbose: Whether to show progress; None shows it where bars can be drawn.
    """
    if verbose is False:
        return None
    from rich.console import Console

    console = Console(stderr=True, highlight=False, markup=False, emoji=False)
    return console if verbose or draws_bars(console) else None


def draws_bars(console: Console) -> bool:
    """Tell whether a console can redraw a bar: on a terminal or in a notebook."""
    return console.is_terminal or console.is_jupyter


@contextmanager
def progress_bar(
    console: Console | None,
    task: str,
    *,
    unit: str = "texts",
    note: Callable[[str], None] | None = None,
) -> Iterator[Progress]:
    """Show a progress bar; yields a function of (done, total), where the total may be None.

    Args:
        console: The console to draw on; None shows nothing.
        task: The work, as the user reads it.
        unit: The things counted.
        note: Prints a line where no bar can be drawn; on the console by default.
    """
    if console is None:
        yield lambda done, total: None
    elif draws_bars(console):
        with _rich_bar(console, task, unit) as update:
            yield update
    else:
        yield plain_lines(note or console.print, task, unit)


@contextmanager
def _rich_bar(console: Console, task: str, unit: str) -> Iterator[Progress]:
    from rich.progress import BarColumn, TextColumn, TimeRemainingColumn
    from rich.progress import Progress as RichProgress

    columns = (TextColumn("{task.description}"), BarColumn(), TextColumn("{task.fields[state]}"),
               TimeRemainingColumn())  # fmt: skip
    started = time.monotonic()
    with RichProgress(*columns, console=console, transient=True) as bar:
        handle = bar.add_task(task, total=None, state="")

        def update(done: int, total: int | None) -> None:
            state = _state(done, total, unit, started)
            bar.update(handle, completed=done, total=total, state=state)

        yield update


def plain_lines(note: Callable[[str], None], task: str, unit: str) -> Progress:
    """Return a function of (done, total) that prints a line every few seconds.

    The clock starts now, or when nothing is done yet.
    """
    started = last = time.monotonic()

    def update(done: int, total: int | None) -> None:
        nonlocal last, started
        if not done:
            started = time.monotonic()
        if time.monotonic() - last >= PLAIN_SECONDS:
            last = time.monotonic()
            left = ""
            if total and done:
                seconds = (total - done) * (last - started) / done
                left = f", {format_seconds(seconds)} left"
            note(f"{task}: {_state(done, total, unit, started)}{left}")

    return update


def _state(done: int, total: int | None, unit: str, started: float) -> str:
    speed = done / max(time.monotonic() - started, 1e-9)
    of_total = f" of {total:,}" if total else ""
    return f"{done:,}{of_total} {unit}, {speed:,.0f} {unit}/s"


class TrainingProgress(TrainListener):
    """Shows a training run; a context manager, so that the bar is always taken down.

    Speed, time left, loss and the last dev score are in one line; messages appear above it.

    Args:
        console: The console to draw on; None shows nothing.
        note: Prints a message; on the console by default.
    """

    def __init__(self, console: Console | None, note: Callable[[str], None] | None = None) -> None:
        self._console = console
        self._note = note or (console.print if console is not None else lambda text: None)
        self._bar: Any = None
        self._task: Any = None
        self._last_score = ""
        self._last_line = time.monotonic()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self._take_down()

    def on_start(self, info: Mapping[str, Any]) -> None:
        """Put up the bar; the one of a member before goes."""
        self._take_down()
        if self._console is None or not draws_bars(self._console):
            return
        from rich.progress import BarColumn, TextColumn
        from rich.progress import Progress as RichProgress

        self._bar = RichProgress(
            TextColumn("{task.description}"),
            BarColumn(),
            TextColumn("{task.percentage:>3.0f}%  {task.fields[state]}"),
            console=self._console,
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
        elif time.monotonic() - self._last_line >= PLAIN_SECONDS:
            self._last_line = time.monotonic()
            member = f"{info['member']}: " if "member" in info else ""
            self._note(f"{member}step {info['step']:,} of {info['steps']:,}, {state}")

    def on_evaluation(self, info: Mapping[str, Any]) -> None:
        """Print the scores, and keep the one that counts for the bar.

        They are the network's: "on dev" by itself always stands for the whole model, whose words
        and weights are known at the end.
        """
        scores, metric = info["scores"], info["metric"]
        self._last_score = f"network {format_scores({metric: scores[metric]})}"
        best = ", the best so far" if info["best"] else ""
        self._note(f"network on dev after step {info['step']:,}: {format_scores(scores)}{best}")

    def on_message(self, text: str) -> None:
        """Pass a message on."""
        self._note(text)

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
    """Return scores as percentages: `P@1 91.2, P@5 67.0`."""
    return ", ".join(f"{name} {100 * value:.1f}" for name, value in scores.items())
