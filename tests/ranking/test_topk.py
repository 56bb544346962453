import numpy as np
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from glocal.ranking.topk import RunningTopK, topk_of


@settings(deadline=None, max_examples=60)
@given(
    st.integers(1, 4),
    st.integers(1, 30),
    st.integers(1, 8),
    st.integers(1, 12),
    st.integers(0, 2**31),
)
def test_chunked_top_k_equals_a_stable_sort(rows, labels, k, chunk, seed):
    random = np.random.default_rng(seed)
    scores = random.integers(0, 4, (rows, labels)).astype(np.float32) / 3  # many ties
    running = RunningTopK(k)
    for start in range(0, labels, chunk):
        part = torch.from_numpy(scores[:, start : start + chunk])
        running.update(part, torch.arange(start, start + part.shape[1]))
    found = running.result()
    width = min(k, labels)
    order = np.argsort(-scores, axis=1, kind="stable")[:, :width]
    np.testing.assert_array_equal(found.indices.numpy(), order)
    np.testing.assert_array_equal(found.scores.numpy(), np.take_along_axis(scores, order, 1))


def test_labels_that_are_not_allowed_or_absent_come_out_empty():
    scores = torch.tensor([[0.9, 0.8, 0.0]])
    allowed = torch.tensor([False, True, True])
    found = topk_of(scores, torch.arange(3), 3, allowed)
    assert found.indices.tolist() == [[1, 2, -1]]
    torch.testing.assert_close(found.scores, torch.tensor([[0.8, 0.0, 0.0]]))
    found = topk_of(scores, torch.tensor([[2, -1, 0]]), 2)
    assert found.indices.tolist() == [[2, 0]]


def test_scores_survive_the_packing_exactly():
    scores = torch.tensor([[1.0, 0.1, 1e-38, 0.0, 0.3333333]])
    found = topk_of(scores, torch.arange(5), 5)
    assert found.indices.tolist() == [[0, 4, 1, 2, 3]]
    assert torch.equal(found.scores, scores[:, [0, 4, 1, 2, 3]])


def test_the_largest_label_that_fits_into_31_bits():
    labels = torch.tensor([2**31 - 1, 0, 5])
    scores = torch.tensor([[0.5, 0.5, 0.25]])
    found = RunningTopK(3)
    found.update(scores, labels)
    assert found.result().indices.tolist() == [[0, 2**31 - 1, 5]]  # ties go to the lower label


def test_labels_of_each_document_may_be_allowed_or_not():
    allowed = torch.tensor([True, False, True])
    found = topk_of(
        torch.tensor([[0.9, 0.8], [0.7, 0.6]]), torch.tensor([[1, 2], [0, -1]]), 2, allowed
    )
    assert found.indices.tolist() == [[2, -1], [0, -1]]
    torch.testing.assert_close(found.scores, torch.tensor([[0.8, 0.0], [0.7, 0.0]]))
    assert found.scores.dtype == torch.float32
    half = topk_of(torch.tensor([[0.5, 0.25]], dtype=torch.bfloat16), torch.arange(2), 1)
    assert half.scores.tolist() == [[0.5]]


def test_the_largest_label_may_score_zero():
    found = topk_of(torch.tensor([[0.0]]), torch.tensor([2**31 - 1]), 1)
    assert found.indices.tolist() == [[2**31 - 1]]
