import pytest
import torch

from glocal.heads.product import log_one_minus_product, log_product, product_bce


def exact_log_rest(a, b):
    """log(1 − p) in float64 by another way: 1 − p = σ(−a) + σ(a)·σ(−b), a sum of positives."""
    a, b = a.double(), b.double()
    p = torch.sigmoid(a) * torch.sigmoid(b)
    rest = torch.sigmoid(-a) + torch.sigmoid(a) * torch.sigmoid(-b)
    return torch.where(p < 0.5, torch.log1p(-p), torch.log(rest))


def exact_slope(a, b):
    """∂/∂b log(1 − p) = −p·σ(−b) / (1 − p) in float64."""
    a, b = a.double(), b.double()
    rest = torch.sigmoid(-a) + torch.sigmoid(a) * torch.sigmoid(-b)
    return -torch.sigmoid(a) * torch.sigmoid(b) * torch.sigmoid(-b) / rest


GRID = torch.tensor(
    [-200.0, -90.0, -30.0, -6.0, -1.0, 0.0, 0.88, 1.0, 6.0, 17.0, 30.0, 90.0, 200.0]
)


def test_extreme_logits_give_finite_values_and_gradients():
    a, b = (t.flatten().clone().requires_grad_() for t in torch.meshgrid(GRID, GRID, indexing="ij"))
    value = log_one_minus_product(a, b)
    torch.testing.assert_close(value.double(), exact_log_rest(a, b), rtol=1e-5, atol=1e-37)
    value.sum().backward()
    torch.testing.assert_close(b.grad.double(), exact_slope(a, b), rtol=1e-5, atol=1e-37)
    torch.testing.assert_close(a.grad.double(), exact_slope(b, a), rtol=1e-5, atol=1e-37)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_rare_labels_keep_their_digits(dtype):
    torch.manual_seed(0)
    a, b = ((torch.randn(100_000) * 3 - 6).to(dtype).requires_grad_() for _ in range(2))
    rest, log_p = log_one_minus_product(a, b), log_product(a, b)
    assert rest.dtype == log_p.dtype == torch.float32
    assert (rest < 0).all()
    torch.testing.assert_close(rest.double(), exact_log_rest(a, b), rtol=2e-6, atol=0)
    expected = torch.nn.functional.logsigmoid(a.double()) + torch.nn.functional.logsigmoid(
        b.double()
    )
    torch.testing.assert_close(log_p.double(), expected, rtol=2e-6, atol=0)
    (rest.sum() + 0 * log_p.sum()).backward()
    tolerance = 2e-6 if dtype == torch.float32 else 2**-8
    torch.testing.assert_close(b.grad.double(), exact_slope(a, b), rtol=tolerance, atol=0)
    torch.testing.assert_close(a.grad.double(), exact_slope(b, a), rtol=tolerance, atol=0)


def test_likely_labels_keep_their_digits():
    torch.manual_seed(0)
    a, b = torch.randn(100_000) * 4 + 5, torch.randn(100_000) * 4 + 5
    torch.testing.assert_close(
        log_one_minus_product(a, b).double(), exact_log_rest(a, b), rtol=2e-6, atol=0
    )


def test_gradients_pass_gradcheck_and_broadcast():
    torch.manual_seed(0)
    a = torch.randn(4, 1, dtype=torch.float64, requires_grad=True)
    b = (torch.randn(4, 7, dtype=torch.float64) * 3).requires_grad_()
    assert torch.autograd.gradcheck(log_one_minus_product, (a, b))
    assert torch.autograd.gradcheck(log_product, (a, b))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_product_bce_equals_a_dense_bce(dtype):
    torch.manual_seed(0)
    gates, logits = (torch.randn(*s).to(dtype).requires_grad_() for s in ((5,), (5, 11)))
    gold = torch.tensor([[0, 3, -1], [10, -1, -1], [-1, -1, -1], [11, 4, -7], [2, 30, -1]])
    weights = torch.rand(5)
    found = product_bce(gates, logits, gold, weights)
    dense = torch.zeros(5, 11, dtype=torch.float64)
    for row, column in [(0, 0), (0, 3), (1, 10), (3, 4), (4, 2)]:
        dense[row, column] = 1
    p = torch.sigmoid(gates.double()[:, None]) * torch.sigmoid(logits.double())
    expected = torch.nn.functional.binary_cross_entropy(p, dense, reduction="none").sum(1)
    expected = (expected * weights).sum()
    torch.testing.assert_close(found.double(), expected, rtol=1e-5, atol=1e-5)
    wanted = torch.autograd.grad(expected, (gates, logits))
    got = torch.autograd.grad(found, (gates, logits))
    tolerance = 1e-5 if dtype == torch.float32 else 1e-2
    for one, other in zip(got, wanted, strict=True):
        torch.testing.assert_close(one, other, rtol=tolerance, atol=tolerance)
