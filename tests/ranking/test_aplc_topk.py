"""Which tails a search visits, for which documents, and in which order."""

import pytest
import torch

from glocal.losses.memory import ChunkUse
from glocal.ranking.aplc_topk import aplc_topk
from tests.heads.test_aplc import COUNTS, WIDTH, build, part_of


def watched(gate_logits, **options):
    """A layer with these gates for every document, and the visits of its tails as they happen."""
    head, visits = build((0.4, 0.3, 0.3), tail="plain", **options), []
    with torch.no_grad():
        head.gates.weight.zero_()
        head.gates.bias.copy_(torch.tensor(gate_logits))
    for number in (1, 2):
        head.cluster(number).project.register_forward_hook(
            lambda _module, inputs, _output, number=number: visits.append((number, len(inputs[0])))
        )
    return head, visits


@torch.no_grad()
def search(head, k=3, **options):
    torch.manual_seed(1)
    return aplc_topk(head, torch.randn(4, WIDTH), k, **options)


def test_tails_that_cannot_reach_the_best_labels_are_skipped():
    head, visits = watched([-30.0, -30.0])
    search(head)
    assert visits == []
    search(head, prune=False)
    assert sorted(visits) == [(1, 4), (2, 4)]


def test_the_likeliest_tail_comes_first_and_may_close_the_others():
    head, visits = watched([-1.0, 30.0])
    with torch.no_grad():
        head.cluster(0).bias.fill_(-30.0)
        head.cluster(2).bias.fill_(30.0)  # three labels of it are certain
    found = search(head)
    assert visits == [(2, 4)]
    assert set(found.indices.flatten().tolist()) <= set(head.order[9:].tolist())
    head, visits = watched([30.0, 29.0])
    search(head)
    assert [number for number, _ in visits] == [1, 2]


def test_only_documents_that_may_gain_visit_a_tail():
    head, visits = watched([0.0, -30.0])
    with torch.no_grad():
        head.gates.weight[0, 0] = 60.0  # the first number of a document opens the first tail
        document = torch.zeros(4, WIDTH)
        document[:, 0] = torch.tensor([1.0, -1.0, 1.0, -1.0])
        found = aplc_topk(head, document, 2)
    assert visits == [(1, 2)]
    assert found.indices.shape == (4, 2)


def test_as_many_labels_as_there_are_and_no_more():
    head, _ = watched([1.0, 1.0])
    found = search(head, k=50)
    assert found.indices.sort(1).values.tolist() == [list(range(len(COUNTS)))] * 4
    torch.manual_seed(1)
    expected = head.probabilities(torch.randn(4, WIDTH), torch.arange(len(COUNTS)))
    torch.testing.assert_close(found.scores, expected.sort(1, descending=True).values.detach())


def test_an_empty_place_is_free_for_every_tail():
    head, visits = watched([-30.0, -30.0])
    allowed = torch.zeros(len(COUNTS), dtype=torch.bool)
    allowed[head.order[-1]] = True
    found = search(head, k=1, allowed=allowed)
    assert found.indices.tolist() == [[int(head.order[-1])]] * 4
    assert sorted(visits) == [(1, 4), (2, 4)]


@torch.no_grad()
@pytest.mark.parametrize("number", [0, 1])
def test_a_slice_of_the_labels_is_searched_like_the_whole(number):
    partition = (0.4, 0.3, 0.3)
    head = build(partition, dtype=torch.float64)
    document = torch.randn(
        4, WIDTH, dtype=torch.float64, generator=torch.Generator().manual_seed(1)
    )
    part, k = part_of(head, partition, number), len(COUNTS)
    here = torch.cat([
        head.order[head.bounds[place] + torch.arange(*part.cluster(place).here)]
        for place in range(head.n_tails + 1)
    ])  # fmt: skip
    allowed = torch.zeros(k, dtype=torch.bool)
    allowed[here] = True
    expected = aplc_topk(head, document, len(here), allowed=allowed)
    found = aplc_topk(part, document, k)
    assert torch.equal(found.indices[:, : len(here)], expected.indices)
    assert torch.equal(found.scores[:, : len(here)], expected.scores)
    assert (found.indices[:, len(here) :] == -1).all()


def test_labels_of_a_cluster_are_scored_within_the_memory_limit(monkeypatch):
    head, _ = watched([1.0, 1.0])
    expected, sizes = search(head, k=5), []
    monkeypatch.setattr(ChunkUse, "limit", lambda use, device: 8)
    for number in range(3):
        cluster = head.cluster(number)
        score = cluster.logits

        def logits(inner, chunk, score=score):
            found = score(inner, chunk)
            sizes.append(found.numel())
            return found

        monkeypatch.setattr(cluster, "logits", logits)
    found = search(head, k=5)
    assert torch.equal(found.indices, expected.indices)
    assert max(sizes) == 8  # four documents, two labels
