"""Label names are tried on held-out texts before training starts from them."""

from dataclasses import replace

import numpy as np
import pytest
from scipy.sparse import csc_matrix, csr_matrix

from glocal.companions.sparse.names_trial import FEWEST_TEXTS, helpful_names
from glocal.companions.sparse.sparse_model import SparseModel
from tests.companions.sparse.made_up import SMALL, corpus, label_space

N_LABELS = 30


def case(*, says="name", n_texts=60):
    """Texts with a word of their label, which is its name, and one that several labels share.

    Features are the labels' words and, after them, the shared ones.
    """
    rng = np.random.default_rng(0)
    label = rng.integers(N_LABELS, size=n_texts)
    gold = csr_matrix(np.eye(N_LABELS, dtype=np.float32)[label])
    own, shared = np.eye(N_LABELS), np.eye(3)[np.arange(N_LABELS) % 3]
    texts = np.hstack([own[label] * 0.3 * (says == "name"), shared[label]])
    features = csr_matrix(texts / np.linalg.norm(texts, axis=1, keepdims=True), dtype=np.float32)
    profiles = csr_matrix(np.hstack([np.zeros_like(own), shared]).T, dtype=np.float32)
    names = csc_matrix(np.hstack([own, np.zeros_like(shared)]).T, dtype=np.float32)
    return names, lambda: profiles, features, gold


def test_names_that_texts_say_help():
    names, *rest = case()
    assert helpful_names(names, *rest) is names


def test_names_that_no_text_says_do_not_help():
    assert helpful_names(*case(says="nothing")) is None


def test_names_of_other_labels_do_not_help():
    names, *rest = case()
    assert helpful_names(names[:, np.roll(np.arange(N_LABELS), 3)], *rest) is None


def test_with_few_texts_names_are_used():
    names, *rest = case(says="nothing", n_texts=FEWEST_TEXTS - 1)
    assert helpful_names(names, *rest) is names


def test_without_a_word_of_a_name_there_are_no_names():
    names, *rest = case()
    assert helpful_names(None, *rest) is None
    assert helpful_names(csc_matrix(names.shape, dtype=np.float32), *rest) is None


def test_texts_that_are_a_name_of_their_label_do_not_take_part():
    names, means, features, gold = case(says="nothing")
    same = names.T.tocsr()[gold.indices]
    assert helpful_names(names, means, same, gold) is names  # none is left to try
    both = csr_matrix(np.vstack([features.toarray(), same.toarray()]))
    assert helpful_names(names, means, both, csr_matrix(np.vstack([gold.toarray()] * 2))) is None


@pytest.mark.parametrize(("n_texts", "used"), [(100, True), (600, False)])
def test_training_starts_from_names_unless_they_do_not_help(n_texts, used):
    train = corpus(n_texts)  # of 600 texts enough are held out to see that names are wrong
    labels = label_space(train)
    wrong = replace(labels, names=labels.names[1:] + labels.names[:1])
    nameless = replace(labels, names=["1"] * len(labels))
    ours, plain = (SparseModel.fit(train, some, SMALL).scorer for some in (wrong, nameless))
    assert np.array_equal(ours.weights.toarray(), plain.weights.toarray()) == (not used)
