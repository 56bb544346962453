"""Running the jobs of a study: in this process one by one, or side by side in their own."""

from __future__ import annotations

import gc
import logging
import multiprocessing
import os
import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from typing import Any

from glocal.errors import GlocalError, Interrupted
from glocal.lab.study import DONE, FAILED, STARTED, Job, Outcome, StudyView
from glocal.train.listener import TrainListener

__all__ = ["run_job", "run_jobs"]

logger = logging.getLogger(__name__)

_STOPPED = 130  # exit status of a process that was asked to stop


def run_jobs(jobs: Sequence[Job], *, parallel: int, view: StudyView) -> None:
    """Run what is not finished; a job that fails does not stop the others.

    Raises:
        Interrupted: The user stopped.
    """
    waiting = []
    for job in jobs:
        finished = _finished(job)
        if finished is None:
            waiting.append(job)
        else:
            view.on_outcome(finished, skipped=True)
    if parallel > 1 and len(waiting) > 1:
        _side_by_side(waiting, min(parallel, len(waiting)), view)
        return
    for number, job in enumerate(waiting, 1):
        view.on_variant(number, len(waiting), job.variant.title)
        with view.training() as listener:
            outcome = run_job(job, listener)
        view.on_outcome(outcome, skipped=False)


def run_job(job: Job, listener: TrainListener) -> Outcome:
    """Train and measure one variant; a failure becomes its outcome.

    Raises:
        Interrupted: The user stopped; the run's state is saved.
    """
    try:
        outcome = _train_and_measure(job, listener)
    except Interrupted as error:
        raise Interrupted(
            f"stopped while training '{job.variant.name}'; finished variants are kept, and the "
            "same command goes on from here"
        ) from error
    except Exception as error:
        logger.debug("variant %s failed", job.variant.name, exc_info=True)
        outcome = _failed(job, _reason(error))
    _free_memory()
    return outcome


def _finished(job: Job) -> Outcome | None:
    found = Outcome.load(job.result_path)
    done = found is not None and found.status == DONE and found.is_of(job.blank(DONE))
    return found if done else None


def _train_and_measure(job: Job, listener: TrainListener) -> Outcome:
    from glocal.train.checkpoint import RunFolder
    from glocal.train.run import fit

    known = Outcome.load(job.result_path) is not None  # of the same settings: checked before
    if not (known and (job.model_path / "glocal.toml").is_file()):
        job.blank(STARTED).save(job.result_path)
        fit(
            job.recipe,
            job.data.train,
            out=job.model_path,
            dev=job.data.dev,
            label_table=job.data.label_table,
            resume=RunFolder(job.model_path).unfinished,
            device=job.device,
            listener=listener,
        )
    outcome = _measure(job)
    outcome.save(job.result_path)
    return outcome


def _measure(job: Job) -> Outcome:
    from glocal.lab.divergence import expert_divergence
    from glocal.predict.predictor import Predictor

    predictor = Predictor.load(job.model_path, device=job.device, batch_size=job.batch_size)
    report = predictor.evaluate(job.data.measured, plain_mean=True)
    divergence: dict[str, Any] = {}
    if job.divergence and len(predictor.expert_names) == 2:
        divergence = expert_divergence(predictor, job.data.measured).to_dict()
    seconds = float(predictor.metrics.get("train_seconds", 0.0))
    return job.blank(DONE, seconds=seconds, report=report.to_dict(), divergence=divergence)


def _failed(job: Job, reason: str) -> Outcome:
    outcome = job.blank(FAILED, error=reason)
    outcome.save(job.result_path)
    return outcome


def _reason(error: Exception) -> str:
    lines = str(error).splitlines() or [type(error).__name__]
    return lines[0] if isinstance(error, GlocalError) else f"{type(error).__name__}: {lines[0]}"


def _free_memory() -> None:
    """A failed variant must not take the memory of the next."""
    import torch

    gc.collect()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()


# --- side by side ----------------------------------------------------------------------------


def _side_by_side(jobs: Sequence[Job], parallel: int, view: StudyView) -> None:
    """One process for each job, `parallel` of them at a time.

    Ctrl-C reaches the processes too: each saves its state and ends, and no new one is begun.
    """
    stop = threading.Event()
    threads = max(1, (os.cpu_count() or 1) // parallel)
    with ThreadPoolExecutor(parallel) as pool:

        def work(number: int, job: Job) -> Outcome | None:
            if stop.is_set():
                return None
            view.on_variant(number, len(jobs), job.variant.title)
            return _in_process(job, threads, stop)

        futures = [pool.submit(work, number, job) for number, job in enumerate(jobs, 1)]
        try:
            for future in as_completed(futures):
                outcome = future.result()
                if outcome is not None:
                    view.on_outcome(outcome, skipped=False)
        except KeyboardInterrupt:
            stop.set()
    if stop.is_set():
        raise Interrupted(
            "stopped; finished variants are kept, and the same command goes on from here"
        )


def _in_process(job: Job, threads: int, stop: threading.Event) -> Outcome | None:
    """Wait for the job's process; None where the user stopped it."""
    context = multiprocessing.get_context("spawn")
    process = context.Process(target=_child, args=(job, threads), daemon=True)
    process.start()
    process.join()
    if process.exitcode == _STOPPED:
        stop.set()
    outcome = Outcome.load(job.result_path)
    if process.exitcode == 0 and outcome is not None:
        return outcome
    if stop.is_set():
        return None
    return _failed(
        job,
        f"its process ended with status {process.exitcode} before it was done "
        "(out of memory? try a smaller --parallel)",
    )


def _child(job: Job, threads: int) -> None:
    import torch

    torch.set_num_threads(threads)
    try:
        run_job(job, TrainListener())
    except (Interrupted, KeyboardInterrupt):
        os._exit(_STOPPED)
