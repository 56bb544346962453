"""Which tails a search visits, for which documents, and in which order."""

import torch

from glocal.ranking.aplc_topk import aplc_topk
from tests.heads.test_aplc import COUNTS, WIDTH, build


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
