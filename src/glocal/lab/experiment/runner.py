"""The experiment runner: runs jobs so that nothing finished is lost.

- run again, it skips finished jobs, resumes interrupted ones and tries failed ones again; where
  only the texts measured on have changed, a trained model is measured without training;
- a result that other jobs have of the same settings and texts is copied (`reuse`);
- a job that fails is recorded with its reason, and the others continue;
- jobs run in this process, or in child processes (`children`), so that seconds, memory and a crash
  are the job's alone.
"""

from __future__ import annotations

import contextlib
import gc
import logging
import shutil
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from glocal.config import recipe_from_mapping
from glocal.config.recipe_files import flatten
from glocal.config.resolve import check
from glocal.encoders.read_facts import read_encoder_facts
from glocal.errors import ConfigError, DataError, GlocalError, Interrupted, Remedy
from glocal.lab.experiment.jobs import Job, JobListener, JobState, Result
from glocal.lab.experiment.methods import RECIPE, Method
from glocal.lab.machine import torch_with_gpu

logger = logging.getLogger(__name__)


class RunView:
    """Receives the events of a runner; does nothing, subclasses show them."""

    def on_reuse(self, number: int, total: int) -> None:
        """This many results were copied from other folders."""

    def start(
        self, number: int, total: int, method: Method
    ) -> contextlib.AbstractContextManager[JobListener]:
        """Return the listener of a job that starts; it is closed when the job ends."""
        return contextlib.nullcontext(JobListener())

    def on_end(self, result: Result, *, kept: bool) -> None:
        """A job has ended, or was found finished."""


@dataclass
class Runner:
    """Runs jobs.

    Args:
        jobs: In the order of the table.
        out: The folder they share.
        reuse: Folders of other experiments; results they have of the same settings and texts are
            copied, models stay where they are.
        check_first: Check all recipes before anything is trained; otherwise a recipe that cannot
            be built is a failed job.

    Raises:
        ConfigError: If `out` cannot be used: it is a file, or holds results of an older version.
    """

    jobs: Sequence[Job]
    out: Path = field(kw_only=True)
    reuse: Sequence[Path] = field(default=(), kw_only=True)
    check_first: bool = field(default=True, kw_only=True)

    def __post_init__(self) -> None:
        out = self.out
        if out.exists() and not out.is_dir():
            raise ConfigError(f"{out} is a file; expected a folder for models and results")
        studies = (out / "results").is_dir() and (out / "models").is_dir()
        if studies or (out / "benchmark.json").is_file():
            raise ConfigError(
                f"{out} holds results of an older version of glocal, which cannot be read; choose "
                "another folder"
            )

    def run(
        self,
        names: Sequence[str] = (),
        *,
        children: int = 0,
        overwrite: bool = False,
        view: RunView | None = None,
    ) -> list[Result]:
        """Run the jobs that are not finished; return all results, in order.

        Args:
            names: Only the jobs of these methods.
            children: Child processes at a time; 0 runs the jobs in this process.
            overwrite: Discard earlier results and models first.
            view: Receives the events.

        Raises:
            ConfigError: Before anything is trained: if a recipe cannot be built, or if an earlier
                result has other settings or training texts.
            Interrupted: If the user stopped; finished jobs are kept, others resume.
        """
        from glocal.lab.experiment.child_process import run_in_children

        view = view or RunView()
        chosen = [job for job in self.jobs if not names or job.method.name in names]
        if self.check_first:
            _check_recipes(chosen)
        if overwrite:
            _discard(chosen)
        _check_earlier(chosen)
        if self.reuse:
            view.on_reuse(_copy_results(chosen, self.reuse), len(chosen))
        waiting = []
        for job in chosen:
            found = Result.load(job.folder)
            if found is not None and found.is_done and found.measured_on == job.blank.measured_on:
                view.on_end(found, kept=True)
            else:
                waiting.append(job)
        if children:
            run_in_children(waiting, children, out=self.out, view=view)
        else:
            _run_here(waiting, view)
        return self.results()

    def results(self) -> list[Result]:
        """Return the results there are of these jobs, in order."""
        found = [(job.blank, Result.load(job.folder)) for job in self.jobs]
        return [
            result
            for blank, result in found
            if result
            and (result.trained_on, result.measured_on) == (blank.trained_on, blank.measured_on)
        ]


