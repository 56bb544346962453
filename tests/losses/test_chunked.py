import pytest
import torch
from torch.nn import functional

from glocal.losses.bce import bce_candidates, bce_chunk
from glocal.losses.chunked import chunked_loss, label_chunks


def padded_gold(dense):
    rows = [row.nonzero()[:, 0] for row in dense]
    return torch.nn.utils.rnn.pad_sequence(rows, batch_first=True, padding_value=-1)


def test_chunks_cover_the_labels_once_and_stay_within_memory():
    chunks = label_chunks(1000, documents=8, width=16, limit=8 * 16 * 300)
    assert [c.start for c in chunks] == [0, 250, 500, 750]
    assert chunks[-1].stop == 1000
    assert label_chunks(5, documents=64, width=256, limit=1) == [slice(i, i + 1) for i in range(5)]


def test_bce_of_all_chunks_equals_the_dense_bce():
    torch.manual_seed(0)
    logits = torch.randn(6, 50) * 5
    dense = (torch.rand(6, 50) < 0.1).float()
    gold = padded_gold(dense)
    parts = [bce_chunk(logits[:, s : s + 17], gold, s) for s in range(0, 50, 17)]
    expected = functional.binary_cross_entropy_with_logits(logits, dense, reduction="sum")
    torch.testing.assert_close(torch.stack(parts).sum(), expected, rtol=1e-5, atol=1e-4)


def test_bce_is_finite_at_extreme_logits():
    logits = torch.tensor([[200.0, -200.0]], requires_grad=True)
    loss = bce_chunk(logits, torch.tensor([[1, -1]]), 0)
    loss.backward()
    assert loss.item() == pytest.approx(400.0)
    torch.testing.assert_close(logits.grad, torch.tensor([[1.0, -1.0]]))


def test_weighted_candidates_equal_a_weighted_bce():
    torch.manual_seed(0)
    logits, targets, weights = torch.randn(3, 7), (torch.rand(3, 7) < 0.5).float(), torch.rand(3, 7)
    expected = functional.binary_cross_entropy_with_logits(
        logits, targets, weight=weights, reduction="sum"
    )
    torch.testing.assert_close(bce_candidates(logits, targets, weights), expected)


@pytest.mark.parametrize("form", ["chunk", "candidates"])
def test_bce_of_bf16_logits_is_computed_in_fp32(form):
    torch.manual_seed(0)
    rounded = (torch.randn(4, 300) * 3).bfloat16()
    dense = (torch.rand(4, 300) < 0.1).float()
    weights = torch.rand(4, 300) if form == "candidates" else torch.ones(4, 300)
    exact = functional.binary_cross_entropy_with_logits(
        rounded.double(), dense.double(), weight=weights.double(), reduction="sum"
    )
    if form == "candidates":
        found = bce_candidates(rounded, dense, weights)
    else:
        found = bce_chunk(rounded, padded_gold(dense), 0)
    assert found.dtype == torch.float32
    assert found.item() == pytest.approx(exact.item(), rel=1e-6)


@pytest.mark.parametrize("size", [3, 7, 20])
def test_chunked_gradients_equal_plain_ones(size):
    torch.manual_seed(0)
    state = torch.randn(4, 5, dtype=torch.float64, requires_grad=True)
    weight = torch.randn(20, 5, dtype=torch.float64, requires_grad=True)
    bias = torch.randn(20, dtype=torch.float64, requires_grad=True)

    def loss(chunk, states, rows):
        assert states[1] is None
        z = torch.tanh(states[0]) @ rows[0].T + rows[1]
        return (z**2 * (1 + chunk.start)).sum()

    chunks = [slice(i, min(i + size, 20)) for i in range(0, 20, size)]
    value = chunked_loss(loss, chunks, [state, None], [weight, bias])
    (3.0 * value).backward()
    found = [t.grad.clone() for t in (state, weight, bias)]
    for tensor in (state, weight, bias):
        tensor.grad = None
    plain = sum(loss(c, [state, None], [weight[c], bias[c]]) for c in chunks)
    (3.0 * plain).backward()
    torch.testing.assert_close(value, plain.detach(), check_dtype=False, rtol=1e-5, atol=1e-5)
    for grad, tensor in zip(found, (state, weight, bias), strict=True):
        torch.testing.assert_close(grad, tensor.grad, rtol=1e-5, atol=1e-5)


