"""The sparse model on a torch device gives numpy's weights and scores, to rounding."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from scipy.sparse import csr_matrix, random_array

from glocal.companions.sparse import device_rows, device_scorer
from glocal.companions.sparse import sparse_training as training_module
from glocal.companions.sparse import torch_device as torch_device_module
from glocal.companions.sparse.device_rows import DeviceRows
from glocal.companions.sparse.device_scorer import DeviceScorer
from glocal.companions.sparse.sparse_model import SparseModel
from glocal.companions.sparse.sparse_scoring import LabelGroups, LinearScorer, top_labels
from glocal.companions.sparse.sparse_training import LinearTrainer
from glocal.companions.sparse.torch_device import torch_device
from glocal.errors import ConfigError
from tests.companions.sparse.made_up import SMALL, corpus, label_space

DEVICES = ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)]
CHECKED = replace(SMALL, cost=1.0, iterations=8, threshold=0.01)


def matrix(n_rows, n_columns, *, density=0.2, seed=0):
    rng = np.random.default_rng(seed)
    found = random_array(
        (n_rows, n_columns), density=density, format="csr", dtype=np.float32, rng=rng
    )
    return csr_matrix(found)


@pytest.fixture(params=["torch", "kernels"])
def products(request, monkeypatch):
    """With torch's own products, and with the kernels, on the CPU in Triton's interpreter."""
    if request.param == "torch":
        monkeypatch.setattr(device_rows, "has_kernels", lambda device: False)
        monkeypatch.setattr(device_scorer, "has_kernels", lambda device: False)
        return
    if not torch.cuda.is_available():
        pytest.importorskip(
            "triton", minversion="3.9", reason="older interpreters need NumPy < 2.4"
        )
        monkeypatch.setattr(device_rows, "has_kernels", lambda device: True)
        monkeypatch.setattr(device_scorer, "has_kernels", lambda device: True)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("width", [3, 70])
def test_rows_and_their_products(products, device, width):
    sparse = matrix(6, 40, density=0.5)
    sparse.data[sparse.indptr[4] : sparse.indptr[5]] = 0
    dense = torch.from_numpy(np.random.default_rng(1).random((40, width), np.float32)).to(device)
    rows = DeviceRows.of(sparse, device)
    chosen = torch.tensor([5, 3, 3, 0], device=device)
    np.testing.assert_allclose(
        rows.take(chosen).product(dense).cpu(), sparse[[5, 3, 3, 0]] @ dense.cpu(), rtol=1e-5
    )
    other = dense[:6].contiguous()
    np.testing.assert_allclose(
        rows.transposed().product(other).cpu(), sparse.T @ other.cpu().numpy(), rtol=1e-5
    )
    used = torch.unique(rows.columns).long()
    np.testing.assert_allclose(
        rows.within(used).product(dense[used]).cpu(), sparse @ dense.cpu(), rtol=1e-5
    )


def trained(device, *, named, negatives="matched"):
    features = matrix(160, 60, density=0.15, seed=2)
    gold = matrix(160, 14, density=0.12, seed=3)
    gold.data[:] = 1
    names = matrix(60, 14, density=0.05, seed=4).tocsc() if named else None
    config = replace(CHECKED, negatives=negatives)
    return LinearTrainer(features, gold, config, names=names, device=device).fit()


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("named", [False, True])
def test_trains_the_weights_of_numpy(device, named, monkeypatch):
    monkeypatch.setattr(training_module, "DIRECT_LABELS", 3)
    expected, found = trained(None, named=named), trained(device, named=named)
    assert expected.weights.nnz > 100
    np.testing.assert_allclose(
        found.weights.toarray(), expected.weights.toarray(), atol=2e-4 + CHECKED.threshold * 0.02
    )
    np.testing.assert_allclose(found.biases, expected.biases, atol=2e-4)
    again = trained(device, named=named)
    np.testing.assert_array_equal(again.weights.data, found.weights.data)


def test_random_negatives_and_groups(monkeypatch):
    monkeypatch.setattr(training_module, "DIRECT_LABELS", 3)
    expected, found = (trained(device, named=False, negatives="random") for device in (None, "cpu"))
    assert found.groups is not None
    np.testing.assert_array_equal(found.groups.of, expected.groups.of)
    np.testing.assert_allclose(
        found.groups.weights.toarray(), expected.groups.weights.toarray(), atol=2e-4
    )
    np.testing.assert_allclose(found.biases, expected.biases, atol=2e-4)


def test_too_little_memory_is_met_by_the_cpu(monkeypatch, caplog):
    monkeypatch.setattr(training_module, "DIRECT_LABELS", 3)
    expected, calls = trained(None, named=False), []
    original = LinearTrainer._solve_on

    def full(self, texts, cluster):
        calls.append(cluster)
        if len(calls) == 3:
            raise torch.OutOfMemoryError("CUDA out of memory")
        return original(self, texts, cluster)

    monkeypatch.setattr(LinearTrainer, "_solve_on", full)
    found = trained("cpu", named=False)
    assert "too little memory" in caplog.text
    np.testing.assert_allclose(found.weights.toarray(), expected.weights.toarray(), atol=4e-4)


def scorer(*, grouped):
    weights, groups = matrix(60, 25, seed=5), None
    weights.data -= 0.5
    biases = np.random.default_rng(6).random(25, np.float32) - 0.5
    if grouped:
        of = np.random.default_rng(7).integers(-1, 4, (25, 2)).astype(np.int32)
        groups = LabelGroups(matrix(60, 4, density=0.5, seed=8), of)
    return LinearScorer(weights, biases, groups)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("grouped", [False, True])
def test_the_best_labels_are_those_of_the_cpu(products, device, grouped, monkeypatch):
    monkeypatch.setattr(device_scorer, "_CELLS", 50)
    features, model = matrix(4, 60, seed=9), scorer(grouped=grouped)
    features = csr_matrix(np.concatenate([features.toarray(), np.zeros((1, 60), np.float32)]))
    here, there = (np.random.default_rng(10).random(shape) < 0.3 for shape in (25, (5, 25)))
    for k, allowed in ((6, None), (30, None), (6, here), (12, there)):
        indices, scores = top_labels(model, features, k, allowed=allowed)
        found, values = DeviceScorer(model, device).top(features, k, allowed=allowed)
        np.testing.assert_array_equal(found, indices)
        np.testing.assert_allclose(values, scores, atol=1e-5)


def test_a_model_on_a_device_gives_the_same_labels(monkeypatch):
    train = corpus()
    model = SparseModel.fit(train, label_space(train), SMALL, threads=1)
    assert model.placed("cpu").device_scorer is None
    monkeypatch.setattr(torch_device_module, "torch_device", lambda device: "cpu")
    placed = model.placed("cuda")
    texts, prior = [*corpus(20, seed=1).texts(), "…"], np.arange(12, dtype=np.float32)
    allowed = np.arange(12) % 3 > 0
    for options in ({}, {"allowed": allowed, "prior": prior}):
        expected, found = (each.topk(texts, 5, **options) for each in (model, placed))
        np.testing.assert_array_equal(found[0], expected[0])
        np.testing.assert_allclose(found[1], expected[1], atol=1e-5)


def test_a_device_with_too_little_memory_scores_nothing(monkeypatch, caplog):
    def full(scorer, device):
        raise torch.OutOfMemoryError("CUDA out of memory")

    monkeypatch.setattr(device_scorer, "DeviceScorer", full)
    monkeypatch.setattr(torch_device_module, "torch_device", lambda device: "cpu")
    assert torch_device_module.scorer_on("cuda", scorer(grouped=False)) is None
    assert "words are scored on the CPU" in caplog.text


def test_ties_are_broken_by_label():
    values = torch.tensor([[0.0, 2.0, -0.0, -1.0, 2.0, -1.0]])
    assert device_scorer._largest(values, 6).tolist() == [[1, 4, 0, 2, 3, 5]]
    assert device_scorer._largest(values, 3).tolist() == [[1, 4, 0]]


def test_a_gpu_that_is_not_there():
    if torch.cuda.is_available():
        assert torch_device("auto") == "cuda"
        return
    assert torch_device("auto") is None
    assert torch_device("cpu") is None
    with pytest.raises(ConfigError, match="sees no GPU"):
        torch_device("cuda")
