import numpy as np
import pytest
import torch
from torch.nn import functional

from glocal.heads.aplc import APLC, tail_width
from glocal.heads.frequency_clusters import cluster_priors, label_clusters
from glocal.label_slice import LabelSlice

COUNTS = np.array([3, 0, 14, 1, 60, 0, 2, 7, 1, 25, 4, 1, 2])
WIDTH = 8
GOLD = torch.tensor(
    [
        [4, 9, -1, -1],  # the head alone
        [2, 0, 6, 1],  # everything
        [5, -1, -1, -1],  # one tail alone, a label without training documents
        [-1, -1, -1, -1],  # nothing
        [-1, 12, -1, 8],
    ]
)
PARTITIONS = [(1.0,), (0.5, 0.5), (0.4, 0.3, 0.3), (0.1, 0.8, 0.1), (0.25,) * 4]


def build(partition, *, tail="official", bias=True, dtype=torch.float32):
    torch.manual_seed(0)
    clusters = label_clusters(COUNTS, partition)
    priors = cluster_priors(clusters, COUNTS, 100) if bias else None
    head = APLC(clusters, width=WIDTH, q=2.0, tail=tail, priors=priors)
    for parameter in head.parameters():
        torch.nn.init.normal_(parameter, std=0.7)
    return head.to(dtype)


def naive_logits(head, document, number):
    """Logits of a cluster straight from Figure 3."""
    cluster = head.cluster(number)
    for layer in cluster.project:
        document = layer(document)
    logits = document @ cluster.weight.T
    return logits if cluster.bias is None else logits + cluster.bias


def naive(head, document, gold):
    """Dense (B, L) losses of Eq. 2 and 5 with a mask of the visited labels, and the gates' own."""
    gates = document @ head.gates.weight.T
    gates = gates if head.gates.bias is None else gates + head.gates.bias
    ranks_of = head.order.argsort()
    targets = torch.zeros(len(document), len(COUNTS), dtype=document.dtype)
    for row, labels in enumerate(gold):
        targets[row, ranks_of[labels[labels >= 0]]] = 1
    losses, visited = torch.zeros_like(targets), torch.zeros_like(targets, dtype=torch.bool)
    absent = torch.zeros(len(document), head.n_tails, dtype=torch.bool)
    for number in range(head.n_tails + 1):
        span = slice(*head.bounds[number : number + 2])
        p = torch.sigmoid(naive_logits(head, document, number))
        if number:
            p = p * torch.sigmoid(gates[:, number - 1 : number])
            absent[:, number - 1] = targets[:, span].sum(1) == 0
        visited[:, span] = True if number == 0 else ~absent[:, number - 1 : number]
        losses[:, span] = functional.binary_cross_entropy(p, targets[:, span], reduction="none")
    return losses, visited, functional.softplus(gates), absent


@pytest.mark.parametrize("partition", PARTITIONS)
@pytest.mark.parametrize("tail", ["official", "plain"])
@pytest.mark.parametrize("skip", [True, False])
@pytest.mark.parametrize("limit", [1 << 20, 10])
def test_loss_and_gradients_equal_the_naive_dense_ones(partition, tail, skip, limit):
    head = build(partition, tail=tail, dtype=torch.float64)
    document = torch.randn(5, WIDTH, dtype=torch.float64, requires_grad=True)
    weights = torch.rand(5, dtype=torch.float64)
    tensors = [document, *head.parameters()]
    found = head.loss(document, GOLD, weights, limit=limit, skip_tails=skip)
    got = torch.autograd.grad(found, tensors)
    losses, visited, gate_losses, absent = naive(head, document, GOLD)
    rows = (losses * visited).sum(1) + (gate_losses * absent).sum(1)
    expected = (rows * weights).sum()
    wanted = torch.autograd.grad(expected, tensors, allow_unused=True)
    # The gates and the chunked sums are fp32 by design.
    torch.testing.assert_close(found.double(), expected, rtol=1e-5, atol=1e-5)
    for one, other in zip(got, wanted, strict=True):
        other = torch.zeros_like(one) if other is None else other
        torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-5)


def test_numbers_of_scored_labels():
    head = build((0.4, 0.3, 0.3))  # 5, 4 and 4 labels
    present = head.present(head.rank_gold(GOLD))
    assert present.tolist() == [[False] * 2, [True] * 2, [False, True], [False] * 2, [True, True]]
    assert head.n_scored(present, absent_gates=False).tolist() == [5, 13, 9, 5, 13]
    assert head.n_scored(present, absent_gates=True).tolist() == [7, 13, 10, 7, 13]