def test_tensors_without_gradient_get_none():
    frozen = torch.randn(3, 2)
    weight = torch.randn(4, 2, requires_grad=True)
    chunks = [slice(0, 2), slice(2, 4)]
    value = chunked_loss(lambda c, s, r: (s[0] @ r[0].T).sum(), chunks, [frozen], [weight])
    value.backward()
    assert frozen.grad is None
    torch.testing.assert_close(weight.grad, frozen.sum(0).expand(4, 2))


def test_many_chunks_add_up_in_fp32_where_the_state_is_bf16():
    # In bf16 a sum of ones stops at 256, where the next number is 258.
    state = torch.ones(1, 1, dtype=torch.bfloat16, requires_grad=True)
    weight = torch.ones(1000, 1, dtype=torch.bfloat16, requires_grad=True)
    chunks = [slice(i, i + 1) for i in range(1000)]
    value = chunked_loss(lambda c, s, r: (s[0] @ r[0].T).sum(), chunks, [state], [weight])
    value.backward()
    assert value.dtype == torch.float32
    assert value.item() == 1000.0
    assert state.grad.item() == 1000.0
    assert state.grad.dtype == torch.bfloat16
    assert (weight.grad == 1.0).all()


def test_one_document_of_width_one_fills_the_limit():
    assert label_chunks(10, documents=1, width=1, limit=5) == [slice(0, 5), slice(5, 10)]


def test_gradients_of_bf16_logits_are_computed_in_fp32():
    # In bf16 the sigmoid of 8 is 1, and its gradient for a gold label would be 0.
    logits = torch.full((1, 1), 8.0, dtype=torch.bfloat16, requires_grad=True)
    bce_chunk(logits, torch.tensor([[0]]), 0).backward()
    expected = torch.sigmoid(torch.tensor(8.0)) - 1
    torch.testing.assert_close(logits.grad.float().squeeze(), expected, rtol=1e-2, atol=0)


def test_row_updates_get_the_gradient_of_each_chunk_at_once():
    torch.manual_seed(0)
    state = torch.randn(3, 2, requires_grad=True)
    weight, bias = torch.randn(5, 2, requires_grad=True), torch.randn(5, requires_grad=True)
    unused = torch.randn(5, requires_grad=True)
    given = []
    chunks = [slice(0, 3), slice(3, 5)]

    def loss(chunk, states, rows):
        return ((states[0] @ rows[0].T + rows[1]) ** 2).sum()

    def update(chunk, gradient):
        given.append((chunk, gradient.clone()))

    updates = [update, None, update, None]
    frozen = [weight, bias, unused, None]
    value = chunked_loss(loss, chunks, [state], frozen, updates=updates)
    value.backward()
    plain = ((state.detach() @ weight.T + bias) ** 2).sum()
    expected = torch.autograd.grad(plain, (weight, bias))
    assert [chunk for chunk, _ in given] == chunks  # a tensor without gradient is not updated
    torch.testing.assert_close(torch.cat([gradient for _, gradient in given]), expected[0])
    torch.testing.assert_close(bias.grad, expected[1])
    assert weight.grad is None
    given.clear()
    chunked_loss(loss, [slice(0, 5)], [state], frozen, updates=updates)  # one chunk too
    assert len(given) == 1


def test_label_tensors_that_a_loss_does_not_use_get_zeros():
    weight, unused = torch.ones(4, 2, requires_grad=True), torch.ones(4, requires_grad=True)
    chunks = [slice(0, 2), slice(2, 4)]
    chunked_loss(lambda c, s, r: r[0].sum(), chunks, [], [weight, unused]).backward()
    assert (weight.grad == 1).all()
    assert not unused.grad.any()


def test_a_single_chunk_is_left_to_autograd():
    weight = torch.ones(4, 2, requires_grad=True)
    asked = []
    value = chunked_loss(
        lambda c, s, r: asked.append(r[0]) or r[0].sum(), [slice(0, 4)], [], [weight]
    )
    assert asked[0] is weight
    assert value.requires_grad