def _run_here(jobs: Sequence[Job], view: RunView) -> None:
    for number, job in enumerate(jobs, 1):
        with view.start(number, len(jobs), job.method) as listener:
            result = run_job(job, listener)
        view.on_end(result, kept=False)


def run_job(job: Job, listener: JobListener) -> Result:
    """Train and measure in this process; an error becomes the result's.

    Raises:
        Interrupted: If the user stopped; the run's state is saved.
    """
    from glocal.lab.experiment.measure_job import measure_job

    try:
        result = measure_job(job, listener)
    except Interrupted as error:
        raise Interrupted(
            f"stopped while training '{job.method.name}'; finished results are kept, and the same "
            "command continues from here"
        ) from error
    except Exception as error:
        logger.debug("%s failed", job.method.name, exc_info=True)
        first = (str(error).splitlines() or [""])[0]
        reason = first if isinstance(error, GlocalError) else f"{type(error).__name__}: {first}"
        result = replace(job.blank, status=JobState.FAILED, error=reason)
    result.save(job.folder)
    gc.collect()  # the memory of one model is given back before the next is built
    if (torch := torch_with_gpu()) is not None:
        torch.cuda.empty_cache()
    return result


# --- earlier results -------------------------------------------------------------------------


def results_in(folder: Path) -> Iterator[Result]:
    """Yield the results of every job below a folder, skipping files of other kinds."""
    for path in sorted(folder.rglob("result.json")):
        with contextlib.suppress(DataError):
            result = Result.load(path.parent)
            if result is not None:
                yield result


def finished_in(folders: Sequence[Path]) -> dict[str, list[Result]]:
    """Return the finished results below some folders by what they were trained on.

    Raises:
        ConfigError: If a folder has none.
    """
    found: dict[str, list[Result]] = {}
    empty = []
    for folder in folders:
        results = [result for result in results_in(folder) if result.is_done]
        empty += [] if results else [str(folder)]
        for result in results:
            found.setdefault(result.trained_on, []).append(result)
    if empty:
        raise ConfigError(
            f"no finished results to reuse in {', '.join(empty)}; give the output folder of "
            "another experiment"
        )
    return found


def _copy_results(jobs: Sequence[Job], folders: Sequence[Path]) -> int:
    """Copy results that other jobs have of the same settings and texts; return how many."""
    others = finished_in(folders)
    copied = 0
    for job in jobs:
        earlier = Result.load(job.folder)
        same = [r for r in others.get(job.blank.trained_on, ()) if r.serves(job.blank)]
        if same and not (earlier is not None and earlier.serves(job.blank)):
            best = max(same, key=lambda result: len(result.parts))
            kept = replace(best, method=job.method, measured_on=job.blank.measured_on)
            kept.save(job.folder)
            copied += 1
    return copied


def _discard(jobs: Sequence[Job]) -> None:
    for job in jobs:
        for name in ("result.json", "spent.json"):
            (job.folder / name).unlink(missing_ok=True)
        for name in ("model", "model.run"):
            shutil.rmtree(job.folder / name, ignore_errors=True)


def _check_earlier(jobs: Sequence[Job]) -> None:
    problems = []
    for job in jobs:
        earlier, now = Result.load(job.folder), job.blank
        if earlier is None or earlier.trained_on == now.trained_on:
            continue
        before = dict(flatten(earlier.method.settings))
        changed = [
            f"{key}={before.get(key)} (now {value})"
            for key, value in flatten(now.method.settings)
            if before.get(key) != value and key != "description"
        ]
        if earlier.method.library != now.method.library:
            changed.append(f"{earlier.method.library} (now {now.method.library})")
        problems.append(
            f"'{job.method.name}' in {job.folder} was trained with "
            f"{', '.join(changed) or 'other training or dev texts'}; give the same settings and "
            "texts, or another output folder"
        )
    ConfigError.raise_any(problems, remedies=[Remedy("overwrite", "start from scratch")])


def _check_recipes(jobs: Sequence[Job]) -> None:
    """Check the recipes of all jobs against every rule that needs no texts.

    Raises:
        ConfigError: With every problem and its method.
    """
    problems = []
    for job in jobs:
        if job.method.kind == RECIPE:
            recipe, has_table = recipe_from_mapping(job.method.settings), bool(job.splits.labels)
            try:
                check(recipe, read_encoder_facts, has_label_table=has_table)
            except ConfigError as error:
                problems += [f"variant '{job.method.name}': {text}" for text in error.problems]
    ConfigError.raise_any(problems)
