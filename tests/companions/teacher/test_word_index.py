"""The search by shared words against plain products, at once and one by one."""

import numpy as np
import pytest
from scipy.sparse import csr_matrix

from glocal.companions.teacher import word_index
from glocal.companions.teacher.word_index import WordIndex
from glocal.errors import ModelError


class Weights:
    """Stands for word vectors: a text is the number of its row."""

    def __init__(self, matrix):
        self.matrix = matrix

    def weigh(self, texts):
        return self.matrix[[int(text) for text in texts]].copy()


def random_weights(n_texts=300, n_words=80, seed=0):
    random = np.random.default_rng(seed)
    dense = random.exponential(size=(n_texts, n_words)) * (random.random((n_texts, n_words)) < 0.2)
    dense[17] = 0  # a text without a known word
    dense[40] = dense[41]  # equal ones
    return dense.astype(np.float32)


def plain(dense, heaviest):
    kept = np.zeros_like(dense, dtype=np.float64)
    for row, values in enumerate(dense):
        best = np.lexsort((np.arange(len(values)), -values))[:heaviest]
        kept[row, best] = values[best]
    lengths = np.linalg.norm(kept, axis=1, keepdims=True)
    return kept / np.where(lengths > 0, lengths, 1)


@pytest.mark.parametrize("heaviest", [3, 8, 80])
def test_the_nearest_are_those_of_plain_products(heaviest, monkeypatch):
    monkeypatch.setattr(word_index, "QUERIES", 64)
    dense, k = random_weights(), 7
    texts, weights = [str(row) for row in range(len(dense))], Weights(csr_matrix(dense))
    index = WordIndex.of_texts([texts[:150], texts[150:]], weights, heaviest=heaviest)
    unit = plain(dense, heaviest)
    products = np.round(unit @ unit.T, 6)
    np.fill_diagonal(products, 0)
    own = np.arange(len(dense))
    rows, similarities = index.search(index.queries(texts, own, weights), k, exclude=own)
    for text in range(len(dense)):
        order = np.lexsort((own, -products[text]))[:k]
        expected = products[text][order]
        np.testing.assert_allclose(similarities[text], expected, atol=2e-6)
        there = expected > 0
        assert (rows[text][~there] == -1).all()
        # Apart from ties in the last digit, the very same texts.
        np.testing.assert_allclose(products[text][rows[text][there]], expected[there], atol=2e-6)
    assert (rows[17] == -1).all()
    assert rows[40][0] == 41


def test_one_by_one_as_a_new_text_or_a_known_one_nothing_changes():
    dense = random_weights()
    texts, weights = [str(row) for row in range(len(dense))], Weights(csr_matrix(dense))
    index = WordIndex.of_texts([texts], weights, heaviest=8)
    own = np.arange(len(dense))
    together = index.search(index.queries(texts, own, weights), 5, exclude=own)
    for row in (0, 17, 40, 123):
        for place in (row, -1):
            query = index.queries([texts[row]], np.array([place]), weights)
            alone = index.search(query, 5, exclude=np.array([row]))
            for one, all_ in zip(alone, together, strict=True):
                np.testing.assert_array_equal(one[0], all_[row])


def test_some_of_the_texts():
    dense = random_weights()
    texts, weights = [str(row) for row in range(len(dense))], Weights(csr_matrix(dense))
    index = WordIndex.of_texts([texts], weights, heaviest=8).keep(np.array([5, 3, 250]))
    assert len(index) == 3
    rows, _ = index.search(index.queries(["3"], np.array([1]), weights), 1)
    assert rows.tolist() == [[1]]


@pytest.mark.parametrize("part", ["words.npy", "word-places.npy", "word-offsets.npy"])
@pytest.mark.parametrize("change", ["zeros", "huge", "shorter"])
def test_damaged_files_are_refused(part, change, tmp_path):
    dense = random_weights(50)
    texts = [str(row) for row in range(50)]
    WordIndex.of_texts([texts], Weights(csr_matrix(dense)), heaviest=5).save(tmp_path)
    values = np.load(tmp_path / part)
    if change == "zeros" and part == "word-offsets.npy":
        values = np.zeros_like(values)  # bounds that leave all words out
    elif change == "shorter":
        values = values[:-1]
    else:
        values[3] = np.float32(np.inf) if part == "words.npy" else 1 << 20
    np.save(tmp_path / part, values)
    with pytest.raises(ModelError, match="damaged or incomplete"):
        WordIndex.load(tmp_path, n_words=dense.shape[1], heaviest=5)
