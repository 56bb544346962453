import copy
import pickle
import sys
import warnings
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from scipy import sparse
from scipy.sparse import csr_matrix
from sklearn.base import clone
from sklearn.exceptions import NotFittedError as SklearnNotFittedError
from sklearn.exceptions import SkipTestWarning
from sklearn.model_selection import GridSearchCV, cross_val_predict, cross_validate
from sklearn.pipeline import Pipeline
from sklearn.utils import estimator_checks as checks
from sklearn.utils import get_tags
from sklearn.utils.validation import check_is_fitted

from glocal import NotFittedError, Tagger
from glocal.config import parse_override
from glocal.errors import ConfigError, DataError, ModelError
from tests.tiny import FAST, tiny_corpus

OVERRIDES = dict(parse_override(text) for text in FAST)


def data(n=64, seed=0):
    corpus = tiny_corpus(n, seed)
    return corpus.texts(), corpus.labels()


def tagger(**params):
    overrides = {**OVERRIDES, **params.pop("overrides", {})}
    return Tagger("glocalxml", overrides=overrides, random_state=0, **params)


@pytest.fixture(scope="module")
def fitted(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("GLOCAL_CACHE", str(tmp_path_factory.mktemp("cache")))
        return tagger(overrides={"train.epochs": 40}).fit(*data())


# --- use -------------------------------------------------------------------------------------


def test_predict_gives_ranked_labels(fitted):
    texts, labels = data(20, 1)
    found = fitted.predict(texts, k=2)
    assert all(len(row) == 2 for row in found)
    hits = np.mean([len(set(a) & set(b)) / 2 for a, b in zip(found, labels, strict=True)])
    assert hits > 0.4
    assert fitted.score(texts, labels) == pytest.approx(
        np.mean(
            [
                len(set(a) & set(b)) / 5
                for a, b in zip(fitted.predict(texts, k=5), labels, strict=True)
            ]
        )
    )


def test_predict_without_k_gives_every_text_a_tag(fitted):
    texts = [*data(20, 1)[0], "zzzz qqqq"]
    top, found = fitted.predict_topk(texts), fitted.predict(texts)
    threshold = fitted.predictor_.decision.threshold
    for row, indices, scores in zip(found, top.indices, top.scores, strict=True):
        reached = [fitted.classes_[i] for i in indices[scores >= threshold]]
        assert row[: len(indices)] == (reached or [fitted.classes_[indices[0]]])
        assert row


def test_the_decision_is_tuned_on_dev_and_stored(tmp_path):
    texts, labels = data()
    made = tagger().fit(texts, labels, dev=data(30, 2), out=tmp_path / "model")
    decision = made.predictor_.decision
    assert decision.micro_f1 is not None
    assert Tagger.load(tmp_path / "model").predictor_.decision == decision


def test_predict_topk_shape_and_order(fitted):
    found = fitted.predict_topk(["the red cat", "a blue dog"], k=3)
    assert found.indices.shape == (2, 3)
    assert np.all(np.diff(found.scores, axis=1) <= 0)


def test_predict_proba_is_sparse_and_agrees(fitted):
    texts, _ = data(6, 1)
    matrix, found = fitted.predict_proba(texts, k=3), fitted.predict_topk(texts, k=3)
    assert matrix.shape == (6, len(fitted.classes_))
    assert matrix.nnz == 18
    for row in range(6):
        assert matrix[row, found.indices[row, 0]] == found.scores[row, 0]


def test_evaluate(fitted):
    report = fitted.evaluate(*data(20, 1), ks=(1, 2))
    assert set(report.experts) == {"D-last", "A-1"}
    assert report.scores["P@2"] > 0.4


def test_explain(fitted):
    tags = fitted.explain("the red cat", k=2, words=3)
    assert len(tags) == 2
    assert tags[0].id in fitted.classes_


def test_a_single_string_gives_a_single_result(fitted):
    text = "the red cat"
    assert fitted.predict(text, k=2) == fitted.predict([text], k=2)[0]
    assert fitted.predict_topk(text, k=2).indices.shape == (1, 2)
    assert fitted.predict_proba(text, k=2).shape == (1, len(fitted.classes_))


@pytest.mark.parametrize(
    "form", [list, tuple, np.array, pd.Series, iter, lambda texts: np.array(texts, dtype=object)]
)
def test_texts_in_any_sequence(fitted, form):
    texts = ["the red cat", "a blue dog"]
    assert fitted.predict(form(texts), k=2) == fitted.predict(texts, k=2)


def test_no_texts_give_no_results(fitted):
    assert fitted.predict([]) == []


@pytest.mark.parametrize(
    ("X", "words"),
    [
        ([None], r"X\[0\] is None of type NoneType; expected a string"),
        (["a", float("nan")], r"X\[1\] is nan of type float"),
        (pd.DataFrame({"text": ["a"], "year": [1]}), r"columns text, year.*X\[\"text\"\]"),
        (7, "X is of type int"),
        ({"a": 1}, "X is of type dict"),
        (b"bytes", "single text"),
    ],
)
def test_what_is_no_text_is_refused(fitted, X, words):
    with pytest.raises(DataError, match=words):
        fitted.predict(X)


# --- k and threshold -------------------------------------------------------------------------


def test_k_alone_gives_exactly_k_labels(fitted):
    texts, _ = data(8, 1)
    assert {len(row) for row in fitted.predict(texts, k=7)} == {7}


def test_a_threshold_alone_gives_every_label_that_reaches_it(fitted, monkeypatch):
    texts, _ = data(8, 1)
    everything = fitted.predict_topk(texts, k=len(fitted.classes_))
    monkeypatch.setattr("glocal.ranking.decision._FIRST_WIDTH", 1)  # so that more must be asked for
    for threshold in (0.0, float(np.median(everything.scores)), 0.3, 1.0):
        found = fitted.predict(texts, threshold=threshold)
        expected = everything.above(threshold)
        assert fitted.predict(iter(texts), threshold=threshold) == found  # read once only
        assert found == [expected.label_ids(row) for row in range(len(texts))]


def test_both_hold_where_both_are_given(fitted):
    texts, _ = data(8, 1)
    for row, best in zip(
        fitted.predict(texts, k=3, threshold=0.3), fitted.predict_topk(texts, k=3), strict=True
    ):
        assert row == [tag.id for tag in best if tag.score >= 0.3]


def test_a_threshold_of_the_taggers_own_replaces_the_decision(fitted):
    texts, _ = data(8, 1)
    found = fitted.predict(texts, k=fitted.k, threshold=0.3)
    try:
        assert fitted.set_params(threshold=0.3).predict(texts) == found
    finally:
        fitted.set_params(threshold=None)


# --- progress and threads --------------------------------------------------------------------


@pytest.mark.parametrize(
    ("verbose", "show", "terminal", "shown"),
    [
        (None, None, True, True),
        (None, None, False, False),
        (False, None, True, False),
        (True, None, False, True),
        (None, False, True, False),
        (False, True, False, True),
    ],
)
def test_progress_is_shown_on_a_terminal_or_as_asked(
    fitted, monkeypatch, verbose, show, terminal, shown
):
    seen = []

    @contextmanager
    def bar(console, task, **_):
        seen.append(console is not None)
        yield lambda done, total: None

    monkeypatch.setattr("glocal.tagger.progress_bar", bar)
    monkeypatch.setattr("rich.console.Console.is_terminal", terminal)
    fitted.set_params(verbose=verbose)
    try:
        fitted.predict(["a cat", "a dog"], batch_size=1, show_progress=show)
    finally:
        fitted.set_params(verbose=None)
    assert seen == [shown]


def test_fitting_shows_progress_when_asked(capfd):
    tagger(verbose=False).fit(*data(16))
    assert capfd.readouterr().err == ""
    tagger(verbose=True).fit(*data(16), dev=data(4, 1))
    assert "network on dev after step" in capfd.readouterr().err


def test_threads_may_predict_at_the_same_time(fitted):
    texts, _ = data(40, 2)
    blocks = [texts[start : start + 4] for start in range(0, 40, 4)] * 3
    expected = [fitted.predict_topk(block, k=3).scores for block in blocks]
    with ThreadPoolExecutor(6) as pool:
        found = list(pool.map(lambda block: fitted.predict_topk(block, k=3).scores, blocks))
        explained = list(pool.map(lambda text: fitted.explain(text, k=1)[0].id, texts))
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_allclose(one, other, atol=1e-6)
    assert explained == [labels[0] for labels in fitted.predict(texts, k=1)]


def test_k_above_the_number_of_labels(fitted):
    with pytest.raises(ConfigError, match="15"):
        fitted.predict(["cat"], k=16)


# --- labels ----------------------------------------------------------------------------------


def indicator():
    texts, labels = data()
    names = sorted({name for row in labels for name in row})
    return texts, np.array([[name in row for name in names] for row in labels], dtype=int)


@pytest.mark.parametrize("form", [np.asarray, csr_matrix, lambda m: m.astype(bool)])
def test_indicator_matrix(form):
    texts, matrix = indicator()
    model = tagger().fit(texts, form(matrix))
    found = model.predict(texts[:3], k=2)
    assert list(model.classes_) == list(range(matrix.shape[1]))
    assert sparse.issparse(found) == sparse.issparse(form(matrix))
    dense = found.toarray() if sparse.issparse(found) else found
    assert dense.shape == (3, matrix.shape[1])
    assert (dense.sum(axis=1) == 2).all()
    assert np.flatnonzero(dense[0]).tolist() == sorted(model.predict(texts[0], k=2))
    assert model.predict_proba(texts[:3], k=2).shape == dense.shape


def test_columns_that_never_occur_in_training_keep_their_place(tmp_path):
    texts, matrix = indicator()
    wide = np.concatenate([np.zeros_like(matrix[:, :1]), matrix, matrix[:, :0]], axis=1)
    model = tagger().fit(texts, wide)
    loaded = Tagger.load(model.save(tmp_path / "m"))
    for each in (model, loaded, pickle.loads(pickle.dumps(model))):
        found = each.predict(texts[:4], k=1)
        assert found.shape == (4, wide.shape[1])
        assert not found[:, 0].any()
        assert each.predict(texts[0], k=1) == [int(np.argmax(found[0]))]


def test_a_sparse_matrix_is_left_as_it_was():
    texts, matrix = indicator()
    y = csr_matrix(matrix)
    y.data[0] = 0  # stored, and not a label
    stored = y.nnz
    tagger().fit(texts, y)
    assert y.nnz == stored


@pytest.mark.parametrize("form", [set, tuple, frozenset, np.array, pd.Series])
def test_labels_of_a_text_in_any_collection(form):
    texts, labels = data(16)
    found = tagger().fit(texts, [form(row) for row in labels])
    assert list(found.classes_) == sorted({label for row in labels for label in row})


def test_a_table_of_indicators_has_its_columns_as_labels():
    texts, matrix = indicator()
    names = [f"label {column}" for column in range(matrix.shape[1])]
    model = tagger().fit(pd.Series(texts), pd.DataFrame(matrix, columns=names))
    assert list(model.classes_) == names
    found = model.predict(texts[:3], k=1)
    assert isinstance(found, pd.DataFrame)
    assert list(found.columns) == names
    assert found.loc[0, model.predict(texts[0], k=1)[0]] == 1


def test_a_label_table_may_be_a_file(tmp_path):
    (tmp_path / "labels.jsonl").write_text('{"id": "cat", "name": "the cat"}\n', encoding="utf-8")
    model = tagger().fit(*data(16), label_table=tmp_path / "labels.jsonl")
    assert "the cat" in model.predictor_.labels.names


@pytest.mark.parametrize("dev", [["a text"], data(4)[0], "text"])
def test_a_dev_set_without_labels_is_refused(dev):
    with pytest.raises(DataError, match=r"expected a pair \(texts, labels\)|dev"):
        tagger().fit(*data(8), dev=dev)


def test_nothing_to_learn_from_is_refused():
    with pytest.raises(DataError, match="X has no texts"):
        tagger().fit([], [])


def test_whole_numbers_come_back_as_such(tmp_path):
    texts, matrix = indicator()
    labels = [np.flatnonzero(row).tolist() for row in matrix]
    model = tagger().fit(texts, labels)
    loaded = Tagger.load(model.save(tmp_path / "m"))
    assert loaded.predict(texts[:5], k=2) == model.predict(texts[:5], k=2)
    assert isinstance(loaded.classes_[0], int)


@pytest.mark.parametrize(
    ("y", "words"),
    [
        (None, "y is None"),
        (["cat", "dog"], r"y\[0\] is 'cat'"),
        ([3, 4], r"y\[0\] is 3"),
        ([["a"], [1]], "mix strings and whole numbers"),
        (np.array([[0, 2], [1, 0]]), "0 and 1 only"),
        ([["a"]], "2 texts but 1 label lists"),
    ],
)
def test_wrong_labels(y, words):
    with pytest.raises(DataError, match=words):
        tagger().fit(["one", "two"], y)


def test_wrong_texts():
    with pytest.raises(DataError, match="float"):
        tagger().fit([1.5], [["a"]])


# --- parameters ------------------------------------------------------------------------------


def test_wrong_parameters_are_all_reported():
    with pytest.raises(ConfigError) as caught:
        tagger(k=0, threshold=2).fit(*data())
    assert len(caught.value.problems) == 2


def test_unknown_setting_names_the_nearest():
    with pytest.raises(ConfigError, match="did you mean 'epochs'"):
        tagger(overrides={"train.epoch": 1}).fit(*data())


def test_nested_and_dotted_overrides_are_the_same():
    dotted = Tagger(overrides={"train.epochs": 3, "train.rates.encoder": 0.5})
    nested = Tagger(overrides={"train": {"epochs": 3, "rates": {"encoder": 0.5}}})
    assert dotted._resolve() == nested._resolve()
    assert (
        dotted._resolve().train.rates["classifier"] == Tagger()._resolve().train.rates["classifier"]
    )


def test_override_below_a_value():
    with pytest.raises(ConfigError, match="not a section"):
        Tagger(overrides={"train.epochs.more": 3})._resolve()


def test_random_state_sets_the_seed():
    assert Tagger(random_state=7)._resolve().train.seed == 7
    assert Tagger()._resolve().train.seed == 0


def test_same_seed_same_model():
    texts, labels = data()
    first, second = (tagger().fit(texts, labels).predict_topk(texts) for _ in range(2))
    np.testing.assert_array_equal(first.indices, second.indices)
    np.testing.assert_allclose(first.scores, second.scores, atol=1e-6)


def test_set_params_rejects_unknown_names():
    with pytest.raises(ConfigError, match="did you mean 'threshold'"):
        Tagger().set_params(treshold=0.1)


def test_repr_shows_what_differs():
    assert repr(Tagger()) == "Tagger()"
    assert repr(Tagger("me-xml", k=3)) == "Tagger(recipe='me-xml', k=3)"


def test_repr_of_a_loaded_tagger_is_one_line(fitted, tmp_path):
    loaded = Tagger.load(fitted.save(tmp_path / "model"))
    assert repr(loaded) == "Tagger(recipe=<glocalxml recipe>)"


def test_settings_of_the_recipe_are_parameters():
    model = Tagger(overrides={"train.epochs": 3}).set_params(overrides__train__seed=7)
    assert model.overrides == {"train.epochs": 3, "train.seed": 7}
    assert Tagger().set_params(**{"overrides__train.seed": 7}).overrides == {"train.seed": 7}


# --- keeping ---------------------------------------------------------------------------------


def test_save_and_load(fitted, tmp_path):
    texts, _ = data(10, 1)
    fitted.set_params(k=4, threshold=0.25)
    try:
        path = fitted.save(tmp_path / "model")
    finally:
        fitted.set_params(k=5, threshold=0.5)
    loaded = Tagger.load(path)
    assert (loaded.k, loaded.threshold) == (4, 0.25)
    np.testing.assert_allclose(
        loaded.predict_topk(texts, k=5).scores, fitted.predict_topk(texts).scores, atol=1e-6
    )


def test_save_does_not_overwrite(fitted, tmp_path):
    fitted.save(tmp_path / "model")
    with pytest.raises(ModelError, match="overwrite=True"):
        fitted.save(tmp_path / "model")
    fitted.save(tmp_path / "model", overwrite=True)


def test_loaded_tagger_can_be_fitted_again(fitted, tmp_path):
    loaded = Tagger.load(fitted.save(tmp_path / "model"))
    expected = replace(fitted._resolve().train, label_precision="fp32")
    assert loaded.recipe.train == expected
    loaded.set_params(overrides={"train.epochs": 1}).fit(*data())
    assert loaded.recipe.train.epochs == 40
    assert loaded.predictor_.recipe.train.epochs == 1


def test_fit_into_a_place_of_ones_own(tmp_path):
    tagger().fit(*data(), out=tmp_path / "model")
    assert Tagger.load(tmp_path / "model").predict(["cat"], k=1)
    with pytest.raises(ModelError):
        tagger().fit(*data(), out=tmp_path / "model")


def test_temporary_model_goes_with_the_object():
    model = tagger().fit(*data())
    home = model._path
    assert home.exists()
    del model
    assert not home.exists()


def test_a_failed_fit_leaves_the_former_model(fitted):
    before = fitted.predict(["the red cat"], k=3)
    with pytest.raises(DataError):
        fitted.fit(["one"], [[" "]])
    assert fitted.predict(["the red cat"], k=3) == before


@pytest.mark.parametrize("duplicate", [copy.deepcopy, lambda t: pickle.loads(pickle.dumps(t))])
def test_copies_stand_on_their_own(duplicate):
    model = tagger().fit(*data())
    twin, expected = duplicate(model), model.predict(["the red cat"], k=3)
    del model
    assert twin.predict(["the red cat"], k=3) == expected
    assert Tagger().get_params() == duplicate(Tagger()).get_params()


# --- scikit-learn ----------------------------------------------------------------------------


@pytest.mark.parametrize("method", ["predict", "predict_topk", "predict_proba", "explain"])
def test_not_fitted(method):
    with pytest.raises(NotFittedError, match="fit"):
        getattr(Tagger(), method)(["text"])
    with pytest.raises(SklearnNotFittedError):
        getattr(Tagger(), method)(["text"])


def test_not_fitted_without_scikit_learn(monkeypatch):
    monkeypatch.delitem(sys.modules, "sklearn.exceptions")
    with pytest.raises(NotFittedError) as caught:
        Tagger().predict(["text"])
    assert caught.type is NotFittedError


def test_check_is_fitted(fitted):
    check_is_fitted(fitted)
    with pytest.raises(SklearnNotFittedError):
        check_is_fitted(Tagger())


def test_clone_copies_parameters_only(fitted):
    copied = clone(fitted)
    assert copied.get_params() == fitted.get_params()
    assert not hasattr(copied, "predictor_")


def test_grid_search():
    texts, labels = data(48)
    grid = {"overrides": [OVERRIDES, {**OVERRIDES, "train.epochs": 12}], "k": [1]}
    search = GridSearchCV(tagger(), grid, cv=2).fit(texts, labels)
    assert search.best_score_ == max(search.cv_results_["mean_test_score"])
    assert search.best_estimator_.predict(["the red cat"], k=1)


def test_scorers_and_cross_validation_take_an_indicator_matrix():
    texts, matrix = indicator()
    model = Tagger("fast", random_state=0)
    scores = cross_validate(model, texts, matrix, cv=2, scoring=["f1_micro"])
    assert scores["test_f1_micro"].min() > 0.5
    searched = GridSearchCV(model, {"k": [1, 2]}, cv=2, scoring="f1_micro").fit(texts, matrix)
    assert searched.best_score_ > 0.5
    chances = cross_val_predict(model, texts, matrix, cv=2, method="predict_proba")
    assert chances.shape == matrix.shape
    own = chances.toarray()[matrix.astype(bool)].mean()
    assert own > 0.4 > chances.toarray()[~matrix.astype(bool)].mean()


def test_pipeline():
    texts, labels = data(32)
    steps = Pipeline([("tag", tagger())]).fit(texts, labels)
    assert len(steps.predict(texts[:2])) == 2
    assert 0 <= steps.score(texts, labels) <= 1


# scikit-learn's checks that can run on an estimator of texts. The others make up matrices of
# numbers for X (see the table in docs/reference/python.md).
TEXT_CHECKS = [
    checks.check_estimator_cloneable,
    checks.check_estimator_tags_renamed,
    checks.check_valid_tag_types,
    checks.check_estimator_repr,
    checks.check_no_attributes_set_in_init,
    checks.check_parameters_default_constructible,
    checks.check_get_params_invariance,
    checks.check_set_params,
    checks.check_do_not_raise_errors_in_init_or_set_params,
    checks.check_mixin_order,
]


@pytest.mark.parametrize("check", TEXT_CHECKS, ids=lambda check: check.__name__)
def test_scikit_learn_check(check):
    check("Tagger", Tagger())


def test_tags_say_that_it_takes_texts():
    tags = get_tags(Tagger())
    assert tags.input_tags.string
    assert not tags.input_tags.two_d_array
    assert tags.target_tags.required


def test_check_estimator_finds_nothing_to_complain_about():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SkipTestWarning)  # what needs a matrix is skipped
        results = checks.check_estimator(Tagger(), on_fail=None)
    assert all(result["status"] != "failed" for result in results)


def test_fit_leaves_parameters_and_input_alone():
    texts, labels = data(16)
    model, before = tagger(), copy.deepcopy(tagger().get_params())
    texts_before, labels_before = list(texts), copy.deepcopy(labels)
    assert model.fit(texts, labels) is model
    assert model.get_params() == before
    assert (texts, labels) == (texts_before, labels_before)
    public = {name for name in vars(model) if not name.startswith("_")} - set(before)
    assert all(name.endswith("_") for name in public)


def test_predictions_do_not_depend_on_order_or_company(fitted):
    texts, _ = data(12, 3)
    together = fitted.predict_topk(texts).scores
    backwards = fitted.predict_topk(texts[::-1]).scores[::-1]
    alone = np.concatenate([fitted.predict_topk([text]).scores for text in texts])
    np.testing.assert_allclose(together, backwards, atol=1e-5)
    np.testing.assert_allclose(together, alone, atol=1e-5)
