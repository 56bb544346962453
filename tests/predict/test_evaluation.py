"""Evaluation reports, metrics by name, comparison of two models, tables."""

import io
import json
from dataclasses import replace

import numpy as np
import pytest
from rich.console import Console
from scipy import sparse

from glocal.errors import ConfigError, DataError
from glocal.metrics.propensity import inverse_propensity, psp_at_k, weigh
from glocal.metrics.ranking import judge
from glocal.predict.evaluation import evaluate_predictions
from glocal.predict.metric_scores import compare, metric_value
from glocal.predict.report_tables import report_tables
from glocal.ranking.decision import Decision
from glocal.ranking.predictions import Predictions
from glocal.vocabulary.bands import Bands
from glocal.vocabulary.label_space import LabelSpace

N_LABELS, N_UNSEEN, N_TRAIN, K = 20, 3, 1000, 5
COUNTS = np.array([0, 1, 20, 21, 100, 101] + [30] * 14)


@pytest.fixture(scope="module")
def gold():
    rng = np.random.default_rng(0)
    dense = rng.random((60, N_LABELS + N_UNSEEN)) < 0.15
    dense[:4] = False
    dense[4:, 6] |= ~dense[4:].any(axis=1)
    return sparse.csr_matrix(dense.astype(np.float32))


def guesses(gold, skill, seed):
    """Predictions whose scores are noise plus `skill` on gold labels."""
    rng = np.random.default_rng(seed)
    scores = rng.random((gold.shape[0], N_LABELS)) + skill * gold.toarray()[:, :N_LABELS]
    labels = np.tile(np.arange(N_LABELS), (gold.shape[0], 1))
    return Predictions.from_unsorted(labels, scores / (1 + skill), K)


@pytest.fixture(scope="module")
def experts(gold):
    return replace(guesses(gold, 0.6, 2), experts={"global": guesses(gold, 0.3, 1)})


@pytest.fixture(scope="module")
def duplicates(gold):
    return np.arange(gold.shape[0]) % 3 == 0


@pytest.fixture(scope="module")
def report(gold, experts, duplicates):
    return evaluate_predictions(
        experts, gold, counts=COUNTS, n_train=N_TRAIN, duplicates=duplicates, decision=0.6
    )


# --- the report ------------------------------------------------------------------------------


def test_counts(report, gold):
    assert (report.n_documents, report.n_left_out, report.n_evaluated) == (60, 4, 56)
    assert report.n_duplicates == 18  # 20 of 60, two of them without gold
    assert report.n_gold == gold.nnz
    assert report.n_unseen_gold == gold[:, N_LABELS:].nnz > 0
    assert report.n_labels == N_LABELS


def test_rows_for_every_expert_and_metric(report):
    families = ["P", "nDCG", "R", "RP", "PSP", "PSnDCG", "macro-P", "macro-R", "macro-F"]
    expected = {f"{family}@{k}" for family in families for k in (1, 3, 5)}
    expected |= {"micro-P", "micro-R", "micro-F1", "ECE"}
    assert list(report.parts()) == ["combined", "global"]
    for part in report.parts().values():
        assert set(part.scores) == expected
        assert all(0 <= value <= 1 for value in part.scores.values())
    assert report.scores["P@1"] > report.experts["global"].scores["P@1"]


def test_report_and_single_metrics_agree(report, gold, experts):
    for name in [metric for metric in report.scores if "@" in metric] + ["micro-F1"]:
        value = metric_value(name, experts, gold, counts=COUNTS, n_train=N_TRAIN, threshold=0.6)
        assert value == report.scores[name]


def test_deduplicated_scores_are_those_of_the_other_documents(report, gold, experts, duplicates):
    fresh = np.flatnonzero(~duplicates)
    alone = evaluate_predictions(experts.take(fresh), gold[fresh], counts=COUNTS, n_train=N_TRAIN)
    for name, value in report.deduplicated.items():
        assert value == pytest.approx(alone.scores[name], abs=1e-12)
    assert alone.deduplicated is None
    assert alone.n_duplicates is None


