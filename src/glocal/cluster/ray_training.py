"""Training on a Ray cluster: Ray Train starts the processes, and each runs the usual loop.

Ray Train connects the processes as torchrun does, so that data-parallel training and sharded labels
(`sharded_training.py`) work as they do there. When a process or its machine is lost, Ray starts all
of them again, and the run resumes from its last checkpoint. The model directory must be on a file
system that every machine shares. What the first process reports reaches the caller through a small
actor, the `Board`.
"""

from __future__ import annotations

import contextlib
import functools
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from glocal.cluster.ray_cluster import connected
from glocal.config import Recipe
from glocal.data.corpus import Corpus
from glocal.errors import ConfigError, GlocalError, TrainingError, require
from glocal.train.checkpoint import RunFolder
from glocal.train.listener import TrainListener
from glocal.train.run import FitResult, check_target, fit

_RESTARTS = 5  # times that lost processes are replaced
_SECONDS = 0.5  # between two looks at the board


@dataclass
class RayTrainer:
    """Trains on a Ray cluster; call it as `fit`.

    Attributes:
        address: The cluster; None starts one on this machine.
        workers: Number of processes.
        gpus: Whether each process has a GPU.
        shard_labels: Whether processes share the labels instead of the texts of a step.
        shard_encoder: Whether processes share the encoder's weights.
        cpus: CPUs of each process.
    """

    address: str | None = None
    workers: int = 1
    gpus: bool = False
    shard_labels: bool = False
    shard_encoder: bool = False
    cpus: float = 1

    def __call__(
        self,
        recipe: Recipe,
        train: Corpus,
        *,
        out: str | Path,
        listener: TrainListener | None = None,
        **options: Any,
    ) -> FitResult:
        """Train a system and write its model directory; see `fit`.

        Raises:
            TrainingError: Processes were lost again and again.
            ConfigError: The cluster cannot be reached, or is too small.
        """
        target = Path(out).absolute()
        again = {name: bool(options.get(name)) for name in ("resume", "overwrite")}
        check_target(target, **again)
        require("ray.train", extra="ray", purpose="train on a Ray cluster")
        with connected(self.address) as ray, tempfile.TemporaryDirectory() as notes:
            self._check_size(ray)
            board = ray.remote(num_cpus=0)(Board).remote()
            work = {
                "board": board,
                "sharding": {"labels": self.shard_labels, "encoder": self.shard_encoder},
                "call": ray.put((recipe, train, {**options, "out": str(target)})),
            }
            with _repeated(ray, board, listener or TrainListener()):
                failure = self._run(work, notes)
            answer: Mapping[str, Any] = ray.get(board.answer.remote())
        if "error" in answer:
            raise TrainingError(answer["error"])
        if "result" not in answer:
            raise TrainingError(
                f"processes of the run were lost {_RESTARTS + 1} times ({failure}); the last "
                f"checkpoint in {RunFolder(target).path} is kept: look at the memory of the "
                "machines, then resume"
            )
        result: FitResult = answer["result"]
        return result

    def _run(self, work: Mapping[str, Any], notes: str) -> str:
        """Run the processes to their end; return why they ended, if not well."""
        from ray.train import FailureConfig, RunConfig, ScalingConfig
        from ray.train.torch import TorchTrainer

        need = {"CPU": self.cpus, **({"GPU": 1} if self.gpus else {})}
        trainer = TorchTrainer(
            _train,
            train_loop_config=dict(work),
            scaling_config=ScalingConfig(
                num_workers=self.workers,
                use_gpu=self.gpus,
                resources_per_worker=need,
            ),
            run_config=RunConfig(
                storage_path=notes, failure_config=FailureConfig(max_failures=_RESTARTS)
            ),
        )
        try:
            trainer.fit()
        except Exception as error:  # Ray's own kinds differ between versions
            return (str(error).splitlines() or [type(error).__name__])[0]
        return ""

    def _check_size(self, ray: Any) -> None:
        resources = ray.cluster_resources()
        for kind, need in (("CPU", self.workers * self.cpus), ("GPU", self.workers * self.gpus)):
            if resources.get(kind, 0) < need:
                raise ConfigError(
                    f"{self.workers} processes need {need:g} {kind}s, and the cluster has "
                    f"{resources.get(kind, 0):g}; ask for fewer workers, or add machines"
                )


@dataclass
class Board:
    """Keeps what the processes of a run report; an actor of Ray."""

    starts: int = 0
    events: list[tuple[str, Any]] = field(default_factory=list)
    found: dict[str, Any] = field(default_factory=dict)

    def start(self, rank: int) -> tuple[int, bool]:
        """Return how often the first process had started before, and whether the run failed."""
        before = self.starts
        self.starts += rank == 0
        return before, "error" in self.found

    def report(self, name: str, info: Any) -> None:
        """Add an event of a listener."""
        self.events.append((name, info))

    def take(self) -> list[tuple[str, Any]]:
        """Return the events since the last call."""
        events, self.events = self.events, []
        return events

    def end(self, name: str, value: Any) -> None:
        """Set the outcome: `result` or `error`; the first one counts."""
        if not self.found:
            self.found[name] = value

    def answer(self) -> dict[str, Any]:
        """Return the outcome; empty before there is one."""
        return self.found


def _board_listener(board: Any) -> TrainListener:
    """Return a listener that sends all events to a board."""
    listener = TrainListener()
    for name in dir(TrainListener):
        if name.startswith("on_"):
            setattr(listener, name, functools.partial(board.report.remote, name))
    return listener


def _train(work: dict[str, Any]) -> None:
    """Train in one process of the group."""
    import ray
    from ray.train import get_context

    board, rank = work["board"], get_context().get_world_rank()
    starts, failed = ray.get(board.start.remote(rank))
    if failed:  # an error that would come again: end well, so that nothing is started once more
        return
    run: Callable[..., FitResult] = fit
    if any(work["sharding"].values()):
        from glocal.cluster.sharded_training import fit_sharded

        run = functools.partial(fit_sharded, **work["sharding"])
    recipe, train, options = ray.get(work["call"])
    if starts and RunFolder(Path(options["out"])).unfinished:
        options = {**options, "resume": True}
    try:
        result = run(recipe, train, listener=_board_listener(board), **options)
    except GlocalError as error:
        ray.get(board.end.remote("error", str(error)))
        raise
    if rank == 0:
        ray.get(board.end.remote("result", result))


@contextlib.contextmanager
def _repeated(ray: Any, board: Any, listener: TrainListener) -> Iterator[None]:
    """Pass the events of a board on to a listener, within the block."""
    ended = threading.Event()

    def repeat() -> None:
        while True:
            last = ended.wait(_SECONDS)
            for name, info in ray.get(board.take.remote()):
                getattr(listener, name)(info)
            if last:
                return

    thread = threading.Thread(target=repeat, daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()
