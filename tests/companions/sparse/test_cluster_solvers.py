"""Clusters of labels that several workers solve give the model of one worker."""

import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from glocal.companions.companion import FitInputs
from glocal.companions.sparse import sparse_training
from glocal.companions.sparse.cluster_solvers import ClusterSolvers, ProcessSolvers
from glocal.companions.sparse.sparse_companion import SparseCompanion
from glocal.companions.sparse.sparse_model import SparseModel
from glocal.companions.sparse.sparse_rows import as_csr
from glocal.config import load_recipe
from glocal.config.settings import SparseConfig
from glocal.vocabulary.label_space import LabelSpace
from tests.tiny import tiny_corpus
from tests.train.runs import train_in_processes


class Processes:
    """Threads that stand for processes: they meet, and exchange what they have."""

    def __init__(self, count):
        self.count, self.items = count, [None] * count
        self.meeting = threading.Barrier(count, timeout=60)

    def solvers(self, rank):
        return ProcessSolvers(rank, self.count, lambda items: self.gather(rank, items), self.wait)

    def gather(self, rank, items):
        self.items[rank] = items
        self.wait()
        found = [item for part in self.items for item in part]
        self.wait()
        return found

    def wait(self):
        self.meeting.wait()

    def run(self, act):
        with ThreadPoolExecutor(self.count) as pool:
            return list(pool.map(lambda rank: act(self.solvers(rank)), range(self.count)))


@pytest.mark.parametrize("count", [2, 3])
@pytest.mark.parametrize("n_clusters", [0, 1, 2, 7, 200])
def test_every_cluster_is_solved_once_and_in_order(count, n_clusters):
    solved = []

    def solve(clusters):
        for cluster in clusters:
            solved.append(cluster)
            yield f"weights {cluster}"

    for found in Processes(count).run(lambda solvers: list(solvers.solve(solve, n_clusters))):
        assert found == [f"weights {cluster}" for cluster in range(n_clusters)]
    assert sorted(solved) == list(range(n_clusters))


def same(first, second):
    weights = [as_csr(model.scorer.weights) for model in (first, second)]
    assert np.array_equal(weights[0].indptr, weights[1].indptr)
    assert np.array_equal(weights[0].indices, weights[1].indices)
    assert np.array_equal(weights[0].data, weights[1].data)
    assert np.array_equal(first.scorer.biases, second.scorer.biases)


@pytest.mark.parametrize("negatives", ["matched", "random"])
def test_the_model_is_that_of_one_process(negatives, monkeypatch):
    """Labels are clustered, and the model that matches texts to clusters is solved together too."""
    monkeypatch.setattr(sparse_training, "DIRECT_LABELS", 4)
    corpus = tiny_corpus(300)
    labels = LabelSpace.build(corpus)
    config = SparseConfig(cluster_size=2, beam=2, sample=20, negatives=negatives)

    def fit(solvers=None):
        return SparseModel.fit(corpus, labels, config, threads=1, solvers=solvers)

    alone = fit()
    for together in Processes(2).run(fit):
        same(together, alone)


@pytest.mark.slow
@pytest.mark.dist
def test_torchrun_gives_the_model_of_one_process(tmp_path, monkeypatch):
    settings = ["encoder.name=none", "sparse.cluster_size=4"]
    for processes in (1, 2):
        monkeypatch.setenv("GLOCAL_CACHE", str(tmp_path / f"cache-{processes}"))
        train_in_processes(tmp_path / str(processes), processes, "fast", *settings)
    one, two = (tmp_path / name / "sparse" for name in ("1", "2"))
    names = sorted(path.name for path in one.iterdir())
    assert len(names) > 3
    for name in names:
        assert (one / name).read_bytes() == (two / name).read_bytes(), name


def test_processes_agree_before_they_fit(tmp_path, monkeypatch):
    """One of them may have the model in its cache already; it fits with the others nevertheless."""
    monkeypatch.setenv("GLOCAL_CACHE", str(tmp_path))
    corpus = tiny_corpus(64)
    labels = LabelSpace.build(corpus)
    fits = []

    class Counted(ProcessSolvers):
        def agree(self, flag):
            fits.append(super().agree(flag and self.rank == 0))
            return fits[-1]

    def act(solvers):
        solvers.__class__ = Counted
        recipe = load_recipe("fast", ["sparse.cluster_size=4"])
        return SparseCompanion.fit(FitInputs(recipe, corpus, labels, solvers=solvers)).model

    first = Processes(2).run(act)
    second = Processes(2).run(act)
    assert fits == [False] * 4
    for model in (*first, *second):
        same(model, first[0])
    assert not ClusterSolvers.agree(None, False)