def test_a_tail_is_computed_only_for_documents_with_a_label_in_it():
    head = build((0.4, 0.3, 0.3))
    seen = []
    for number in (1, 2):
        head.cluster(number).project.register_forward_hook(
            lambda module, inputs, output: seen.append(len(inputs[0]))
        )
    head.loss(torch.randn(5, WIDTH), GOLD, torch.ones(5), limit=1000)
    assert seen == [2, 3]


def test_a_tail_nobody_needs_gives_zero_gradients_but_closes_its_gate():
    head = build((0.5, 0.5))
    gold = torch.tensor([[4, -1], [9, 2]])
    head.loss(torch.randn(2, WIDTH), gold, torch.ones(2), limit=1000).backward()
    assert all((p.grad == 0).all() for p in head.cluster(1).parameters())
    assert (head.gates.bias.grad > 0).all()


def test_half_precision_logits_give_an_fp32_loss():
    head = build((0.4, 0.3, 0.3))
    document = torch.randn(5, WIDTH)
    exact = head.loss(document, GOLD, torch.ones(5), limit=1000)
    with torch.autocast("cpu", torch.bfloat16):
        rounded = head.loss(document, GOLD, torch.ones(5), limit=1000)
    assert rounded.dtype == torch.float32
    torch.testing.assert_close(rounded, exact, rtol=0.02, atol=0.02)


@pytest.mark.parametrize("scale", [-200.0, 200.0])
def test_extreme_logits_keep_loss_and_gradients_finite(scale):
    head = build((0.4, 0.3, 0.3), tail="plain")
    with torch.no_grad():
        for cluster in [head.gates, *head.clusters]:
            cluster.bias.fill_(scale)
    document = torch.randn(5, WIDTH, requires_grad=True)
    loss = head.loss(document, GOLD, torch.ones(5), limit=1000)
    loss.backward()
    assert loss.isfinite()
    assert document.grad.isfinite().all()
    assert all(p.grad.isfinite().all() for p in head.parameters())


@pytest.mark.parametrize("partition", PARTITIONS)
def test_probabilities_follow_equation_2_by_label_id(partition):
    head = build(partition)
    document = torch.randn(5, WIDTH)
    gates = head.gate_probabilities(document)
    dense = torch.empty(5, len(COUNTS))
    for number in range(head.n_tails + 1):
        ids = head.order[slice(*head.bounds[number : number + 2])]
        gate = gates[:, number - 1 : number] if number else 1.0
        dense[:, ids] = torch.sigmoid(naive_logits(head, document, number)) * gate
    torch.testing.assert_close(head.probabilities(document, torch.arange(len(COUNTS))), dense)
    chosen = torch.randint(0, len(COUNTS), (5, 6))
    torch.testing.assert_close(head.probabilities(document, chosen), dense.gather(1, chosen))


def test_probabilities_start_at_the_training_frequencies():
    clusters = label_clusters(COUNTS, (0.4, 0.3, 0.3))
    head = APLC(clusters, width=WIDTH, priors=cluster_priors(clusters, COUNTS, 100))
    found = head.probabilities(torch.zeros(1, WIDTH), torch.arange(len(COUNTS)))[0]
    np.testing.assert_allclose(found.detach(), (COUNTS + 0.5) / 101, rtol=1e-5)


def test_tails_narrow_by_q_and_never_vanish():
    assert [tail_width(384, 2.0, t) for t in (1, 2, 3)] == [192, 96, 48]
    assert tail_width(4, 3.0, 5) == 1
    head = build((0.4, 0.3, 0.3), bias=False)
    shapes = [tuple(head.cluster(n).weight.shape) for n in range(3)]
    assert shapes == [(5, 8), (4, 4), (4, 2)]
    assert all("bias" not in n for n, _ in head.named_parameters() if "project" not in n)


def test_label_vectors_start_small_and_only_parameters_are_stored():
    torch.manual_seed(0)
    clusters = label_clusters(np.arange(2000, 0, -1), (0.5, 0.5))
    head = APLC(clusters, width=64)
    weight = head.cluster(0).weight.detach()
    assert float(weight.std()) == pytest.approx(0.02, rel=0.02)
    assert abs(float(weight.mean())) < 1e-3
    assert head.cluster(1).weight.shape == (1000, 32)  # by default each tail is half as wide
    names = {"clusters.1.project.0.weight", "clusters.1.project.1.weight"}
    names |= {"clusters.1.project.1.bias", "gates.weight"}
    names |= {f"clusters.{number}.weight" for number in range(2)}
    assert set(head.state_dict()) == names  # by default with a layer norm and without biases
    assert head.bounds == (0, 1000, 2000)
    assert head.sizes.tolist() == [1000.0]
    assert head.sizes.dtype == torch.float32


def test_one_cluster_has_no_tails():
    head = build((1.0,))
    assert head.n_tails == 0
    present = head.present(head.rank_gold(GOLD))
    assert present.shape == (5, 0)
    assert present.dtype == torch.bool
    assert head.gate_probabilities(torch.zeros(2, WIDTH)).shape == (2, 0)


