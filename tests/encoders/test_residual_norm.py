"""Dropout, residual and layer norm in one kernel against transformers' modules."""

import copy

import pytest
import torch
from transformers import BertConfig
from transformers.models.bert.modeling_bert import BertOutput

from glocal.encoders import residual_norm
from glocal.encoders.residual_norm import fuse_residual_norms

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
KIND = torch.bfloat16 if torch.cuda.is_available() else torch.float32


@pytest.fixture
def kernels(monkeypatch):
    """Used on the CPU too, by Triton's interpreter."""
    pytest.importorskip("triton", minversion="3.6" if DEVICE == "cuda" else "3.9")
    monkeypatch.setattr(residual_norm, "runs_kernels", lambda *_: True)


def modules(dropout):
    torch.manual_seed(0)
    config = BertConfig(hidden_size=48, intermediate_size=20, hidden_dropout_prob=dropout)
    theirs = BertOutput(config).to(DEVICE, KIND)
    torch.nn.init.normal_(theirs.LayerNorm.weight)
    ours = copy.deepcopy(theirs)
    fuse_residual_norms(ours)
    assert isinstance(ours, BertOutput)
    assert ours.state_dict().keys() == theirs.state_dict().keys()
    return theirs, ours


def test_the_same_states_and_gradients(kernels):
    states = torch.randn(2, 37, 20, device=DEVICE)
    residual = torch.randn(2, 37, 48, device=DEVICE)
    weights = torch.randn(2, 37, 48, device=DEVICE)
    found = []
    for module in modules(0.0):
        inputs = [t.to(KIND).requires_grad_() for t in (states, residual)]
        output = module(*inputs)
        (output.float() * weights).sum().backward()
        gradients = [t.grad.float() for t in (*inputs, *module.parameters())]
        found.append([output.detach().float(), *gradients])
    theirs, ours = found
    for a, b in zip(ours, theirs, strict=True):
        assert (a - b).norm() / b.norm() < (1e-5 if DEVICE == "cpu" else 0.02)


@pytest.mark.gpu
@pytest.mark.skipif(DEVICE == "cpu", reason="needs a CUDA device")
def test_on_a_gpu_in_bf16(kernels):
    test_the_same_states_and_gradients(kernels)
    test_dropout_takes_its_share_and_gradients_know_the_mask(kernels)


def test_dropout_takes_its_share_and_gradients_know_the_mask(kernels):
    _, ours = modules(0.25)
    with torch.no_grad():  # then the output tells which units of the sum were dropped
        ours.dense.weight.zero_()
        ours.dense.bias.fill_(1.0)
        ours.LayerNorm.weight.fill_(1.0)
        ours.LayerNorm.bias.zero_()
    states = torch.zeros(1, 400, 20, device=DEVICE, dtype=KIND)
    residual = torch.zeros(1, 400, 48, device=DEVICE, dtype=KIND)
    ours.dense.bias.requires_grad_()
    output = ours(states, residual)
    kept = output > 0
    assert kept.float().mean().item() == pytest.approx(0.75, abs=0.02)
    again = ours(states, residual)
    assert not (again > 0).equal(kept)  # another call, another mask
    gradient = torch.randn_like(output)
    (d_bias,) = torch.autograd.grad(output, ours.dense.bias, gradient)
    total = torch.where(kept, 1 / 0.75, 0.0).requires_grad_()
    normed = torch.nn.functional.layer_norm(total, (48,))
    (slope,) = torch.autograd.grad(normed, total, gradient.float())
    expected = (slope * kept / 0.75).sum((0, 1))
    error = (d_bias.float() - expected).norm() / expected.norm()
    assert error < (1e-4 if DEVICE == "cpu" else 0.05)


def test_in_evaluation_and_elsewhere_nothing_changes():
    theirs, ours = modules(0.5)
    states = torch.randn(2, 5, 20, device=DEVICE, dtype=KIND)
    residual = torch.randn(2, 5, 48, device=DEVICE, dtype=KIND)
    with torch.no_grad():
        assert ours.eval()(states, residual).equal(theirs.eval()(states, residual))
