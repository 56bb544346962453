"""The expert `T` against a dense implementation with loops, values and gradients."""

import math

import pytest
import torch
from torch.nn import functional

from glocal.encoders.encoder import Features
from glocal.experts.teacher import TeacherExpert
from glocal.losses.bce import bce_chunk
from glocal.losses.chunked import chunked_loss, label_chunks

L = 11
# Ordered by vote; 12 is a parent outside the label space; the last document has no scope.
SCOPE = torch.tensor([[3, 10, 0, 12], [7, -1, -1, -1], [-1, -1, -1, -1]], dtype=torch.int32)
VOTES = torch.tensor([[1.0, 0.4, 0.0, 0.0], [0.25, 0.0, 0.0, 0.0], [0.0, 0.0, 0.0, 0.0]])
GOLD = torch.tensor([[3, 1], [7, -1], [0, -1]])


@pytest.fixture
def expert():
    torch.manual_seed(0)
    found = TeacherExpert(name="T", bias=torch.randn(L) - 4.0)
    with torch.no_grad():
        found.numbers.copy_(torch.tensor([0.7, 0.3, -1.5, 0.2, -0.6]))
    return found


def features():
    return Features({}, None, companion_features={"scope": SCOPE, "scope_weight": VOTES})


def naive(expert):
    slope, offset, parent, share, background = expert.numbers
    rows = []
    for labels, votes in zip(SCOPE.tolist(), VOTES.tolist(), strict=True):
        found = dict(zip(labels, votes, strict=True))
        row = []
        for label, bias in enumerate(expert.bias):
            if label not in found:
                row.append(background + bias)
            elif found[label] == 0:
                row.append(parent + share * bias)
            else:
                vote = min(found[label], 0.99)
                row.append(slope * math.log(vote / (1 - vote)) + offset + share * bias)
        rows.append(torch.stack(row))
    return torch.stack(rows)


def test_log_odds_of_every_label_equal_the_naive_ones(expert):
    found = expert.logits(expert.prepare(features()), slice(0, L))
    torch.testing.assert_close(found, naive(expert))


@pytest.mark.parametrize("size", [1, 3, 4, 11])
def test_chunks_of_labels_equal_all_of_them(expert, size):
    state = expert.prepare(features())
    parts = [expert.logits(state, slice(i, min(i + size, L))) for i in range(0, L, size)]
    torch.testing.assert_close(torch.cat(parts, dim=1), naive(expert))


def test_candidates_of_each_document_equal_the_same_places_of_all(expert):
    labels = torch.tensor([[10, 0, 1, 3, 3], [7, 7, 0, 2, 10], [0, 1, 2, 3, 7]])
    found = expert.logits(expert.prepare(features()), labels)
    torch.testing.assert_close(found, naive(expert).gather(1, labels))


@pytest.mark.parametrize("limit", [1000, 9])
def test_gradients_of_the_chunked_loss_equal_the_naive_ones(expert, limit):
    chunks = label_chunks(L, documents=3, width=1, limit=limit)
    loss = chunked_loss(
        lambda chunk, state, rows: bce_chunk(expert.score(state, rows), GOLD, chunk.start),
        chunks,
        expert.prepare(features()),
        expert.label_tensors(),
    )
    targets = torch.zeros(3, L)
    for row, labels in enumerate(GOLD.tolist()):
        targets[row, [label for label in labels if label >= 0]] = 1.0
    logits = naive(expert)
    expected = functional.binary_cross_entropy_with_logits(logits, targets, reduction="sum")
    torch.testing.assert_close(loss, expected)
    parameters = [expert.bias, expert.numbers]
    for mine, other in zip(
        torch.autograd.grad(loss, parameters),
        torch.autograd.grad(expected, parameters),
        strict=True,
    ):
        torch.testing.assert_close(mine, other)


def test_it_reads_no_layer_and_its_label_numbers_are_not_stored(expert):
    assert expert.layers == ()
    assert set(expert.state_dict()) == {"bias", "numbers"}


def test_it_starts_with_the_votes_and_parents_far_below():
    expert = TeacherExpert(name="T", bias=torch.zeros(L))
    assert expert.numbers.tolist() == [1.0, 0.0, -3.0, 0.0, 0.0]
    assert expert.name == "T"
    assert expert.trained
    groups = expert.parameter_groups()
    assert {name: [id(p) for p in found] for name, found in groups.items()} == {
        "classifier": [id(expert.bias)],
        "mlp": [id(expert.numbers)],
    }
    torch.testing.assert_close(expert.suggestions(expert.prepare(features())), SCOPE.long())
