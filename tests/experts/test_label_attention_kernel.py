"""The fused label attention against the formula in double precision."""

import pytest
import torch
from torch.nn import functional

from glocal.config import AttentionConfig
from glocal.experts import label_attention_kernel as kernel
from glocal.experts.label_attention import LabelAttentionExpert

interpreted = pytest.mark.skipif(torch.cuda.is_available(), reason="Triton compiles on a GPU")
gpu = pytest.mark.skipif(
    not kernel.fits(256, 256, torch.device("cuda" if torch.cuda.is_available() else "cpu")),
    reason="needs Triton and a GPU with 227 KB of shared memory",
)
# documents, labels, tokens, width of the keys, width of the values, padding
SHAPES = [(2, 70, 64, 32, 128, False), (3, 150, 45, 64, 128, True), (2, 33, 130, 32, 256, True)]
LARGE = [
    (4, 1000, 256, 256, 256, True),
    (3, 777, 200, 256, 256, True),
    (2, 513, 512, 128, 128, False),
]


def inputs(shape, device="cpu"):
    documents, labels, tokens, key_width, width, padded = shape
    torch.manual_seed(tokens)
    sizes = (
        (labels, key_width),
        (documents, tokens, key_width),
        (documents, tokens, width),
        (width,),
    )
    tensors = [torch.randn(*size, device=device) for size in sizes]
    tensors[3] /= width**0.5
    mask = torch.ones(documents, tokens, dtype=torch.bool, device=device) if padded else None
    if mask is not None:  # on either side, and more than a tile of it
        mask[0, tokens // 3 :] = False
        mask[1, : tokens - tokens // 3] = False
    return tensors, mask, torch.randn(documents, labels, device=device)


def exact(query, keys, values, output, mask, *, scale):
    scores = torch.einsum("cd,btd->bct", query, keys) * scale
    if mask is not None:
        scores = scores.masked_fill(~mask[:, None, :], float("-inf"))
    return torch.relu(scores.softmax(-1) @ values) @ output


def today(query, keys, values, output, mask, *, scale):
    found = functional.scaled_dot_product_attention(
        query.to(keys.dtype).expand(len(keys), -1, -1).unsqueeze(1),
        keys.unsqueeze(1),
        values.unsqueeze(1),
        attn_mask=None if mask is None else mask[:, None, None, :],
        scale=scale,
    ).squeeze(1)
    return torch.relu(found) @ output.to(keys.dtype)


def errors(function, tensors, mask, gradient, *, scale=0.3):
    """Relative errors of the logits and of all gradients."""
    results = []
    for convert, run in ((torch.Tensor.double, exact), (torch.Tensor.clone, function)):
        leaves = [convert(t).requires_grad_() for t in tensors]
        logits = run(*leaves, mask, scale=scale)
        grads = torch.autograd.grad(logits, leaves, gradient.to(logits.dtype))
        results.append([logits.detach(), *grads])
    expected, found = results
    assert all(f.isfinite().all() for f in found)
    return [float((f - e).norm() / e.norm()) for f, e in zip(found, expected, strict=True)]


@interpreted
@pytest.mark.parametrize("shape", SHAPES)
def test_fp32_in_the_interpreter(shape, monkeypatch):
    pytest.importorskip("triton", minversion="3.9", reason="older interpreters need NumPy < 2.4")
    documents, _, tokens, *_ = shape
    monkeypatch.setattr(kernel, "_PART_ELEMENTS", 40 * documents * tokens)  # several parts
    assert max(errors(kernel.label_attention, *inputs(shape))) < 2e-6


@interpreted
def test_without_gradients_in_the_interpreter():
    pytest.importorskip("triton", minversion="3.9", reason="older interpreters need NumPy < 2.4")
    tensors, mask, _ = inputs(SHAPES[1])
    with torch.no_grad():
        found = kernel.label_attention(*tensors, mask, scale=0.3)
    torch.testing.assert_close(found, exact(*tensors, mask, scale=0.3), rtol=1e-4, atol=1e-5)


@pytest.mark.gpu
@gpu
@pytest.mark.parametrize("shape", LARGE)
def test_bf16_errs_at_most_twice_as_much_as_plain_attention(shape, monkeypatch):
    monkeypatch.setattr(kernel, "_PART_ELEMENTS", 300 * shape[0] * shape[2])
    tensors, mask, gradient = inputs(shape, "cuda")
    tensors[1:3] = [t.bfloat16() for t in tensors[1:3]]
    ours = errors(kernel.label_attention, tensors, mask, gradient)
    plain = errors(today, tensors, mask, gradient)
    assert all(a <= 2 * b for a, b in zip(ours, plain, strict=True)), (ours, plain)


@pytest.mark.gpu
@gpu
@pytest.mark.parametrize("training", [True, False])
def test_an_expert_takes_the_kernel_and_agrees_with_its_plain_path(training, monkeypatch):
    torch.manual_seed(0)
    expert = LabelAttentionExpert(
        AttentionConfig(), name="A-1", layer=1, hidden_size=64, n_labels=500, bias=torch.randn(500)
    )
    expert.cuda().train(training)
    keys, values = (torch.randn(3, 70, 256, device="cuda").bfloat16() for _ in range(2))
    mask = torch.rand(3, 70, device="cuda") < 0.8
    state = keys, values, expert.mlp_out, mask
    assert expert.label_width == 256
    with torch.autocast("cuda", torch.bfloat16):
        assert expert.label_width == 16
        fused = expert.score(state, expert.label_tensors())
        monkeypatch.setattr(kernel, "fits", lambda *_: False)
        plain = expert.score(state, expert.label_tensors())
    assert fused.dtype == torch.float32
    torch.testing.assert_close(fused, plain.float(), rtol=0.02, atol=0.02)


def test_what_fits():
    cpu = torch.device("cpu")
    assert not kernel.fits(256, 256, cpu)
    if torch.cuda.is_available():
        assert not kernel.fits(768, 256, torch.device("cuda"))
