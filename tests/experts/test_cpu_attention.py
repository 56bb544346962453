"""Label attention's own backward pass against the formula in double precision."""

import pytest
import torch

from glocal.config import AttentionConfig
from glocal.experts import cpu_attention
from glocal.experts.label_attention import LabelAttentionExpert
from tests.experts.test_label_attention_kernel import SHAPES, errors, inputs, today


@pytest.mark.parametrize("shape", SHAPES)
def test_logits_and_gradients_are_as_exact_as_pytorchs(shape):
    arguments = inputs(shape)
    ours = errors(cpu_attention.label_attention, *arguments)
    theirs = errors(today, *arguments)
    assert max(ours) < 2e-6
    assert all(o <= 2 * t + 2e-7 for o, t in zip(ours, theirs, strict=True))


def test_a_second_backward_pass_is_refused_and_not_wrong():
    tensors, mask, gradient = inputs(SHAPES[0])
    leaves = [t.requires_grad_() for t in tensors]
    logits = cpu_attention.label_attention(*leaves, mask, scale=1.0)
    logits.backward(gradient, retain_graph=True)
    with pytest.raises(RuntimeError, match="inplace"):
        logits.backward(gradient)


@pytest.fixture
def calls(monkeypatch):
    """Count how often the function is used."""
    counted, attend = [], cpu_attention.label_attention
    monkeypatch.setattr(
        cpu_attention, "label_attention", lambda *a, **k: counted.append(1) or attend(*a, **k)
    )
    return counted


def test_training_on_a_cpu_takes_it_and_prediction_does_not(calls):
    torch.manual_seed(0)
    config = AttentionConfig(temperature=0.5)
    expert = LabelAttentionExpert(
        config, name="A-1", layer=1, hidden_size=64, n_labels=50, bias=None
    )
    keys, values = (torch.randn(3, 70, size) for size in (expert.key_size, config.hidden_size))
    state = keys, values, expert.mlp_out, torch.rand(3, 70) < 0.8
    trained = expert.score(state, expert.label_tensors())
    assert calls == [1]
    predicted = expert.eval().score(state, expert.label_tensors())
    torch.testing.assert_close(trained, predicted, rtol=1e-5, atol=1e-5)
    expert.train()
    own = torch.arange(12).view(3, 4)  # candidates of each text
    expert.score(state, tuple(t[own] for t in expert.label_tensors()))
    with torch.autocast("cpu", torch.bfloat16):
        expert.score(state, expert.label_tensors())
    assert calls == [1]
