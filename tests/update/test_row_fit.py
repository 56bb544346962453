"""Label rows trained on what an expert made of texts."""

import numpy as np
import pytest
import torch
from torch.nn import functional

from glocal.config import AttentionConfig, DocumentConfig
from glocal.experts.document import DocumentExpert
from glocal.experts.label_attention import LabelAttentionExpert
from glocal.update import row_fit
from glocal.update.row_fit import Pace, ReadTexts, Rows, fit_rows, write_rows

N, K, H = 24, 5, 8


@pytest.fixture(params=["document", "attention"])
def expert(request):
    torch.manual_seed(0)
    bias = torch.zeros(K)
    common = {"hidden_size": H, "n_labels": K, "bias": bias}
    if request.param == "document":
        return DocumentExpert(DocumentConfig(), name="D-1", layers=(1,), **common).eval()
    config = AttentionConfig(key_size=4, hidden_size=6)
    return LabelAttentionExpert(config, name="A-1", layer=1, **common).eval()


def states(expert, n):
    """States of texts with three tokens each, in two batches."""
    hidden = torch.randn(n, 3, H)
    if isinstance(expert, DocumentExpert):
        every = expert.refine(hidden.mean(1))
    else:
        values = expert._folded_values(hidden)
        every = (expert.key(hidden), values, expert.mlp_out, torch.ones(n, 3, dtype=torch.bool))
    order = torch.randperm(n)

    def some(rows):
        return tuple(p if p is expert_output(expert) else p[rows].detach() for p in every)

    return [([some(rows)], rows) for rows in (order[: n // 2], order[n // 2 :])]


def expert_output(expert):
    return getattr(expert, "mlp_out", None)


def texts_of(expert, hold):
    target = (torch.rand(N, K) < 0.3).float()
    return ReadTexts(states(expert, N), target, torch.ones(N), torch.full((K,), hold))


def start_of(expert):
    return Rows([part.detach().clone() for part in expert.label_tensors()])


QUICK = Pace(rate=0.15, hold=1.0)


def loss(expert, texts, rows):
    total = 0.0
    for (state,), places in texts.batches:
        logits = expert.score(state, tuple(rows.parts))
        total += functional.binary_cross_entropy_with_logits(
            logits, texts.target[places], reduction="sum"
        ).item()
    return total


def test_loss_falls_and_rows_that_are_held_stay(expert):
    texts = texts_of(expert, 0.01)
    texts.hold[1] = torch.inf
    start = start_of(expert)
    found = fit_rows(expert, 0, start, texts, QUICK)
    assert loss(expert, texts, found) < 0.9 * loss(expert, texts, start)
    assert torch.equal(found.parts[0][1], start.parts[0][1])
    assert torch.equal(found.parts[1][1], start.parts[1][1])
    assert not torch.equal(found.parts[0][0], start.parts[0][0])


def test_strong_hold_keeps_vectors_near_their_start(expert):
    start, away = start_of(expert), []
    for hold in (0.01, 100.0):
        found = fit_rows(expert, 0, start, texts_of(expert, hold), QUICK)
        away.append((found.parts[0] - start.parts[0]).abs().max().item())
    assert away[1] < 0.3 * away[0]


def test_slow_pace_moves_rows_less(expert):
    start, texts = start_of(expert), texts_of(expert, 0.05)
    slow = fit_rows(expert, 0, start, texts, Pace(rate=0.02, hold=30.0))
    quick = fit_rows(expert, 0, start, texts, QUICK)
    for place, part in enumerate(start.parts):
        assert (slow.parts[place] - part).norm() < 0.4 * (quick.parts[place] - part).norm()
    assert loss(expert, texts, slow) < loss(expert, texts, start)


def test_few_texts_without_a_label_stand_for_all(expert, monkeypatch):
    texts = texts_of(expert, 0.05)
    every = fit_rows(expert, 0, start_of(expert), texts, QUICK)
    monkeypatch.setattr(row_fit, "_NEAREST", 4)
    monkeypatch.setattr(row_fit, "_OTHERS", 4)
    some = fit_rows(expert, 0, start_of(expert), texts, QUICK)
    start = loss(expert, texts, start_of(expert))
    assert loss(expert, texts, some) - loss(expert, texts, every) < 0.3 * (
        start - loss(expert, texts, every)
    )


def test_rows_are_written_in_their_places(expert):
    before = start_of(expert)
    rows = Rows([torch.ones_like(part[:2]) for part in before.parts])
    write_rows(expert, np.array([3, 1]), rows)
    vectors, bias = expert.label_tensors()
    assert torch.equal(vectors[[1, 3]], torch.ones(2, vectors.shape[1]))
    assert torch.equal(vectors[[0, 2, 4]], before.parts[0][[0, 2, 4]])
    assert torch.equal(bias[[1, 3]], torch.ones(2))
