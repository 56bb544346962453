"""The fused label attention against the formula in double precision."""

from types import SimpleNamespace

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
@pytest.mark.parametrize(
    "shape",
    [
        (2, 30, 45, 32, 128, False),  # less than a tile of tokens
        (2, 30, 65, 32, 128, False),  # a tile and a token
        (1, 20, 300, 32, 128, False),
        (1, 20, 256, 32, 256, False),  # a whole tile of the last kernel
        (1, 600, 9, 32, 128, False),  # labels in several splits
    ],
)
def test_tiles_that_are_not_full_in_the_interpreter(shape):
    pytest.importorskip("triton", minversion="3.9", reason="older interpreters need NumPy < 2.4")
    assert max(errors(kernel.label_attention, *inputs(shape))) < 2e-6


@interpreted
def test_large_scores_in_the_interpreter():
    """The softmax is shifted by the largest score of tokens that are there."""
    pytest.importorskip("triton", minversion="3.9", reason="older interpreters need NumPy < 2.4")
    tensors, mask, _ = inputs((3, 20, 70, 32, 128, True))
    tensors[0] -= 10.0 * tensors[1].mean((0, 1))
    with torch.no_grad():
        found = kernel.label_attention(*tensors, mask, scale=20.0)
    expected = exact(*(t.double() for t in tensors), mask, scale=20.0)
    torch.testing.assert_close(found.double(), expected, rtol=1e-3, atol=1e-4)


@interpreted
def test_autocast_around_training_changes_no_product():
    pytest.importorskip("triton", minversion="3.9", reason="older interpreters need NumPy < 2.4")
    arguments = inputs((1, 20, 10, 32, 128, False))
    with torch.autocast("cpu", torch.bfloat16):
        assert max(errors(kernel.label_attention, *arguments)[1:]) < 2e-6


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


# --- where the kernel is used ----------------------------------------------------------------


@pytest.fixture
def gpu_memory(monkeypatch):
    """Pretend that there is a GPU with this much shared memory."""
    found = SimpleNamespace(shared_memory_per_block_optin=232_448)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: found)
    return found


def fits(*widths, device="cuda"):
    return kernel.fits.__wrapped__(*widths, torch.device(device))


def test_the_kernel_is_used_for_widths_it_has_tiles_for(gpu_memory):
    pytest.importorskip("triton")
    for keys in (32, 64, 128, 256):
        for values in (128, 256):
            assert fits(keys, values)
    assert not any(fits(keys, 128) for keys in (16, 33, 65, 129, 257, 512))
    assert not any(fits(64, values) for values in (64, 129, 257, 512))
    assert not fits(64, 128, device="cpu")


def test_the_kernel_needs_the_shared_memory_of_an_h100(gpu_memory):
    pytest.importorskip("triton")
    gpu_memory.shared_memory_per_block_optin = 232_447
    assert not fits(64, 128)


def test_without_triton_there_is_no_kernel(gpu_memory, monkeypatch):
    monkeypatch.setattr(kernel, "triton", None)
    assert not fits(64, 128)


def test_a_part_of_the_backward_pass_holds_half_a_gigabyte_in_fp32():
    assert 4 * kernel._PART_ELEMENTS == 2**29


def test_absent_tokens_score_so_low_that_no_exponential_survives():
    mask = torch.tensor([[True, False]])
    assert kernel._absent(mask, torch.zeros(1, 2, 3)).tolist() == [[0.0, pytest.approx(-1e30)]]
    assert kernel._absent(None, torch.zeros(1, 2, 3)) is None


def test_products_are_written_where_they_are_asked_for():
    left, right, out = torch.randn(3, 4), torch.randn(4, 2), torch.empty(3, 2)
    assert kernel._product(left, right, out) is out
    torch.testing.assert_close(out, left @ right)
    torch.testing.assert_close(kernel._product(left, right), left @ right)


class Launches:
    """Stands in for a kernel and records how it is launched."""

    def __init__(self):
        self.made = []

    def __getitem__(self, grid):
        return lambda *arguments, **settings: self.made.append((grid[0], arguments, settings))


@pytest.fixture
def launches(monkeypatch):
    pytest.importorskip("triton", minversion="3.9", reason="older interpreters need NumPy < 2.4")
    found = Launches()
    for name in ("_logits_kernel", "_score_gradients_kernel", "_gate_kernel"):
        monkeypatch.setattr(kernel, name, found)
    return found


def score(tokens, *, labels=300, keep=True):
    keys, values = torch.zeros(2, tokens, 32), torch.zeros(2, tokens, 256)
    query, weight = torch.zeros(labels, 32), torch.zeros(256)
    return kernel._score(query, keys, values, weight, None, scale=1.0, keep=keep)


def test_a_program_scores_128_labels_of_a_document_64_tokens_at_a_time(launches):
    logits, normaliser, signs = score(70)
    assert logits.shape == normaliser.shape == (2, 300)
    assert (signs.shape, signs.dtype) == ((2, 300, 8), torch.int32)
    score(128, labels=256)
    assert [grid for grid, _, _ in launches.made] == [3 * 2, 2 * 2]
    assert [settings["EVEN"] for _, _, settings in launches.made] == [False, True]
    for _, _, settings in launches.made:
        assert (settings["H"], settings["M"], settings["N"]) == (256, 128, 64)
        assert (settings["MASKED"], settings["KEEP"]) == (False, True)
        assert (settings["num_warps"], settings["num_stages"]) == (8, 2)


def test_without_gradients_no_signs_are_kept(launches):
    assert score(70, keep=False)[2].shape == (2, 0, 8)
    assert not launches.made[0][2]["KEEP"]