def test_bands_cover_every_label_once(report, gold):
    bands = report.macro[5]
    assert list(bands) == ["few", "medium", "many", "unseen", "overall"]
    sizes = {name: band.all_labels.n_labels for name, band in bands.items()}
    # Label 0 has no training text and joins the gold labels outside the label space.
    assert sizes == {"few": 2, "medium": 16, "many": 1, "unseen": 1 + N_UNSEEN, "overall": 23}
    with_gold = {name: band.with_gold.n_labels for name, band in bands.items()}
    assert with_gold["overall"] == sum(with_gold.values()) - with_gold["overall"]
    assert with_gold["overall"] == len(np.unique(gold.indices))
    weighted = sum(
        band.all_labels.f1 * band.all_labels.n_labels
        for name, band in bands.items()
        if name != "overall"
    )
    assert bands["overall"].all_labels.f1 == pytest.approx(weighted / 23)


def test_the_two_populations_differ_where_labels_have_no_gold():
    found = Predictions(np.array([[0, 1]]), np.array([[0.9, 0.8]], dtype=np.float32))
    gold = sparse.csr_matrix(np.array([[1, 0]]))
    report = evaluate_predictions(found, gold, counts=np.array([5, 5]), n_train=10, ks=[2])
    few = report.macro[2]["few"]
    assert (few.all_labels.f1, few.with_gold.f1) == (0.5, 1.0)
    assert np.isnan(report.macro[2]["many"].all_labels.f1)
    assert "unseen" not in report.macro[2]


def test_bands_can_be_chosen(gold, experts):
    bands = Bands.parse("rare=1-50,usual=51-")
    report = evaluate_predictions(experts, gold, counts=COUNTS, n_train=N_TRAIN, bands=bands)
    assert list(report.experts["global"].macro[1]) == ["rare", "usual", "unseen", "overall"]
    with pytest.raises(ConfigError, match="'overall'"):
        evaluate_predictions(
            experts, gold, counts=COUNTS, n_train=N_TRAIN, bands=Bands.parse("overall=1-")
        )


def test_saturated_thresholds_are_warned_of(gold, experts):
    options = {"counts": COUNTS, "n_train": N_TRAIN}
    low = evaluate_predictions(experts, gold, decision=0.0, **options)
    assert [warning.split(":")[0] for warning in low.warnings] == ["combined", "global"]
    assert "in 56 of 56 documents all 5" in low.warnings[0]
    assert not evaluate_predictions(experts, gold, decision=0.99, **options).warnings


def test_micro_scores_follow_the_decision_with_own_thresholds(gold, experts):
    ids = [str(label) for label in range(N_LABELS)]
    labels = LabelSpace(ids, ids, [""] * N_LABELS, [()] * N_LABELS, COUNTS, N_TRAIN)
    decision = Decision(0.6, at_least=2, own={"1": 0.1})
    known = experts.with_labels(labels)
    report = evaluate_predictions(known, gold, counts=COUNTS, n_train=N_TRAIN, decision=decision)
    tags, right = decision(known), gold.toarray() > 0
    kept = right.any(axis=1)
    hits = sum(right[row, labels[labels >= 0]].sum() for row, labels in enumerate(tags.indices))
    given = (tags.indices[kept] >= 0).sum()
    assert report.scores["micro-F1"] == pytest.approx(2 * hits / (given + right.sum()))
    assert report.to_dict()["settings"]["own_thresholds"] == 1


def test_scores_that_are_no_probabilities_have_no_calibration_error(gold, experts):
    margins = Predictions(experts.indices, experts.scores * 9 - 4)
    report = evaluate_predictions(margins, gold, counts=COUNTS, n_train=N_TRAIN, decision=9)
    assert report.calibration is None
    assert np.isnan(report.scores["ECE"])
    assert "not probabilities" in report.warnings[0]
    assert report.to_dict()["scores"]["combined"]["ECE"] is None


