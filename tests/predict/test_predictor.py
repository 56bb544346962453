"""Predicting with a stored model: what comes out, and what is refused."""

import logging

import numpy as np
import pytest
import torch

from glocal.errors import ConfigError, DataError
from glocal.predict.collate import prepare_texts
from glocal.predict.predictor import Predictor
from glocal.ranking.calibration import Calibration
from glocal.ranking.combination import Combination
from glocal.storage.model_directory import StoredModel
from glocal.vocabulary.label_space import LabelSpace
from tests.tiny import SYSTEM_RECIPES, build_system, taught, tiny_corpus, tiny_recipe

TEXTS = [document.text for document in tiny_corpus(9, seed=1).documents()]


def predictor_of(*overrides, name="glocalxml", calibration=None, **options):
    corpus, recipe = tiny_corpus(40), tiny_recipe(name, *overrides)
    labels = LabelSpace.build(corpus)
    torch.manual_seed(0)
    statistics, vectors, companions = taught(recipe, corpus, labels)
    system, tokenizer = build_system(recipe, statistics, vectors=vectors)
    with torch.no_grad():  # scores that differ clearly
        for parameter in system.parameters():
            parameter.mul_(4)
    parts = (system, system.recipe, labels, tokenizer)
    model = StoredModel(*parts, calibration or Calibration(), companions=companions)
    return Predictor(model, device="cpu", **options)


@pytest.fixture(scope="module")
def predictor():
    return predictor_of()


def dense(predictions, n_labels):
    scores = np.full((len(predictions), n_labels), np.nan)
    np.put_along_axis(scores, predictions.indices, predictions.scores, axis=1)
    return scores


def test_a_k_above_the_label_count_is_cut_with_a_warning(predictor, caplog):
    n_labels = len(predictor.labels)
    with caplog.at_level(logging.WARNING, logger="glocal"):
        found = predictor.predict(TEXTS, k=n_labels + 7)
    assert found.indices.shape == (9, n_labels)
    assert f"only {n_labels} labels" in caplog.text
    assert np.isfinite(found.scores).all()


@pytest.mark.parametrize("k", [0, -1])
def test_a_k_below_one_is_refused(predictor, k):
    with pytest.raises(ConfigError, match=f"k must be at least 1, not {k}"):
        predictor.predict(TEXTS, k=k)


def test_check_k_names_the_label_count(predictor):
    predictor.check_k(len(predictor.labels))
    with pytest.raises(ConfigError, match=f"{len(predictor.labels)} labels, not 99"):
        predictor.check_k(99)


def test_no_texts_give_no_predictions(predictor):
    found = predictor.predict([], k=3, per_expert=True)
    assert list(found.experts) == predictor.expert_names
    assert {part.indices.shape for part in (found, *found.experts.values())} == {(0, 3)}


@pytest.mark.parametrize("text", ["", " \n\t", "🐈", "\u0000", "the cat " * 20_000])
def test_empty_odd_and_very_long_texts_are_tagged(predictor, text):
    found = predictor.predict([text, "the red cat"], k=3)
    assert (found.indices >= 0).all()
    assert np.isfinite(found.scores).all()
    alone = predictor.predict(["the red cat"], k=3)
    np.testing.assert_array_equal(found.indices[1], alone.indices[0])


def test_what_lies_beyond_max_length_does_not_count(predictor):
    start = "the red cat " * 10
    first, second = predictor.predict([start + "owl", start + "a white hen"], k=4).scores
    np.testing.assert_array_equal(first, second)


def test_the_order_of_texts_is_kept(predictor):
    together = predictor.predict(TEXTS, k=2)
    for row, text in enumerate(TEXTS):
        alone = predictor.predict([text], k=2)
        np.testing.assert_array_equal(together.indices[row], alone.indices[0])
        np.testing.assert_allclose(together.scores[row], alone.scores[0], atol=1e-6)


