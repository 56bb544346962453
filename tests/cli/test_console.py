import io
import logging

import pytest
from rich.console import Console

from glocal.cli import console
from glocal.cli.training_progress import TrainingProgress, format_scores, format_seconds

EVALUATION = {
    "step": 4,
    "epoch": 1,
    "scores": {"P@1": 0.5, "P@5": 0.25},
    "experts": {"D-last": {"P@1": 0.4, "P@5": 0.2}},
    "metric": "P@5",
    "best": True,
}
STEP = {
    "step": 2,
    "steps": 8,
    "epoch": 0,
    "loss": 1.5,
    "docs_per_second": 120.4,
    "seconds_left": 75,
}


@pytest.fixture
def screen(monkeypatch):
    """What is written to stderr, as on a terminal or not."""

    def make(*, terminal):
        file = io.StringIO()
        fake = Console(file=file, force_terminal=terminal, width=120, highlight=False)
        monkeypatch.setattr(console, "stderr", lambda: fake)
        if terminal:
            monkeypatch.setenv("FORCE_COLOR", "1")
        return file

    yield make
    console.settings.quiet = False


@pytest.fixture
def fast_clock(monkeypatch):
    """Every look at the clock is six seconds after the one before."""
    times = iter(range(0, 10_000, 6))
    monkeypatch.setattr("time.monotonic", lambda: float(next(times)))


def train_a_little(progress):
    progress.on_start({"steps": 8})
    progress.on_step(STEP)
    progress.on_evaluation(EVALUATION)
    progress.on_step({**STEP, "step": 6})
    progress.on_message("something worth a line")


def test_training_on_a_terminal_shows_a_bar(screen):
    file = screen(terminal=True)
    with TrainingProgress() as progress:
        train_a_little(progress)
        progress._bar.refresh()
        progress.on_end({"path": "m", "seconds": 1})
    text = file.getvalue()
    assert "75%" in text
    assert "loss 1.500, 120 texts/s, 1 min 15 s left, network P@5 25.0" in text
    assert "network on dev after step 4: P@1 50.0, P@5 25.0, the best so far" in text
    assert "something worth a line" in text


def test_bar_is_taken_down_on_failure(screen):
    file = screen(terminal=True)

    def fail():
        with TrainingProgress() as progress:
            progress.on_start({"steps": 8})
            raise RuntimeError("stop")

    with pytest.raises(RuntimeError):
        fail()
    assert file.getvalue().rstrip().endswith("\x1b[2K")  # the bar's line is cleared


def test_training_elsewhere_prints_plain_lines(screen, fast_clock):
    file = screen(terminal=False)
    with TrainingProgress() as progress:
        train_a_little(progress)
    assert file.getvalue().splitlines() == [
        "network on dev after step 4: P@1 50.0, P@5 25.0, the best so far",
        "step 6 of 8, loss 1.500, 120 texts/s, 1 min 15 s left, network P@5 25.0",
        "something worth a line",
    ]


def test_quiet_training_prints_nothing(screen, fast_clock):
    file = screen(terminal=True)
    console.settings.quiet = True
    with TrainingProgress() as progress:
        train_a_little(progress)
    assert file.getvalue() == ""


@pytest.mark.parametrize("total", [50, None])
def test_progress_bar_on_a_terminal(screen, total):
    file = screen(terminal=True)
    with console.progress_bar("tagging") as update:
        update(20, total)
    assert "tagging" in file.getvalue()
    assert ("20 of 50 texts" if total else "20 texts") in file.getvalue()


def test_lines_say_the_time_left_once_the_work_has_begun(screen, monkeypatch):
    now = 0.0
    monkeypatch.setattr("time.monotonic", lambda: now)
    file = screen(terminal=False)
    with console.progress_bar("checking") as update:
        now = 1000.0  # other work before
        update(0, 50)
        now = 1020.0
        update(10, 50)
    assert file.getvalue().splitlines()[-1].endswith("10 of 50 texts, 0 texts/s, 1 min 20 s left")


def test_progress_elsewhere_is_a_line_now_and_then(screen, fast_clock):
    file = screen(terminal=False)
    with console.progress_bar("tagging") as update:
        for done in range(10, 60, 10):
            update(done, None)
    lines = file.getvalue().splitlines()
    assert 1 <= len(lines) < 5
    assert all(line.startswith("tagging: ") for line in lines)


def test_quiet_progress(screen, fast_clock):
    file = screen(terminal=True)
    console.settings.quiet = True
    with console.progress_bar("tagging") as update:
        update(1, 2)
    assert file.getvalue() == ""


@pytest.mark.parametrize(
    ("options", "shown"),
    [
        ({}, ["information", "warning: careful"]),
        ({"quiet": True}, ["warning: careful"]),
        ({"verbose": True}, ["details", "information", "warning: careful"]),
    ],
)
def test_log_messages_follow_the_options(screen, monkeypatch, options, shown):
    file = screen(terminal=False)
    logger = logging.getLogger("glocal")
    before = logger.handlers, logger.propagate, logger.level
    try:
        console.configure(**{"debug": False, "quiet": False, "verbose": False, **options})
        logging.getLogger("glocal.somewhere").debug("details")
        logging.getLogger("glocal.somewhere").info("information")
        logging.getLogger("glocal.somewhere").warning("careful")
    finally:
        logger.handlers, logger.propagate, logger.level = before
    assert file.getvalue().splitlines() == shown


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.4, "0 s"),
        (59.6, "1 min 00 s"),
        (200, "3 min 20 s"),
        (7500, "2 h 05 min"),
        (float("inf"), "unknown"),
    ],
)
def test_durations(seconds, text):
    assert format_seconds(seconds) == text


def test_scores():
    assert format_scores({"P@1": 0.5, "P@5": 1 / 3}) == "P@1 50.0, P@5 33.3"
