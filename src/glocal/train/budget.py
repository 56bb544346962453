"""How much to train in the time available: the decision alone, without torch.

    Situation (data, machine, time) + Speed (measured) + Wish (settings the recipe fixes) → Choice

- every preset has the sparse expert; whether an encoder is added, for how many epochs and with how
  many members is decided here;
- estimates must fit into the budget with a margin, and a choice states its reasons in plain lines.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass

from glocal.config.durations import format_seconds
from glocal.progress import Progress

FEWEST_EPOCHS = 3  # passes below which new label vectors are too raw to add to the sparse expert
MARGIN = 1.2  # a run may take this much longer than its estimate
PATIENCE = 120.0  # seconds on a CPU where no budget is given
MEMBERS = 3  # members where the budget has room for them
_SEEN = 0.1  # share of a stage's work that is done before its time is extrapolated


@dataclass(frozen=True)
class Situation:
    """Data, machine and time once the companions are fitted.

    Attributes:
        texts: Training texts.
        labels: Labels in the label space.
        labels_per_text: Mean number of labels per text.
        words: Median and 95th percentile of the words in a text.
        machine: Description of the machine.
        gpu: Whether there is a GPU.
        budget: Seconds for the whole run; None for no limit.
        spent: Seconds since the run began.
    """

    texts: int
    labels: int
    labels_per_text: float
    words: tuple[int, int]
    machine: str
    gpu: bool
    budget: float | None = None
    spent: float = 0.0


@dataclass(frozen=True)
class Speed:
    """Seconds that training takes on this machine with these texts.

    Attributes:
        once: Work shared by all members: tokenising.
        member: Work of each member outside its epochs: building it, the last evaluation.
        epoch: One pass over the training texts and one evaluation on dev.
    """

    once: float
    member: float
    epoch: float

    def total(self, members: int, epochs: int) -> float:
        """Return the seconds of a whole training."""
        return self.once + members * (self.member + epochs * self.epoch)

    def epochs_within(self, seconds: float, members: int) -> int:
        """Return the number of passes that fit into a time; 0 where not even one does."""
        left = seconds - self.once - members * self.member
        passes = left / (members * max(self.epoch, 1e-9))
        return max(0, math.floor(min(passes, 1e6)))


@dataclass(frozen=True)
class Wish:
    """The settings that the recipe fixes.

    Attributes:
        experts: Whether it names the experts; otherwise an encoder is used only where it fits.
        epochs: Number of epochs; 0 where open.
        ceiling: Most epochs, where open.
        members: Number of members; 0 where open.
    """

    experts: bool
    epochs: int
    ceiling: int
    members: int


@dataclass(frozen=True)
class Choice:
    """The decision.

    Attributes:
        preset: `fast` or `balanced`; empty where the recipe names its experts.
        epochs: Passes over the texts; 0 without an encoder.
        members: Number of members.
        seconds: Estimated seconds from now to the end.
        lines: The decision and its reasons.
    """

    preset: str
    epochs: int
    members: int
    seconds: float
    lines: tuple[str, ...]


def choose(situation: Situation, speed: Speed | str, wish: Wish) -> Choice:
    """Decide what is trained.

    Args:
        situation: Data, machine and time.
        speed: The measured speed, or why none could be measured.
        wish: The settings that the recipe fixes.
    """
    lines = [_describe(situation)]
    if isinstance(speed, str):
        what = f"as the recipe says, since {speed}" if wish.experts else f"fast, since {speed}"
        preset = "" if wish.experts else "fast"
        return Choice(preset, 0, wish.members or 1, 0.0, (*lines, f"chosen: {what}"))
    measured = f"measured: one epoch takes about {format_seconds(speed.epoch)}"
    lines.append(f"{measured}; {_limit(situation, wish)}")
    seconds = _allowance(situation, wish)
    members = wish.members or _members(speed, wish, situation, seconds)
    epochs = wish.epochs or min(wish.ceiling, speed.epochs_within(seconds, members))
    total = speed.total(members, max(1, epochs))
    fits = epochs > 0 and total <= seconds
    enough = fits and (wish.epochs or epochs >= min(FEWEST_EPOCHS, wish.ceiling))
    if not wish.experts and not enough:
        return Choice("fast", 0, 1, 0.0, (*lines, *_without_encoder(speed, wish)))
    preset = "" if wish.experts else "balanced"
    lines += _with_encoder(preset, max(1, epochs), members, total)
    if not fits:
        lines.append("this is more than the budget allows, and the least that was asked for")
    elif epochs < wish.ceiling and not wish.epochs:
        lines.append(f"fewer than the {wish.ceiling} epochs it would have with more time")
    return Choice(preset, max(1, epochs), members, total, tuple(lines))


def _allowance(situation: Situation, wish: Wish) -> float:
    """Return the seconds that estimates may add up to."""
    if situation.budget is not None:
        return (situation.budget - situation.spent) / MARGIN
    asked_for = situation.gpu or wish.experts or wish.epochs
    return math.inf if asked_for else PATIENCE


def _members(speed: Speed, wish: Wish, situation: Situation, seconds: float) -> int:
    """Return three members only where the budget has room for all of their epochs."""
    epochs = wish.epochs or wish.ceiling
    roomy = situation.budget is not None and speed.total(MEMBERS, epochs) <= seconds
    return MEMBERS if roomy else 1


def _describe(situation: Situation) -> str:
    median, most = situation.words
    return (
        f"{situation.texts:,} texts of {median:,} words (95 in 100 have at most {most:,}), "
        f"{situation.labels:,} labels, {situation.labels_per_text:.1f} a text; {situation.machine}"
    )


def _limit(situation: Situation, wish: Wish) -> str:
    if situation.budget is not None:
        spent = f", {format_seconds(situation.spent)} of it spent" if situation.spent >= 1 else ""
        return f"budget {format_seconds(situation.budget)}{spent}"
    if math.isinf(_allowance(situation, wish)):
        return "no budget was given"
    return f"no budget was given, so up to {format_seconds(PATIENCE)}, as there is no GPU"


def _without_encoder(speed: Speed, wish: Wish) -> list[str]:
    least = wish.epochs or min(FEWEST_EPOCHS, wish.ceiling)
    needed = format_seconds(speed.total(max(1, wish.members), least))
    whole = speed.total(1, wish.epochs or wish.ceiling)
    return [
        "chosen: fast, the sparse expert alone",
        f"an encoder beside it would need at least {least} epochs, about {needed}: too long",
        f"for higher accuracy: the recipe balanced, about {format_seconds(whole)} on this machine",
    ]


def _with_encoder(preset: str, epochs: int, members: int, seconds: float) -> list[str]:
    times = f", {members} members" if members > 1 else ""
    passes = f"{epochs} epoch{'s' if epochs > 1 else ''}{times}"
    what = f"{preset}, {passes}" if preset else passes
    return [f"chosen: {what}, about {format_seconds(seconds)} from here"]


@dataclass
class BudgetWatch:
    """Warns once, while companions are fitted, that this alone will exceed the budget.

    Args:
        budget: Seconds for the whole run; None for no limit.
        started: When the run began, on the clock.
        say: Receives the warning.
        clock: Returns the current time in seconds.
    """

    budget: float | None
    started: float
    say: Callable[[str], None]
    clock: Callable[[], float] = time.monotonic

    def __call__(self, stage: str) -> Progress:
        """Watch a stage of the work, which begins now."""
        began = self.clock()

        def progress(done: int, total: int | None) -> None:
            if self.budget is None or total is None or done < _SEEN * total:
                return
            now = self.clock()
            expected = now - self.started + (now - began) / max(1, done) * (total - done)
            if expected > self.budget:
                self.say(
                    f"the sparse expert alone will take about {format_seconds(expected)}, more "
                    f"than the budget of {format_seconds(self.budget)}; it is trained all the "
                    "same, since every preset needs it"
                )
                self.budget = None

        return progress