def test_ranking_only_needs_the_first_k_but_calibration_says_its_population(report):
    assert report.calibration.n == 56 * 5
    found = report.to_dict()["calibration"]["combined"]
    assert (found["bins"], found["population"]) == (
        15,
        "the first 5 predictions of each document with gold",
    )


def test_json(report):
    text = json.dumps(report.to_dict(), allow_nan=False)
    back = json.loads(text)
    assert back["scores"]["combined"]["P@1"] == report.scores["P@1"]
    assert back["macro"]["combined"]["5"]["few"]["with_gold"]["n_labels"] == 2
    assert back["documents"] == {
        "given": 60,
        "evaluated": 56,
        "without_gold": 4,
        "near_duplicates": 18,
    }


# --- what does not fit -----------------------------------------------------------------------


def evaluate(predictions, gold, **options):
    return evaluate_predictions(
        predictions, gold, **{"counts": COUNTS, "n_train": N_TRAIN, **options}
    )


def test_other_documents_are_refused(gold, experts):
    with pytest.raises(DataError, match="59 documents and gold labels for 60"):
        evaluate(experts.take(np.arange(59)), gold)


def test_labels_outside_the_label_space_cannot_be_predicted(gold, experts):
    indices = experts.indices.copy()
    indices[7, 0] = N_LABELS + 1
    with pytest.raises(DataError, match=r"label 21 is predicted.*20 labels"):
        evaluate(Predictions(indices, experts.scores), gold)


def test_a_label_predicted_twice_is_refused(gold, experts):
    indices = experts.indices.copy()
    indices[7, 4] = indices[7, 0]
    with pytest.raises(DataError, match="twice for document 7"):
        evaluate(Predictions(indices, experts.scores), gold)


def test_too_few_predictions_are_refused_unless_there_are_no_more_labels(gold, experts):
    with pytest.raises(DataError, match="3 predictions per document, too few for metrics at 5"):
        evaluate(experts.head(3), gold)
    found = Predictions(np.array([[0, 1]]), np.array([[0.9, 0.8]], dtype=np.float32))
    two = evaluate(found, sparse.csr_matrix(np.array([[1, 0]])), counts=np.array([5, 5]))
    assert two.scores["P@5"] == pytest.approx(1 / 5)
    assert two.scores["PSP@5"] == 1.0


def test_no_gold_at_all_is_refused(experts):
    with pytest.raises(DataError, match="none of the 60 documents has gold"):
        evaluate(experts, sparse.csr_matrix((60, N_LABELS)))


def test_gold_of_another_label_space_is_refused(gold, experts):
    with pytest.raises(DataError, match="10 columns for 20 labels"):
        evaluate(experts, gold[:, :10])


def test_marks_of_duplicates_must_fit(gold, experts):
    with pytest.raises(DataError, match="near-duplicates are marked"):
        evaluate(experts, gold, duplicates=np.zeros(3, dtype=bool))


@pytest.mark.parametrize("ks", [[], [0, 1]])
def test_ks_must_be_positive(gold, experts, ks):
    with pytest.raises(ConfigError, match="at least 1"):
        evaluate(experts, gold, ks=ks)


# --- one metric ------------------------------------------------------------------------------


def test_metric_value_of_psp(gold, experts):
    weights = inverse_propensity(COUNTS, N_TRAIN, n_columns=gold.shape[1])
    judged = judge(experts.experts["global"].indices, gold)
    expected = psp_at_k(weigh(judged, weights, depth=3), 3).value
    value = metric_value("PSP@3", experts.experts["global"], gold, counts=COUNTS, n_train=N_TRAIN)
    assert value == pytest.approx(expected, abs=1e-12)