def test_a_corpus_gives_what_its_texts_give(predictor):
    corpus = tiny_corpus(9, seed=1)
    first = predictor.predict_corpus(corpus, k=3)
    second = predictor.predict(TEXTS, k=3)
    np.testing.assert_array_equal(first.scores, second.scores)


def test_only_and_exclude(predictor):
    ids = predictor.labels.ids
    only = predictor.predict(TEXTS, k=4, only=[ids[2], ids[5]])
    assert set(only.indices[:, :2].ravel()) == {2, 5}
    assert (only.indices[:, 2:] == -1).all()
    assert (only.scores[:, 2:] == -np.inf).all()
    rest = predictor.predict(TEXTS, k=len(ids), exclude=[ids[2], ids[5]])
    assert not {2, 5} & set(rest.indices.ravel())
    both = predictor.predict(TEXTS, k=1, only=[ids[2], ids[5]], exclude=[ids[5]])
    assert set(both.indices.ravel()) == {2}


def test_only_and_exclude_with_labels_the_model_does_not_know(predictor):
    with pytest.raises(ConfigError, match=r"not know 2 of the labels .* nix, nil; pass only=…"):
        predictor.predict(TEXTS, only=["nix", "cat", "nil"])
    with pytest.raises(ConfigError, match=r"not know 1 of the labels.*exclude=…"):
        predictor.predict(TEXTS, exclude=["nix"])
    with pytest.raises(ConfigError, match="no label is left"):
        predictor.predict(TEXTS, only=["cat"], exclude=["cat"])
    with pytest.raises(ConfigError, match="no label is left"):
        predictor.predict(TEXTS, only=[])


def test_many_unknown_labels_are_not_all_listed(predictor):
    with pytest.raises(ConfigError, match=r"20 of the labels .*u4, …;"):
        predictor.predict(TEXTS, only=[f"u{i}" for i in range(20)])


@pytest.mark.parametrize("name", SYSTEM_RECIPES.values())
@pytest.mark.parametrize("calibration", [None, Calibration(3.0, 2.0, 0.1)])
def test_candidates_get_the_scores_of_full_scoring(name, calibration):
    predictor = predictor_of(name=name, calibration=calibration)
    n_labels = len(predictor.labels)
    full = predictor.predict(TEXTS, k=n_labels, per_expert=True)
    candidates = full.indices[:, ::2].copy()
    candidates[0, 1:] = -1
    found = predictor.predict(TEXTS, candidates=candidates, per_expert=True)
    pairs = [(full, found)] + [(full.experts[name], found.experts[name]) for name in full.experts]
    for whole, scores in pairs:
        expected = dense(whole, n_labels)
        for row in range(len(TEXTS)):
            wanted = candidates[row][candidates[row] >= 0]
            filled = scores.indices[row] >= 0
            assert set(scores.indices[row][filled]) == set(wanted)
            np.testing.assert_allclose(
                scores.scores[row][filled], expected[row, scores.indices[row][filled]], atol=1e-6
            )


def test_the_calibration_rescales_the_combination_and_keeps_the_order():
    plain, warm = predictor_of(), predictor_of(calibration=Calibration(0.4, 0.4))
    raw = plain.predict(TEXTS, k=6, per_expert=True)
    found = warm.predict(TEXTS, k=6, per_expert=True)
    np.testing.assert_array_equal(found.indices, raw.indices)
    p = raw.scores.astype(np.float64)
    expected = 1 / (1 + ((1 - p) / p) ** (1 / 2.5))
    np.testing.assert_allclose(found.scores, expected, rtol=1e-5)
    for name in warm.expert_names:
        np.testing.assert_array_equal(found.experts[name].scores, raw.experts[name].scores)
    uncalibrated = warm.predict(TEXTS, k=6, calibrated=False)
    np.testing.assert_array_equal(uncalibrated.scores, raw.scores)


