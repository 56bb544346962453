"""Gradients of linear layers and layer norms against PyTorch's own."""

import pytest
import torch
from torch import nn

from glocal.encoders import lean_gradients
from glocal.encoders.lean_gradients import cast_together, use_lean_gradients

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
KIND = torch.bfloat16 if torch.cuda.is_available() else torch.float32


@pytest.fixture
def kernels(monkeypatch):
    """Used on the CPU too, by Triton's interpreter."""
    pytest.importorskip("triton", minversion="3.6" if DEVICE == "cuda" else "3.9")
    monkeypatch.setattr(lean_gradients, "runs_kernels", lambda *_: True)


@pytest.mark.gpu
@pytest.mark.skipif(DEVICE == "cpu", reason="needs a CUDA device")
def test_on_a_gpu_in_bf16(kernels):
    test_the_same_gradients(kernels, 700)


@pytest.mark.parametrize("tokens", [5, 300])
def test_the_same_gradients(kernels, tokens):
    torch.manual_seed(0)
    plain = nn.Sequential(nn.Linear(40, 200), nn.LayerNorm(200), nn.GELU(), nn.Linear(200, 30))
    nn.init.normal_(plain[1].weight)
    plain.to(DEVICE)
    ours = nn.Sequential(nn.Linear(40, 200), nn.LayerNorm(200), nn.GELU(), nn.Linear(200, 30))
    ours.load_state_dict(plain.state_dict())
    ours.to(DEVICE, KIND)
    use_lean_gradients(ours)
    states = torch.randn(2, tokens, 40, device=DEVICE, requires_grad=True)
    weights = torch.randn(2, tokens, 30, device=DEVICE)
    (plain(states) * weights).sum().backward()
    expected, states.grad = states.grad, None
    (ours(states.to(KIND)) * weights).sum().backward()
    close = {"rtol": 1e-4, "atol": 1e-3} if DEVICE == "cpu" else {"rtol": 0.05, "atol": 0.3}
    torch.testing.assert_close(states.grad, expected, **close)
    for (name, mine), theirs in zip(ours.named_parameters(), plain.parameters(), strict=True):
        error = (mine.grad.float() - theirs.grad).norm() / theirs.grad.norm()
        assert error < (1e-5 if DEVICE == "cpu" else 0.02), name


def test_elsewhere_the_layers_are_pytorchs_own():
    layer, norm = nn.Linear(3, 4), nn.LayerNorm(4)
    states = torch.randn(5, 3)
    expected = norm(layer(states))
    model = nn.Sequential(layer, norm)
    use_lean_gradients(model)
    assert model(states).equal(expected)
    assert list(model.state_dict()) == ["0.weight", "0.bias", "1.weight", "1.bias"]


def test_many_tensors_are_cast_together_and_so_are_their_gradients():
    tensors = [torch.randn(3, 2, requires_grad=True), torch.randn(5, requires_grad=True)]
    first, second = cast_together(tensors, torch.bfloat16)
    assert first.dtype == second.dtype == torch.bfloat16
    assert first.equal(tensors[0].bfloat16())
    (first.float() ** 2).sum().backward()
    torch.testing.assert_close(tensors[0].grad, (2 * first.float()).bfloat16().float())
    assert tensors[1].grad is None
