"""Workers that solve clusters of labels together: clusters are independent of each other.

A model of words that is fitted on several workers is the same as that of one: which worker solves a
cluster changes nothing. Without such workers the threads of one process solve all of them.
"""

from __future__ import annotations

import contextlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from glocal.companions.sparse.cluster_weights import ClusterWeights

Solve = Callable[[Sequence[int]], Iterable[ClusterWeights]]

_AT_A_TIME = 32  # clusters that a process solves before the results are exchanged


class ClusterSolvers(ABC):
    """Workers that solve clusters."""

    @abstractmethod
    def solve(self, solve: Solve, n_clusters: int) -> Iterator[ClusterWeights]:
        """Yield the weights of all clusters, in order.

        Args:
            solve: Returns the weights of some clusters, in this process.
            n_clusters: Number of clusters.
        """

    def agree(self, flag: bool) -> bool:
        """Return whether a flag is set in every process that fits the model."""
        return flag

    def in_turn(self) -> contextlib.AbstractContextManager[None]:
        """Return a context that the first process leaves before the others enter it."""
        return contextlib.nullcontext()


@dataclass
class ProcessSolvers(ClusterSolvers):
    """The processes of a run, all of which fit the same model at the same time.

    Each solves every N-th cluster, and all get the results of each other.

    Args:
        rank: Number of this process.
        processes: Number of processes.
        gather: Returns the items of all processes, in the order of the processes.
        wait: Waits until every process is here.
    """

    rank: int
    processes: int
    gather: Callable[[list[Any]], list[Any]]
    wait: Callable[[], None]

    def solve(self, solve: Solve, n_clusters: int) -> Iterator[ClusterWeights]:
        """Yield the weights of all clusters, in order."""
        step = _AT_A_TIME * self.processes
        for start in range(0, n_clusters, step):
            clusters = range(start, min(start + step, n_clusters))
            parts = self.gather([list(solve(clusters[self.rank :: self.processes]))])
            for place in range(len(clusters)):
                yield parts[place % self.processes][place // self.processes]

    def agree(self, flag: bool) -> bool:
        """Return whether a flag is set in every process."""
        return all(self.gather([flag]))

    def in_turn(self) -> contextlib.AbstractContextManager[None]:
        """Return a context that the first process leaves before the others enter it."""
        return one_first(self.rank == 0, self.wait)


@contextlib.contextmanager
def one_first(first: bool, wait: Callable[[], None]) -> Iterator[None]:
    """Let the first process leave the block before the others enter it; all enter it."""
    if not first:
        wait()
    yield
    if first:
        wait()
