"""Shards of a bulk prediction on a Ray cluster.

Each worker is an actor that keeps the model in memory. Ray starts an actor again when its process
or its machine is lost, and repeats the shard that it had. The model must be readable from every
machine, and the output writable: a shared file system, or for the output `s3://bucket/…`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import KW_ONLY, dataclass
from typing import Any

from glocal.cluster.ray_cluster import connected
from glocal.errors import GlocalError
from glocal.predict.shard_processes import MAX_LOSSES
from glocal.predict.shard_worker import ShardWorker, raise_problem
from glocal.predict.shards import Shard, ShardJob


@dataclass(frozen=True)
class RayEngine:
    """Predicts shards on a Ray cluster.

    Args:
        address: The cluster; None starts one on this machine.
        workers: Number of actors; None for one for each CPU, or each GPU with `gpus`.
        cpus: CPUs of each actor.
        gpus: GPUs of each actor, also a part of one.
    """

    address: str | None = None
    _: KW_ONLY
    workers: int | None = None
    cpus: float = 1
    gpus: float = 0

    def run(self, job: ShardJob, shards: Iterable[Shard]) -> Iterator[Shard]:
        """Predict every shard and yield each when its tags are published, in any order."""
        with connected(self.address) as ray:
            actor = ray.remote(
                num_cpus=self.cpus,
                num_gpus=self.gpus,
                max_restarts=-1,
                max_task_retries=MAX_LOSSES,
            )(ShardWorker)
            remaining = iter(shards)
            idle = [actor.remote(job.to_mapping()) for _ in range(self._count(ray))]
            running: dict[Any, tuple[Any, Shard]] = {}
            while True:
                while idle and (shard := next(remaining, None)) is not None:
                    worker = idle.pop()
                    running[worker.answer.remote(shard.to_list())] = worker, shard
                if not running:
                    return
                (done,), _ = ray.wait(list(running), num_returns=1)
                worker, shard = running.pop(done)
                raise_problem(_answer(ray, done, shard, job))
                idle.append(worker)
                yield shard

    def _count(self, ray: Any) -> int:
        if self.workers is not None:
            return self.workers
        resources = ray.cluster_resources()
        each = (("GPU", self.gpus), ("CPU", self.cpus))
        fits = [int(resources.get(name, 0) // need) for name, need in each if need]
        if not fits or min(fits) < 1:
            raise GlocalError(
                f"no machine of the cluster has {self.cpus:g} CPUs and {self.gpus:g} GPUs for a "
                "worker; ask for less, or add machines"
            )
        return min(fits)


def _answer(ray: Any, reference: Any, shard: Shard, job: ShardJob) -> dict[str, Any]:
    try:
        answer: dict[str, Any] = ray.get(reference)
    except ray.exceptions.RayActorError as error:
        raise job.lost(shard, MAX_LOSSES + 1) from error
    return answer
