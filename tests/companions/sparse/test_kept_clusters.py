"""A fit that is ended goes on from the clusters it had solved, to the same model."""

import logging
from types import SimpleNamespace

import numpy as np
import pytest

from glocal.companions.companion import FitInputs
from glocal.companions.sparse import kept_clusters, sparse_training
from glocal.companions.sparse.cluster_weights import ClusterWeights
from glocal.companions.sparse.kept_clusters import KeptClusters
from glocal.companions.sparse.sparse_companion import SparseCompanion
from glocal.companions.sparse.sparse_training import LinearTrainer
from glocal.data.cache import cache_dir
from tests.companions.sparse.made_up import SMALL


@pytest.fixture(autouse=True)
def always_written(monkeypatch):
    monkeypatch.setattr(kept_clusters, "SECONDS", 0)


def solved(cluster):
    """Made-up weights; every third cluster has none."""
    rng = np.random.default_rng(cluster)
    labels, weights = 1 + cluster % 2, 5 * (cluster % 3)
    return ClusterWeights(
        np.arange(labels) + cluster,
        np.sort(rng.integers(9, size=weights)).astype(np.int32),
        rng.integers(labels, size=weights).astype(np.int32),
        rng.random(weights, np.float32),
        rng.random(labels, np.float32),
    )


class Solver:
    """Solves clusters, remembers which, and fails at one of them."""

    def __init__(self, fails_at=None):
        self.fails_at, self.asked = fails_at, []

    def __call__(self, clusters):
        for cluster in clusters:
            if cluster == self.fails_at:
                raise KeyboardInterrupt
            self.asked.append(cluster)
            yield solved(cluster)


def equal(found, expected):
    assert len(found) == len(expected)
    for one, other in zip(found, expected, strict=True):
        for name in ("labels", "features", "columns", "values", "biases"):
            np.testing.assert_array_equal(getattr(one, name), getattr(other, name))
            assert getattr(one, name).dtype == getattr(other, name).dtype


def test_only_what_is_missing_is_solved_again(tmp_path, caplog):
    folder = tmp_path / "kept"
    with pytest.raises(KeyboardInterrupt):
        list(KeptClusters(folder).solve(Solver(fails_at=4), 7))
    again = Solver()
    with caplog.at_level(logging.INFO):
        found = list(KeptClusters(folder).solve(again, 7))
    assert again.asked == [4, 5, 6]
    assert "4 of 7 label groups are kept" in caplog.text
    equal(found, [solved(cluster) for cluster in range(7)])


def test_several_clusters_share_a_file(tmp_path, monkeypatch):
    times = iter([0, 4, 8, 12, 12, 14, 30, 30, 31])
    monkeypatch.setattr(kept_clusters, "SECONDS", 10)
    monkeypatch.setattr(kept_clusters.time, "monotonic", lambda: next(times))
    list(KeptClusters(tmp_path).solve(Solver(), 6))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["0-0-3.npz", "0-3-5.npz"]
    monkeypatch.undo()
    again = Solver()
    equal(list(KeptClusters(tmp_path).solve(again, 6)), [solved(cluster) for cluster in range(6)])
    assert again.asked == [5]


def test_models_are_kept_apart(tmp_path):
    first = KeptClusters(tmp_path)
    list(first.solve(Solver(), 3))
    list(first.solve(Solver(), 2))
    second, other = KeptClusters(tmp_path), Solver()
    assert len(list(second.solve(other, 3))) == 3
    assert len(list(second.solve(other, 2))) == 2
    assert not other.asked


@pytest.mark.parametrize("damage", [lambda raw: raw[:40], lambda raw: raw[:90] + b"?" + raw[91:]])
def test_a_damaged_file_is_solved_again(tmp_path, damage):
    list(KeptClusters(tmp_path).solve(Solver(), 3))
    path = tmp_path / "0-1-2.npz"
    path.write_bytes(damage(path.read_bytes()))
    again = Solver()
    equal(list(KeptClusters(tmp_path).solve(again, 3)), [solved(cluster) for cluster in range(3)])
    assert again.asked == [1, 2]


def test_a_full_disk_is_told_once_and_training_goes_on(tmp_path, monkeypatch, caplog):
    def full(path):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(kept_clusters, "atomic_write", full)
    found = list(KeptClusters(tmp_path / "kept").solve(Solver(), 3))
    equal(found, [solved(cluster) for cluster in range(3)])
    assert caplog.text.count("No space left on device") == 1


def test_a_killed_training_goes_on_to_the_same_model(train, labels, monkeypatch):
    monkeypatch.setattr(sparse_training, "DIRECT_LABELS", 3)
    recipe = SimpleNamespace(sparse=SMALL, train=SimpleNamespace(seed=0))
    inputs = FitInputs(recipe, train, labels)
    solve, solved_clusters = LinearTrainer._solve_on, []

    def killed_at(last):
        def solved_until(trainer, texts, cluster):
            if last is not None and len(solved_clusters) >= last:
                raise KeyboardInterrupt
            solved_clusters.append(cluster)
            return solve(trainer, texts, cluster)

        return solved_until

    monkeypatch.setattr(LinearTrainer, "_solve_on", killed_at(None))
    expected = SparseCompanion.fit(inputs).features(train)
    needed = len(solved_clusters)
    for entry in cache_dir("sparse").iterdir():
        (entry / "checksums.json").unlink()  # it is built again
    solved_clusters.clear()
    monkeypatch.setattr(LinearTrainer, "_solve_on", killed_at(needed - 2))
    with pytest.raises(KeyboardInterrupt):
        SparseCompanion.fit(inputs)
    assert list(cache_dir("sparse-parts").iterdir())
    monkeypatch.setattr(LinearTrainer, "_solve_on", killed_at(None))
    found = SparseCompanion.fit(inputs).features(train)
    assert needed <= len(solved_clusters) < needed + 4  # threads had solved some more
    for name, array in expected.items():
        np.testing.assert_array_equal(found[name], array)
    assert not list(cache_dir("sparse-parts").iterdir())
