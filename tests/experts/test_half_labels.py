"""Candidates for one text, found by label vectors in half precision."""

import numpy as np
import pytest
import torch

from glocal.experts import half_labels
from glocal.systems.system import LabelStatistics
from tests.collating import collate
from tests.tiny import build_system, tiny_recipe

N_LABELS = 400


@pytest.fixture
def system(monkeypatch):
    monkeypatch.setattr(half_labels, "LEAST_LABELS", N_LABELS)
    torch.manual_seed(0)
    settings = ["candidates.mode=shortlist", "candidates.predict=8", "labels.text=off"]
    statistics = LabelStatistics(np.full(N_LABELS, 3), 400)
    built, tokenizer = build_system(tiny_recipe("glocalxml", *settings), statistics)
    with torch.no_grad():
        for parameter in built.experts.parameters():
            parameter.normal_(0.0, 0.5)
    built.tokenizer = tokenizer
    return built.eval()


def batch_of(system, *texts):
    tokens = [np.array(t) for t in system.tokenizer.encode_batch(texts, 24)]
    return collate(tokens, np.arange(len(texts)), pad_id=0, left=False)


def vectors(system):
    return system.proposer.weight


def best(system, monkeypatch, *, quick, allowed=None):
    least = N_LABELS if quick else N_LABELS + 1
    monkeypatch.setattr(half_labels, "LEAST_LABELS", least)
    return system.topk(batch_of(system, "a red dog"), 8, allowed=allowed).combined


def test_the_same_labels_and_scores(system, monkeypatch):
    quick, plain = (best(system, monkeypatch, quick=way) for way in (True, False))
    assert system._half_labels._kept is not None
    assert torch.equal(quick.indices, plain.indices)
    torch.testing.assert_close(quick.scores, plain.scores)


def test_labels_that_are_not_allowed_stay_out(system, monkeypatch):
    allowed = torch.arange(N_LABELS) % 50 == 0  # as many as are wanted
    quick = best(system, monkeypatch, quick=True, allowed=allowed)
    assert sorted(quick.indices[0].tolist()) == list(range(0, N_LABELS, 50))


def test_changed_vectors_are_rounded_again(system, monkeypatch):
    first = best(system, monkeypatch, quick=True)
    with torch.no_grad():
        vectors(system).copy_(-vectors(system))
    quick, plain = (best(system, monkeypatch, quick=way) for way in (True, False))
    assert torch.equal(quick.indices, plain.indices)
    assert not torch.equal(quick.indices, first.indices)


def test_huge_values_stay_finite(system, monkeypatch):
    with torch.no_grad():
        vectors(system)[7] = 1e5
    assert torch.isfinite(best(system, monkeypatch, quick=True).scores).all()


def test_several_texts_and_training_take_no_copy(system):
    system.topk(batch_of(system, "a red dog", "an owl"), 8)
    assert system._half_labels._kept is None
    document = torch.zeros(1, vectors(system).shape[1])
    assert system._half_labels.best(system.proposer, (document,), 4, None) is None  # gradients
