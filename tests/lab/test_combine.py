import numpy as np
import pytest
import scipy.sparse as sp

from glocal.errors import ConfigError, DataError
from glocal.lab.combine import combine
from glocal.lab.saved_scores import SavedScores


def made_scores(seed, *, n_texts=60, n_labels=12, noise=(0.5, 3.0), names=("D", "A"), gold=None):
    """Scores of two experts, of which the first knows more, at eight labels of each text."""
    random = np.random.default_rng(seed)
    if gold is None:
        gold = np.random.default_rng(0).random((n_texts, n_labels)) < 0.2
        gold[:, 0] |= ~gold.any(1)
    labels = np.sort(np.argsort(random.random(gold.shape), axis=1)[:, :8], axis=1)
    true = np.take_along_axis(gold, labels, 1) * 6.0 - 3.0
    columns = [true + random.normal(0, spread, labels.shape) for spread in noise]
    ids = [f"l{i}" for i in range(n_labels)]
    return SavedScores(
        ids,
        np.full(n_labels, 5),
        n_texts,
        list(names),
        labels,
        np.stack(columns, -1).astype(np.float32),
        sp.csr_matrix(gold.astype(np.int8)),
    )


def test_the_better_expert_gets_the_larger_weight():
    found = combine([made_scores(1)], [made_scores(2)])
    assert found.combination.weights["D"] > 3 * found.combination.weights["A"]
    assert found.test.scores["P@1"] >= found.test.experts["A"].scores["P@1"]


def test_two_models_know_more_than_one():
    one = combine([made_scores(1)], [made_scores(2)])
    both = combine([made_scores(1), made_scores(3)], [made_scores(2), made_scores(4)])
    assert set(both.combination.weights) == {"1:D", "1:A", "2:D", "2:A"}
    assert both.test.scores["R@5"] > one.test.scores["R@5"]


def test_members_are_averaged_by_name():
    files = [made_scores(1), made_scores(3)]
    found = combine(files, way="members")
    assert set(found.combination.weights) == {"D", "A"}
    assert found.test is None
    # One model twice is the model itself.
    once, twice = combine(files[:1], way="members"), combine([files[0]] * 2, way="members")
    assert twice.dev.scores == pytest.approx(once.dev.scores)


def test_the_mean_fits_nothing():
    file = made_scores(1)
    found = combine([file], way="mean")
    assert not found.combination.weights
    mean = (1 / (1 + np.exp(-file.log_odds.astype(float)))).mean(-1)
    best = np.take_along_axis(file.labels, mean.argmax(1)[:, None], 1)[:, 0]
    hits = np.asarray(file.gold[np.arange(len(file)), best]).ravel()
    assert found.dev.scores["P@1"] == pytest.approx(hits.mean())


def test_experts_are_chosen_by_name():
    assert set(combine([made_scores(1)], experts=["A"]).combination.weights) == {"A"}
    with pytest.raises(ConfigError, match="none of the experts Z"):
        combine([made_scores(1)], experts=["Z"])


def test_labels_outside_a_models_pool_get_its_lowest_scores():
    file = made_scores(1)
    everything = np.tile(np.arange(12), (len(file), 1))
    values = file.at(everything)
    outside = ~np.isin(np.arange(12), file.labels[0])
    assert np.array_equal(values[0][outside], np.tile(file.log_odds[0].min(0), (4, 1)))
    assert np.array_equal(values[0][file.labels[0]], file.log_odds[0])


@pytest.mark.parametrize(
    ("dev", "test", "message"),
    [
        ([], [], "no saved scores"),
        ([made_scores(1)], [made_scores(1)] * 2, "1 files with scores on dev, but 2"),
        ([made_scores(1), made_scores(1, n_texts=50)], [], "file 2 holds the scores of other"),
        ([made_scores(1), made_scores(1, n_labels=13)], [], "file 2 belongs to another label"),
        ([made_scores(1)], [made_scores(1, names=("D", "S"))], "the experts D, A"),
        ([made_scores(1)], [made_scores(1, n_labels=13)], "different label spaces"),
    ],
)
def test_files_that_do_not_fit_together(dev, test, message):
    with pytest.raises(ConfigError, match=message):
        combine(dev, test)


def test_an_unknown_way():
    with pytest.raises(ConfigError, match="weights, members, mean, not 'vote'"):
        combine([made_scores(1)], way="vote")


def test_nothing_to_fit():
    file = made_scores(1, gold=np.ones((60, 12), dtype=bool))
    with pytest.raises(ConfigError, match="nothing to fit"):
        combine([file])


def test_files_come_back_as_written(tmp_path):
    file = made_scores(1)
    file.save(tmp_path / "scores.npz")
    read = SavedScores.load(tmp_path / "scores.npz")
    assert read.label_ids == file.label_ids
    assert np.array_equal(read.log_odds, file.log_odds)
    assert (read.gold != file.gold).nnz == 0


def test_damaged_files_are_refused(tmp_path):
    path = tmp_path / "scores.npz"
    made_scores(1).save(path)
    path.write_bytes(path.read_bytes()[:500])
    with pytest.raises(DataError, match="not readable as saved scores"):
        SavedScores.load(path)
    with pytest.raises(DataError, match="not readable as saved scores"):
        SavedScores.load(tmp_path / "missing.npz")