def test_gradients_of_scores_are_computed_by_the_same_tiles(launches):
    keys, values, query = torch.zeros(2, 70, 32), torch.zeros(2, 70, 128), torch.zeros(300, 32)
    results = torch.zeros(130, 2, 70), torch.zeros(130, 2, 70)
    signs = torch.zeros(2, 300, 4, dtype=torch.int32)
    saved = torch.zeros(128), None, torch.zeros(2, 300), torch.zeros(2, 300), signs, None
    kernel._score_gradients(query, keys, values, saved, results, start=170, scale=1.0)
    ((grid, _, settings),) = launches.made
    assert grid == 2 * 2
    assert settings == {
        "H": 128, "M": 128, "N": 64, "MASKED": False, "EVEN": False,
        "num_warps": 8, "num_stages": 2,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("shape", "width", "programs", "splits", "tokens"),
    [
        ((5000, 2, 512), 256, 132, 10, 256),  # at least eight tiles of labels for each split
        ((50_000, 2, 512), 256, 132, 16, 256),  # as many as the device runs at once
        ((5000, 2, 300), 128, 132, 10, 128),  # tiles of half the tokens waste less
        ((5000, 200, 512), 128, 132, 1, 256),
    ],
)
def test_labels_are_split_until_the_device_is_full(
    launches, monkeypatch, shape, width, programs, splits, tokens
):
    monkeypatch.setattr(kernel, "_programs", lambda _: programs)
    labels, documents, _ = shape
    signs = torch.zeros(1, 1, 1, dtype=torch.int32).expand(documents, labels, width // 32)
    total = torch.zeros(1, 1, 1).expand(documents, shape[2], width)
    sums = []
    monkeypatch.setattr(torch, "empty", lambda size, **_: sums.append(size) or torch.zeros(1))
    monkeypatch.setattr(kernel.Tensor, "add_", lambda self, other: self)
    kernel._gate(torch.zeros(1, 1, 1).expand(shape), signs, total, start=0)
    ((grid, arguments, settings),) = launches.made
    tiles = -(-shape[2] // tokens)
    assert grid == splits * documents * (width // 128) * tiles
    assert sums == [(splits, documents, shape[2], width)]
    per_split = arguments[-1]
    assert per_split % 64 == 0
    assert (splits - 1) * per_split < labels <= splits * per_split
    assert settings == {
        "H": width, "W": 128, "C": 64, "N": tokens, "EVEN": shape[2] % tokens == 0,
        "num_warps": 8, "num_stages": 4,
    }  # fmt: skip


def test_a_part_of_the_backward_pass_keeps_to_its_memory(monkeypatch):
    pytest.importorskip("triton", minversion="3.9", reason="older interpreters need NumPy < 2.4")
    parts, tensors = [], inputs((2, 30, 10, 32, 128, False))[0]
    monkeypatch.setattr(kernel, "_score_gradients", lambda *a, start, scale: None)
    monkeypatch.setattr(
        kernel, "_gate", lambda weights, *_, start: parts.append((start, weights.numel()))
    )
    leaves = [t.requires_grad_() for t in tensors]
    logits = kernel.label_attention(*leaves, None, scale=1.0)
    for limit, expected in (
        (160, [(0, 160), (8, 160), (16, 160), (24, 120)]),
        (1, [(label, 20) for label in range(30)]),  # never less than a label
        (10**6, [(0, 600)]),
    ):
        monkeypatch.setattr(kernel, "_PART_ELEMENTS", limit)
        torch.autograd.grad(logits, leaves, torch.ones_like(logits), retain_graph=True)
        assert parts == expected
        parts.clear()


def attention(**options):
    config = AttentionConfig(**{"key_size": 64, "hidden_size": 128, **options})
    return LabelAttentionExpert(
        config, name="A-1", layer=1, hidden_size=8, n_labels=3, bias=torch.zeros(3)
    )


def test_memory_per_label_is_the_wider_of_key_and_hidden_layer():
    assert attention().label_width == 128
    assert attention(key_size=200).label_width == 200
    assert attention(projections=False, hidden_size=5).label_width == 8


def test_with_the_kernel_a_label_takes_a_bit_per_hidden_unit(monkeypatch):
    expert = attention()
    monkeypatch.setattr(expert, "_fits", lambda: True)
    assert expert.label_width == 128  # without autocast the kernel is not used
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert expert.label_width == 8
        monkeypatch.setattr(expert, "_fits", lambda: False)
        assert expert.label_width == 128


def test_bf16_states_go_to_the_kernel_where_it_fits(monkeypatch):
    expert, asked = attention(temperature=0.5).eval(), []

    def label_attention(query, keys, values, output, mask, *, scale):
        asked.append((tuple(query.shape), scale))
        return torch.zeros(len(keys), len(query))

    monkeypatch.setattr(kernel, "label_attention", label_attention)
    monkeypatch.setattr(expert, "_fits", lambda: True)
    keys, values, output = torch.randn(2, 5, 64), torch.randn(2, 5, 128), torch.randn(128)
    rows = expert.query.detach(), torch.tensor([1.0, 2.0, 3.0])
    found = expert.score((keys.bfloat16(), values.bfloat16(), output, None), rows)
    assert found.tolist() == [[1, 2, 3], [1, 2, 3]]
    assert asked == [((3, 64), 2.0)]
    expert.score((keys, values, output, None), rows)  # fp32 is computed plainly
    own = rows[0].expand(2, 3, 64)
    expert.score((keys.bfloat16(), values.bfloat16(), output, None), (own,))
    monkeypatch.setattr(expert, "_fits", lambda: False)
    expert.score((keys.bfloat16(), values.bfloat16(), output, None), rows)
    assert len(asked) == 1
