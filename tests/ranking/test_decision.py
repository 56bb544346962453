"""The tuned threshold against a search over all thresholds."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import sparse

from glocal.ranking.decision import Decision, choose_tags
from glocal.ranking.decision_fit import fit_decision
from glocal.ranking.predictions import Predictions
from glocal.vocabulary.label_space import LabelSpace


def made(seed, n=30, k=6, labels=9):
    rng = np.random.default_rng(seed)
    indices = np.stack([rng.permutation(labels)[:k] for _ in range(n)])
    scores = np.round(rng.random((n, k)), 2)
    predictions = Predictions.from_unsorted(indices, scores)
    gold = rng.random((n, labels + 2)) < 0.25
    return predictions, sparse.csr_matrix(gold)


def micro_f1(decision, predictions, gold):
    kept = decision(predictions)
    dense = gold.toarray()
    some = dense.any(1)
    given_ = (kept.indices >= 0)[some].sum()
    rows = np.arange(len(dense))[:, None]
    hits = (dense[rows, np.maximum(kept.indices, 0)] & (kept.indices >= 0))[some].sum()
    return 2 * hits / (given_ + dense[some].sum())


@given(st.integers(0, 500), st.integers(0, 2))
def test_no_other_threshold_is_better(seed, at_least):
    predictions, gold = made(seed)
    found = fit_decision(predictions, gold, at_least=at_least)
    best = micro_f1(found, predictions, gold)
    assert best == pytest.approx(found.micro_f1)
    for threshold in np.linspace(0, 1.01, 102):
        assert micro_f1(Decision(threshold, at_least), predictions, gold) <= best + 1e-12


def test_a_text_gets_at_least_one_tag():
    predictions = Predictions.from_unsorted(
        np.array([[3, 1], [2, 0]]), np.array([[0.2, 0.1], [0.9, 0.8]])
    )
    tags = Decision(0.5)(predictions)
    assert tags.indices.tolist() == [[3, -1], [2, 0]]
    assert Decision(0.5, at_least=0)(predictions).indices.tolist() == [[-1, -1], [2, 0]]


def test_without_a_hit_the_default_holds():
    predictions = Predictions.from_unsorted(np.array([[0]]), np.array([[0.4]]))
    assert fit_decision(predictions, sparse.csr_matrix([[0, 1]])) == Decision()


def test_stored_and_read_again():
    for decision in (Decision(), Decision(0.25, 2, 0.6)):
        assert Decision.from_mapping(decision.to_mapping()) == decision


def test_the_threshold_lies_between_the_last_tag_and_the_next_label():
    def fitted(scores, hits, **options):
        labels = np.arange(len(scores))[None]
        gold = sparse.csr_matrix(np.array([[*hits, 0]]))
        return fit_decision(Predictions.from_unsorted(labels, np.array([scores])), gold, **options)

    found = fitted([0.9, 0.8, 0.3], [1, 1, 0])
    assert found.threshold == pytest.approx(0.55)
    assert (found.at_least, found.micro_f1) == (1, pytest.approx(1.0))
    assert fitted([0.9, 0.8, 0.3], [1, 1, 1]).threshold == pytest.approx(0.15)
    assert fitted([0.9, 0.8, 0.3], [1, 0, 0]).threshold == pytest.approx(0.9)
    assert fitted([0.9, 0.8, 0.3], [1, 0, 0], at_least=0).threshold == pytest.approx(0.85)
    assert fitted([0.9, 0.8, 0.3], [1, 0, 0]).micro_f1 == pytest.approx(1.0)
    # Equal scores are tagged together or not at all.
    tied = fitted([0.9, 0.5, 0.5, 0.5], [1, 1, 0, 0])
    assert tied.threshold > 0.5
    assert tied.micro_f1 == pytest.approx(2 / 3)


def test_neighbouring_scores_keep_the_upper_one():
    above = np.float32(0.5)
    below = np.nextafter(above, np.float32(0))
    found = fit_decision(
        Predictions(np.array([[0, 1, 2]]), np.array([[0.9, above, below]], dtype=np.float32)),
        sparse.csr_matrix([[1, 1, 0]]),
    )
    assert below < found.threshold <= above


def test_by_default_half_and_at_least_one_tag():
    assert Decision() == Decision(0.5, 1, None)
    assert "micro_f1" not in Decision().to_mapping()
    empty = Predictions(np.array([[-1, -1]]), np.full((1, 2), -np.inf, dtype=np.float32))
    assert Decision(0.0, at_least=2)(empty).indices.tolist() == [[-1, -1]]


def asked(n_labels, decision, scores, **limits):
    """The tags of one text, and how many labels were asked for on the way."""
    order, widths = np.argsort(-scores, kind="stable"), []

    def best(*, k):
        widths.append(k)
        return Predictions(order[None, :k], scores[order][None, :k].astype(np.float32))

    return choose_tags(best, n_labels, decision, **limits), widths


def test_labels_are_asked_for_until_one_is_below_the_threshold():
    scores = np.linspace(1.0, 0.0, 1000)
    for last, expected in ((0.99, [64]), (0.9, [64, 512]), (0.4, [64, 512, 1000])):
        found, widths = asked(1000, Decision(last), scores)
        assert widths == expected
        assert (found.indices >= 0).sum() == (scores.astype(np.float32) >= last).sum()
    found, widths = asked(1000, Decision(0.0), scores)
    assert widths == [64, 512, 1000]
    assert (found.indices >= 0).sum() == 1000
    assert asked(5, Decision(0.0), scores[:5])[1] == [5]
    # Of 64 labels the last one is exactly at the threshold: there may be more.
    assert asked(1000, Decision(float(np.float32(scores[63]))), scores)[1] == [64, 512]


def test_a_number_of_labels_or_a_threshold_replaces_the_decision():
    scores = np.array([0.9, 0.6, 0.5, 0.2])
    found, widths = asked(4, Decision(0.7), scores, k=3)
    assert (found.indices[0].tolist(), widths) == ([0, 1, 2], [3])
    found, _ = asked(4, Decision(0.7), scores, k=3, threshold=0.6)
    assert found.indices[found.indices >= 0].tolist() == [0, 1]
    found, _ = asked(4, Decision(0.7), scores, threshold=0.5)
    assert found.indices[found.indices >= 0].tolist() == [0, 1, 2]
    found, _ = asked(4, Decision(0.7), scores, threshold=0.95)
    assert not (found.indices >= 0).any()  # its "at least one tag" does not count then
    found, _ = asked(4, Decision(0.95), scores)
    assert found.indices[found.indices >= 0].tolist() == [0]


def test_what_is_computed_for_a_label_space_is_no_part_of_a_decision():
    space = LabelSpace(["a", "b"], ["a", "b"], [""] * 2, [()] * 2, np.ones(2), 9)
    used, fresh = (Decision(0.5, 0, own={"b": 0.9}) for _ in range(2))
    found = Predictions(np.array([[1, 0]]), np.array([[0.8, 0.6]], np.float32), space)
    for _ in range(2):
        assert used(found).indices.tolist() == [[0, -1]]
    assert used == fresh
    assert repr(used) == repr(fresh)
    with pytest.raises(TypeError):
        Decision(_limits=[])
    other = LabelSpace(["b", "c"], ["b", "c"], [""] * 2, [()] * 2, np.ones(2), 9)
    assert used(found.with_labels(other)).indices.tolist() == [[1, -1]]
    defaults = Decision()
    assert (defaults.threshold, defaults.at_least, defaults.n_texts) == (0.5, 1, 0)


@pytest.mark.parametrize(("last", "widths"), [(0.4, [64]), (0.5, [64, 100])])
def test_more_labels_are_asked_for_where_the_last_still_reaches_the_threshold(last, widths):
    asked, scores = [], np.full((2, 100), 0.25, np.float32)
    scores[1, :63], scores[1, 63] = 0.75, last

    def best(k):
        asked.append(k)
        return Predictions(np.tile(np.arange(k), (2, 1)), scores[:, :k])

    found = choose_tags(best, 100, Decision(0.5, at_least=0))
    assert asked == widths
    assert (found.indices[1] >= 0).sum() == 63 + (last >= 0.5)
