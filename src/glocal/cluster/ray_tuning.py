"""Trials of a search on a Ray cluster: several at once, each in an actor of its own.

Optuna proposes settings and stops hopeless trials in this process, as without Ray; an actor asks it
by its scores. The folder of the search must be on a file system that every machine shares.
"""

from __future__ import annotations

import contextlib
import functools
import queue
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from glocal.cluster.ray_cluster import connected
from glocal.config import Recipe
from glocal.errors import GlocalError
from glocal.tune.trials import Hopeless, Trials, TrialStopped

_SECONDS = 0.2  # between two looks at a trial


@contextlib.contextmanager
def trials_on_ray(
    address: str | None = None, *, workers: int | None = None, gpus: float = 0
) -> Iterator[Callable[..., Trials]]:
    """Connect to a cluster within the block; yields what runs trials there.

    Args:
        address: The cluster; None starts one on this machine.
        workers: Trials at the same time; by default one for each CPU, or each GPU with `gpus`.
        gpus: GPUs of each trial.

    Raises:
        ConfigError: The cluster cannot be reached.
    """
    with connected(address) as ray:
        found = ray.cluster_resources()
        fitting = found.get("GPU", 0) // gpus if gpus else found.get("CPU", 1)
        at_once = workers or max(1, int(fitting))
        yield functools.partial(RayTrials, ray, at_once=at_once, gpus=gpus)


class RayTrials(Trials):
    """Measures recipes on dev, on a Ray cluster.

    Args:
        ray: The module, connected to a cluster.
        inputs: Arguments of `Trials`.
        at_once: Trials that may run at the same time.
        gpus: GPUs of each trial.
        options: Further arguments of `Trials`.
    """

    def __init__(
        self, ray: Any, *inputs: Any, at_once: int, gpus: float = 0, **options: Any
    ) -> None:
        super().__init__(*inputs, **options)
        self._ray, self.at_once = ray, at_once
        self._actor = ray.remote(num_cpus=1, num_gpus=gpus, max_concurrency=3)(TrialActor)
        self._inputs = ray.put((inputs, self.device))

    def network(self, recipe: Recipe, is_hopeless: Hopeless, *, out: Path) -> float:
        """Train a network and return its score; see `Trials.network`."""
        return self._run("network", recipe, is_hopeless, out=out.absolute())

    def words(self, recipe: Recipe, is_hopeless: Hopeless) -> float:
        """Fit a words model and return the score of the recipe with it; see `Trials.words`."""
        return self._run("words", recipe, is_hopeless)

    def _run(self, kind: str, recipe: Recipe, is_hopeless: Hopeless, **options: Any) -> float:
        ray = self._ray
        actor = self._actor.remote(self._inputs)
        end = actor.run.remote(kind, recipe, options)
        while not ray.wait([end], timeout=_SECONDS)[0]:
            question = ray.get(actor.question.remote())
            if question is not None:
                actor.answer.remote(is_hopeless(*question))
        try:
            problem, score = ray.get(end)
        except ray.exceptions.RayActorError as error:
            raise GlocalError(
                "the process of a trial was lost; look at the memory of the machines, and give the "
                "command again: finished trials are kept"
            ) from error
        if problem is not None:
            raise GlocalError(problem)
        if score is None:
            raise TrialStopped
        return float(score)


class TrialActor:
    """Runs one trial; an actor of Ray.

    Args:
        inputs: Arguments of `Trials`, and the device.
    """

    def __init__(self, inputs: tuple[tuple[Any, ...], str]) -> None:
        arguments, device = inputs
        self._trials = Trials(*arguments, device=device)
        self._questions: queue.SimpleQueue[tuple[int, float]] = queue.SimpleQueue()
        self._answers: queue.SimpleQueue[bool] = queue.SimpleQueue()

    def run(
        self, kind: str, recipe: Recipe, options: dict[str, Any]
    ) -> tuple[str | None, float | None]:
        """Return a problem, if there is one, and the score; None for a trial that was stopped."""
        try:
            return None, getattr(self._trials, kind)(recipe, self._ask, **options)
        except TrialStopped:
            return None, None
        except GlocalError as error:
            return str(error), None

    def _ask(self, step: int, score: float) -> bool:
        self._questions.put((step, score))
        return self._answers.get()

    def question(self) -> tuple[int, float] | None:
        """Return the step and score that the trial asks about; None if it does not."""
        try:
            return self._questions.get_nowait()
        except queue.Empty:
            return None

    def answer(self, hopeless: bool) -> None:
        """Answer whether the trial is to stop."""
        self._answers.put(hopeless)
