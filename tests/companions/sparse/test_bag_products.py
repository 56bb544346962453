from dataclasses import replace

import numpy as np
import pytest
from scipy.sparse import csr_matrix, random

from glocal.companions.sparse import bag_products, sparse_training
from glocal.companions.sparse.bag_products import BagProducts, bag_product, bags_help
from glocal.companions.sparse.solver import TextProducts
from glocal.companions.sparse.sparse_training import LinearTrainer
from glocal.config import SparseConfig

torch = pytest.importorskip("torch")


def matrix(rows, columns, *, density, seed):
    rng = np.random.default_rng(seed)
    return random(rows, columns, density, format="csr", dtype=np.float32, rng=rng)


def test_product_with_empty_rows():
    sparse = matrix(50, 30, density=0.03, seed=0)
    assert (np.diff(sparse.indptr) == 0).any()
    dense = np.random.default_rng(1).random((30, 7)).astype(np.float32)
    np.testing.assert_allclose(bag_product(sparse, dense), sparse @ dense, rtol=1e-5)
    np.testing.assert_array_equal(
        bag_product(csr_matrix((4, 30), dtype=np.float32), dense), np.zeros((4, 7))
    )


def test_inner_products_equal_those_of_scipy():
    features = matrix(80, 60, density=0.05, seed=2)
    factor = np.random.default_rng(3).random((80, 5)).astype(np.float32)
    np.testing.assert_allclose(
        BagProducts(features)(factor), TextProducts(features)(factor), rtol=1e-5, atol=1e-6
    )


def test_few_texts_or_no_torch_need_none(monkeypatch):
    features = matrix(80, 60, density=0.05, seed=2)
    assert not bags_help(features)
    monkeypatch.setattr(bag_products, "LEAST_ENTRIES", features.nnz)
    assert bags_help(features)
    monkeypatch.setattr(bag_products.importlib.util, "find_spec", lambda name: None)
    assert not bags_help(features)


@pytest.mark.parametrize("named", [False, True])
def test_trains_the_weights_of_scipy_on_any_number_of_threads(named, monkeypatch):
    monkeypatch.setattr(sparse_training, "DIRECT_LABELS", 3)
    features, gold = matrix(160, 60, density=0.15, seed=4), matrix(160, 14, density=0.12, seed=5)
    gold.data[:] = 1
    names = matrix(60, 14, density=0.05, seed=6).tocsc() if named else None
    config = SparseConfig(cluster_size=4, beam=2, sample=40, threshold=0.0)

    def trained(threads):
        return LinearTrainer(features, gold, config, names=names, threads=threads).fit()

    expected = trained(1)
    monkeypatch.setattr(bag_products, "LEAST_ENTRIES", 0)
    before = torch.get_num_threads()
    found, again = trained(1), trained(2)
    assert torch.get_num_threads() == before
    np.testing.assert_allclose(found.weights.toarray(), expected.weights.toarray(), atol=2e-4)
    np.testing.assert_allclose(found.biases, expected.biases, atol=2e-4)
    np.testing.assert_array_equal(again.weights.data, found.weights.data)
    assert replace(found, weights=None, biases=None) == replace(again, weights=None, biases=None)