def test_ranks_of_gold_labels_follow_frequency():
    head = build((0.5, 0.5))
    assert head.rank_gold(torch.tensor([[4, 9, -1], [2, 0, 1]])).tolist() == [
        [0, 1, -1],
        [2, 5, 11],
    ]


@pytest.mark.parametrize("partition", [(0.5, 0.5), (0.4, 0.3, 0.3)])
def test_log_odds_are_those_of_the_probabilities(partition):
    head = build(partition)
    document = torch.randn(5, WIDTH)
    labels = torch.arange(len(COUNTS))
    odds, p = head.log_odds(document, labels), head.probabilities(document, labels).double()
    torch.testing.assert_close(odds.double(), torch.log(p) - torch.log1p(-p), rtol=1e-4, atol=1e-4)
    chosen = torch.randint(0, len(COUNTS), (5, 6))
    torch.testing.assert_close(head.log_odds(document, chosen), odds.gather(1, chosen))


def test_probabilities_of_half_precision_layers_are_fp32():
    head = build((0.4, 0.3, 0.3))
    document, labels = torch.randn(5, WIDTH), torch.arange(len(COUNTS))
    exact = head.probabilities(document, labels)
    half = head.to(torch.bfloat16)
    for found in (
        half.probabilities(document.bfloat16(), labels),
        half.gate_probabilities(document.bfloat16()),
        half.log_odds(document.bfloat16(), labels),
    ):
        assert found.dtype == torch.float32
    found = half.probabilities(document.bfloat16(), labels)
    torch.testing.assert_close(found, exact, rtol=0.1, atol=0.05)
    assert len(found.unique()) > 60  # bf16 probabilities would tie


def test_chunks_of_a_loss_stay_within_the_limit(monkeypatch):
    asked = []

    def chunks(n_labels, *, documents, width, limit):
        asked.append((n_labels, documents, width, limit))
        return [slice(0, n_labels)]

    monkeypatch.setattr("glocal.heads.aplc.label_chunks", chunks)
    build((0.4, 0.3, 0.3)).loss(torch.randn(5, WIDTH), GOLD, torch.ones(5), limit=77)
    assert asked == [(5, 5, 1, 77), (4, 2, 1, 77), (4, 3, 1, 77)]


class Part(LabelSlice):
    """The labels of one of two processes: a third of each cluster, or the rest."""

    sharded = True

    def __init__(self, number):
        self.first = number == 0

    def bounds(self, n_labels):
        cut = n_labels // 3
        return (0, cut) if self.first else (cut, n_labels)

    def draw(self, n_labels, width, std):
        start, stop = self.bounds(n_labels)
        return torch.zeros(stop - start, width)


def part_of(head, partition, number):
    """The head as one of two processes has it, with the same weights."""
    clusters = label_clusters(COUNTS, partition)
    priors = cluster_priors(clusters, COUNTS, 100)
    part = APLC(clusters, width=WIDTH, priors=priors, here=Part(number)).to(torch.float64)
    state = head.state_dict()
    for place in range(head.n_tails + 1):
        rows = slice(*part.cluster(place).here)
        for name in ("weight", "bias"):
            state[f"clusters.{place}.{name}"] = state[f"clusters.{place}.{name}"][rows]
    part.load_state_dict(state)
    return part


@pytest.mark.parametrize("partition", PARTITIONS)
@pytest.mark.parametrize("skip", [True, False])
def test_two_slices_of_the_labels_sum_to_the_whole(partition, skip):
    head = build(partition, dtype=torch.float64)
    parts = [part_of(head, partition, number) for number in (0, 1)]
    document, weights = torch.randn(5, WIDTH).double(), torch.rand(5).double()
    options = {"limit": 10, "skip_tails": skip}
    whole = head.loss(document, GOLD, weights, **options)
    found = sum(part.loss(document, GOLD, weights, **options) for part in parts)
    torch.testing.assert_close(found, whole)
    # Each label is in one of them, padding in none, and has the same probability there.
    every = torch.arange(len(COUNTS))
    here = [part.is_here(every) for part in parts]
    assert (here[0] ^ here[1]).all()
    assert here[0].any()
    padded = torch.tensor([[4, -1]])
    assert not any(part.is_here(padded)[0, 1] for part in parts)
    for part, own in zip(parts, here, strict=True):
        exact = head.probabilities(document, every[own])
        torch.testing.assert_close(part.probabilities(document, every[own]), exact)


def test_slices_may_change_later():
    partition = (0.4, 0.3, 0.3)
    part = part_of(build(partition, dtype=torch.float64), partition, 1)
    part.use_slice(Part(0))
    assert all(part.cluster(n).here[0] == 0 for n in range(3))
    assert part.labels.first
