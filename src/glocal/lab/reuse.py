"""Taking over what other studies have finished with the same settings and texts.

Results are copied, under the name the variant has here; models stay where they were trained.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from glocal.errors import ConfigError, DataError
from glocal.lab.study import DONE, Job, Outcome

__all__ = ["finished_elsewhere", "take_over"]


def finished_elsewhere(folders: Sequence[Path]) -> dict[str, list[Outcome]]:
    """What other studies have finished, by what it was trained on.

    Raises:
        ConfigError: For a folder that no study has finished anything in.
    """
    found: dict[str, list[Outcome]] = {}
    empty = []
    for folder in folders:
        outcomes = list(_results_in(folder))
        empty += [] if outcomes else [str(folder)]
        for outcome in outcomes:
            found.setdefault(outcome.trained_on, []).append(outcome)
    if empty:
        raise ConfigError(
            f"--reuse {', '.join(empty)}: no finished results there; give the --out of a study"
        )
    return found


def _results_in(folder: Path) -> Iterator[Outcome]:
    for path in sorted(folder.rglob("results/*.json")):
        with contextlib.suppress(DataError):  # of something else: folders hold many files
            outcome = Outcome.load(path)
            if outcome is not None and outcome.status == DONE:
                yield outcome


def take_over(jobs: Sequence[Job], folders: Sequence[Path]) -> int:
    """Copy results that other studies have of the same settings and texts; gives how many."""
    others = finished_elsewhere(folders)
    taken = 0
    for job in jobs:
        now = job.blank(DONE)
        earlier = Outcome.load(job.result_path)
        if earlier is not None and earlier.status == DONE and earlier.is_of(now):
            continue
        # A study that measured the experts' divergence has all that one without it needs.
        measured = {now.measured_on, replace(job, divergence=True).blank(DONE).measured_on}
        same = [o for o in others.get(now.trained_on, ()) if o.measured_on in measured]
        if same:
            outcome = max(same, key=lambda o: len(o.parts))
            replace(
                now, seconds=outcome.seconds, report=outcome.report, divergence=outcome.divergence
            ).save(job.result_path)
            taken += 1
    return taken