def test_a_shortlist_holds_the_best_of_what_the_document_expert_proposes():
    short = predictor_of("candidates.mode=shortlist", "candidates.predict=4")
    whole = predictor_of("candidates.mode=full")
    for predictor in (short, whole):
        first, second = predictor.system.experts
        second.bias.data = first.bias.data.mean() - first.bias.data  # experts that disagree
    found = short.predict(TEXTS, k=3)
    n_labels = len(short.labels)
    full = whole.predict(TEXTS, k=n_labels, per_expert=True)
    scores = dense(full, n_labels)
    best = 0
    for row, proposed in enumerate(full.experts["D-last"].indices[:, :4]):
        expected = proposed[np.argsort(-scores[row, proposed], kind="stable")][:3]
        np.testing.assert_array_equal(found.indices[row], expected)
        np.testing.assert_allclose(found.scores[row], scores[row, expected], atol=1e-6)
        best += (full.indices[row, :3] == expected).all()
    assert best < len(TEXTS)  # the shortlist leaves some of the best labels out


def test_progress_counts_every_text(predictor):
    seen = []
    small = predictor_of(batch_size=4)
    small.predict(TEXTS, progress=lambda done, total: seen.append((done, total)))
    assert seen == [(4, 9), (8, 9), (9, 9)]


def test_bf16_is_close_to_fp32():
    exact = predictor_of().predict(TEXTS, k=15)
    fast = predictor_of(precision="bf16").predict(TEXTS, k=15)
    np.testing.assert_allclose(dense(fast, 15), dense(exact, 15), atol=0.05)


def test_a_lone_surrogate_is_refused(predictor):
    texts = ["a red dog", "an owl — \udcff"]
    with pytest.raises(DataError, match=r"text 2: 'an owl — \\udcff' is not valid Unicode"):
        predictor.predict(texts)
    with pytest.raises(DataError, match="remove the lone surrogate"):
        predictor.explain(texts[1], k=2)


@pytest.mark.parametrize("device", ["tpu9", "gpu"])
def test_an_unknown_device_is_refused(device):
    model = predictor_of()
    stored = StoredModel(model.system, model.recipe, model.labels, model.tokenizer)
    with pytest.raises(ConfigError, match=f"not '{device}'"):
        Predictor(stored, device=device)


@pytest.mark.parametrize("learnt", [{"D-last": 2.0, "A-1": 0.1}, {}])
def test_the_plain_mean_beside_the_combination(learnt):
    predictor, corpus = predictor_of(), tiny_corpus(9, seed=1)
    predictor.system.combination = Combination(learnt, 0.3)
    n_labels = len(predictor.labels)
    found = predictor.predict_for_report(corpus, ks=(n_labels,), plain_mean=True)
    expected = np.mean([dense(alone, n_labels) for alone in found.experts.values()], axis=0)
    mean = dense(found.mean, n_labels)
    np.testing.assert_allclose(mean, expected, rtol=1e-5)
    assert np.allclose(mean, dense(found, n_labels), rtol=1e-5) == (not learnt)
    assert predictor.predict_for_report(corpus).mean is None


def test_one_expert_has_no_mean_of_its_own():
    predictor = predictor_of("experts=['D-last']")
    found = predictor.predict_for_report(tiny_corpus(9, seed=1), plain_mean=True)
    assert found.mean is None


def test_prepared_texts_are_read_once(predictor, monkeypatch):
    texts = tiny_corpus(70, 3).texts()
    excluded = [predictor.labels.ids[0]]
    expected = predictor.predict(texts, k=3, exclude=excluded)
    prepared = prepare_texts(predictor, texts, exclude=excluded)
    assert list(prepared) == list(texts)
    monkeypatch.setattr(type(predictor.tokenizer), "encode_batch", None)
    for k in (3, 2):
        found = predictor.predict(prepared, k=k, exclude=excluded)
        np.testing.assert_array_equal(found.indices, expected.indices[:, :k])
        np.testing.assert_allclose(found.scores, expected.scores[:, :k], atol=1e-6)
