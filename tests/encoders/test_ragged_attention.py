"""Attention by the ends of texts against transformers' attention with a mask."""

import copy

import pytest
import torch
from torch.nn import functional
from transformers import AutoModel, BertConfig, MPNetConfig, RobertaConfig

from glocal.encoders import ragged_attention
from glocal.encoders.ragged_attention import sequence_ends, use_ragged_attention, without_mask

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
KIND = torch.bfloat16 if DEVICE == "cuda" else torch.float32
SHAPE = {
    "vocab_size": 50,
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 40,
    "hidden_dropout_prob": 0.0,
    "attention_probs_dropout_prob": 0.0,
}


def attend_in_turn(query, key, value, ends, *, longest, rate):
    """Sequence by sequence, as flash attention does on a GPU."""
    assert rate == 0
    assert longest >= ends.diff().max()
    parts = []
    for start, end in zip(ends[:-1].tolist(), ends[1:].tolist(), strict=True):
        own = [t[start:end].transpose(0, 1) for t in (query, key, value)]
        parts.append(functional.scaled_dot_product_attention(*own).transpose(0, 1))
    return torch.cat(parts)


@pytest.fixture
def kernels(monkeypatch):
    """Used on the CPU too: attention in turn, sums by Triton's interpreter."""
    pytest.importorskip("triton", minversion="3.6" if DEVICE == "cuda" else "3.9")
    if DEVICE == "cpu":
        monkeypatch.setattr(ragged_attention, "_flash", attend_in_turn)
        monkeypatch.setattr(ragged_attention, "runs_kernels", lambda *_: True)


def padded(lengths, width, *, left=False):
    mask = torch.arange(width) < torch.tensor(lengths)[:, None]
    return (mask.flip(1) if left else mask).to(DEVICE)


def test_ends_are_those_of_texts_and_padding():
    assert sequence_ends(padded([3, 4, 1], 4)).tolist() == [0, 3, 4, 8, 8, 9, 12]
    assert sequence_ends(padded([3, 4, 1], 4, left=True)).tolist() == [0, 1, 4, 8, 8, 11, 12]


@pytest.mark.parametrize("kind", [BertConfig, RobertaConfig])
@pytest.mark.parametrize("left", [False, True])
def test_the_same_states_and_gradients(kind, left, kernels):
    torch.manual_seed(0)
    theirs = AutoModel.from_config(kind(**SHAPE)).to(DEVICE, KIND).train()
    ours = copy.deepcopy(theirs)
    assert use_ragged_attention(ours)
    assert ours.state_dict().keys() == theirs.state_dict().keys()
    ids, mask = torch.randint(3, 50, (3, 24), device=DEVICE), padded([24, 5, 17], 24, left=left)
    weight = torch.randn(3, 24, 32, device=DEVICE) * mask[..., None]
    found = []
    for model in (theirs, ours):
        if model is ours:
            with without_mask(mask):
                states = model(input_ids=ids).last_hidden_state
        else:
            states = model(input_ids=ids, attention_mask=mask.long()).last_hidden_state
        (states.float() * weight).sum().backward()
        gradients = [p.grad.float() for p in model.parameters() if p.grad is not None]
        found.append([states.detach().float()[mask], *gradients])
    assert len(found[0]) == len(found[1])
    for a, b in zip(*found, strict=True):
        limit = 1e-5 if DEVICE == "cpu" else 0.03
        assert (a - b).norm() <= limit * max(1.0, b.norm().item())


@pytest.mark.gpu
@pytest.mark.skipif(DEVICE == "cpu", reason="needs a CUDA device")
def test_on_a_gpu_in_bf16(kernels):
    test_the_same_states_and_gradients(BertConfig, False, kernels)


def test_other_encoders_keep_their_mask():
    assert not use_ragged_attention(AutoModel.from_config(MPNetConfig(**SHAPE)))


def test_without_ends_nothing_changes():
    torch.manual_seed(0)
    model = AutoModel.from_config(BertConfig(**SHAPE)).eval()
    ids, mask = torch.randint(3, 50, (2, 6)), padded([6, 4], 6).cpu()
    with torch.no_grad():
        before = model(input_ids=ids, attention_mask=mask.long()).last_hidden_state
        use_ragged_attention(model)
        after = model(input_ids=ids, attention_mask=mask.long()).last_hidden_state
    assert after.equal(before)
