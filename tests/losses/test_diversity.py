import itertools

import torch

from glocal.losses.diversity import bernoulli_kl, diversity


def direct(logits, counts, weights):
    """ME-XML Eq. 6–9 as written, with probabilities, in float64."""
    total = 0.0
    pairs = list(itertools.permutations(range(len(logits)), 2))
    for j, k in pairs:
        p, q = torch.sigmoid(logits[j]), torch.sigmoid(logits[k])
        scale = weights * (1 - torch.maximum(p, q).detach()) / counts
        kl = p * torch.log(p / q) + (1 - p) * torch.log((1 - p) / (1 - q))
        total = total - (scale * kl).sum()
    return total / len(pairs)


def test_equals_the_equations_with_gradients():
    torch.manual_seed(0)
    plain = [torch.randn(4, 3, dtype=torch.float64, requires_grad=True) for _ in range(3)]
    counts = torch.randint(1, 50, (4, 3)).double()
    weights = (torch.rand(4, 3) < 0.7).double()
    expected = direct(plain, counts, weights)
    grads = torch.autograd.grad(expected, plain)
    ours = [z.detach().float().requires_grad_() for z in plain]
    found = diversity(ours, counts.float(), weights.float())
    torch.testing.assert_close(found.double(), expected, rtol=1e-5, atol=1e-6)
    for grad, z in zip(grads, torch.autograd.grad(found, ours), strict=True):
        torch.testing.assert_close(z.double(), grad, rtol=1e-4, atol=1e-6)


def test_nothing_off_the_gold_labels():
    logits = [torch.randn(2, 3, requires_grad=True) for _ in range(2)]
    loss = diversity(logits, torch.ones(2, 3), torch.zeros(2, 3))
    assert loss.item() == 0.0
    assert all(not g.any() for g in torch.autograd.grad(loss, logits))


def test_kl_is_zero_for_equal_experts_and_finite_at_extremes():
    z = torch.tensor([-200.0, 0.0, 200.0])
    torch.testing.assert_close(bernoulli_kl(z, z), torch.zeros(3))
    assert torch.isfinite(bernoulli_kl(z, -z)).all()


def test_kl_is_that_of_bernoulli_distributions():
    torch.manual_seed(1)
    first, second = torch.randn(2, 50, dtype=torch.float64) * 3
    p, q = (torch.distributions.Bernoulli(logits=z) for z in (first, second))
    expected = torch.distributions.kl_divergence(p, q)
    torch.testing.assert_close(bernoulli_kl(first, second), expected)


def test_half_precision_logits_and_labels_without_texts_are_met():
    logits = [torch.tensor([[2.5, -1.0]]).bfloat16(), torch.tensor([[0.3, 4.0]]).bfloat16()]
    counts, weights = torch.tensor([[0.0, 3.0]]), torch.ones(1, 2)
    exact = [z.double() for z in logits]
    found = diversity(logits, counts, weights)
    assert found.dtype == torch.float32
    expected = direct(exact, counts.clamp(min=1).double(), weights.double())
    torch.testing.assert_close(found.double(), expected, rtol=1e-5, atol=1e-6)