def test_metric_value_needs_label_counts_for_psp_alone(gold, experts):
    assert metric_value("P@5", experts.experts["global"], gold) > 0
    with pytest.raises(ConfigError, match="'PSP@5' weighs labels"):
        metric_value("PSP@5", experts.experts["global"], gold)


def test_unknown_metric_names_the_nearest(gold, experts):
    with pytest.raises(ConfigError, match="did you mean 'nDCG@5'"):
        metric_value("NDCG@5", experts.experts["global"], gold)


# --- two models ------------------------------------------------------------------------------


@pytest.mark.parametrize("metric", ["P@5", "PSP@3", "micro-F1"])
def test_compare(gold, experts, metric):
    options = {"counts": COUNTS, "n_train": N_TRAIN}
    result = compare(experts, experts.experts["global"], gold, metric, samples=500, **options)
    assert result.n == 56
    assert result.value_a == metric_value(metric, experts, gold, **options)
    assert result.difference == pytest.approx(result.value_a - result.value_b)
    assert result.low <= result.difference <= result.high
    itself = compare(
        experts.experts["global"], experts.experts["global"], gold, metric, samples=50, **options
    )
    assert (itself.difference, itself.p_value) == (0, 1)


def test_macro_metrics_cannot_be_compared_by_document(gold, experts):
    with pytest.raises(ConfigError, match="averages over labels"):
        compare(experts.experts["global"], experts, gold, "macro-F@5")


# --- tables ----------------------------------------------------------------------------------


def render(report):
    console = Console(width=100, file=io.StringIO())
    for table in report_tables(report):
        console.print(table)
    return console.file.getvalue()


def test_terminal_tables_fit_and_show_percentages(report):
    text = render(report)
    assert max(map(len, text.splitlines())) <= 100
    assert "…" not in text
    row = next(line for line in text.splitlines() if line.strip().startswith("combined"))
    expected = [report.scores[f"P@{k}"] for k in (1, 3, 5)]
    assert row.split()[1:4] == [f"{100 * value:.1f}" for value in expected]
    assert "4 without gold labels skipped" in text
    assert "18 near-duplicates" in text


def test_many_ks_are_spread_over_several_tables(gold, experts):
    report = evaluate_predictions(experts, gold, counts=COUNTS, n_train=N_TRAIN, ks=range(1, 6))
    text = render(report)
    assert max(map(len, text.splitlines())) <= 100
    for family in ["P", "nDCG", "PSP", "R", "RP", "PSnDCG"]:
        for k in range(1, 6):
            assert f" {family}@{k} " in text


def test_missing_values_are_dashes():
    found = Predictions(np.array([[0, 1]]), np.array([[0.9, 0.8]], dtype=np.float32))
    gold = sparse.csr_matrix(np.array([[1, 0]]))
    both = replace(found, experts={"a[b]": found})
    report = evaluate_predictions(both, gold, counts=np.array([5, 5]), n_train=10, ks=[2])
    rows = [line.split() for line in render(report).splitlines() if line.split()[:1] == ["many"]]
    assert rows == [["many", *("0", "–", "–", "–") * 2]] * 2
    assert "a[b]" in render(report)


def test_gains_of_the_combination_are_those_of_a_comparison(report, gold, experts):
    assert report.gains == {}
    for metric in ("P@1", "P@5"):
        expected = compare(experts, experts.experts["global"], gold, metric=metric)
        assert report.experts["global"].gains[metric] == expected
    assert json.loads(json.dumps(report.to_dict()))["gains"]["global"]["P@5"]["n"] == 56
    assert "Gain from combining experts" in render(report)


def test_one_expert_has_no_gains(gold, experts):
    alone = Predictions(experts.indices, experts.scores)
    report = evaluate_predictions(alone, gold, counts=COUNTS, n_train=N_TRAIN)
    assert "gains" not in {key for key, value in report.to_dict().items() if value}
    assert "Gain from combining experts" not in render(report)
