"""What a mixture's experts come to together, whichever way the labels are scored."""

import warnings

import numpy as np
import pytest
import torch

from glocal.ranking.combination import Combination
from glocal.ranking.expert_topk import ExpertRanker, deduplicate
from glocal.systems.system import LabelStatistics
from tests.collating import collate
from tests.tiny import build_system, tiny_recipe

COUNTS = np.array([50, 1, 0, 7, 300, 2, 2, 19, 1, 88])  # one label without a training text
COMBINATION = Combination({"D-last": 0.8, "A-1": 0.3}, -0.5, -0.6)
WAYS = {
    "full": ("candidates.mode=full",),
    "in chunks": ("candidates.mode=full", "train.chunk_elements=200"),
    "shortlist": ("candidates.mode=shortlist", "candidates.predict=10"),
    "clusters": ("document.head=aplc", "candidates.mode=full"),
    "clusters, shortlist": (
        "document.head=aplc",
        "candidates.mode=shortlist",
        "candidates.predict=10",
    ),
}


def build(*overrides):
    """A mixture with weights that differ from label to label, and a batch."""
    torch.manual_seed(0)
    statistics = LabelStatistics(COUNTS, 400)
    system, tokenizer = build_system(tiny_recipe("glocalxml", *overrides), statistics)
    with torch.no_grad():
        for parameter in system.experts.parameters():
            parameter.normal_(0.0, 0.5)
    texts = ["a red dog", "an owl", "the bee and the hen"]
    tokens = [np.array(t) for t in tokenizer.encode_batch(texts, 24)]
    return system.eval(), collate(tokens, np.arange(3), pad_id=0, left=False)


@torch.no_grad()
def expected_scores(system, batch):
    """(B, L) by the formula."""
    logits = system.expert_logits(system.prepare(batch), slice(0, len(COUNTS)))
    log_counts = torch.from_numpy(np.log(np.maximum(COUNTS, 1))).float()
    total = 0.8 * logits["D-last"] + 0.3 * logits["A-1"] - 0.6 * log_counts - 0.5
    return torch.sigmoid(total)


@pytest.mark.parametrize("way", WAYS)
def test_scores_follow_the_formula(way):
    system, batch = build(*WAYS[way])
    plain = system.topk(batch, 10).combined
    system.combination = COMBINATION
    found = system.topk(batch, 10).combined
    scores = expected_scores(system, batch)
    torch.testing.assert_close(found.scores, scores.sort(1, descending=True).values)
    torch.testing.assert_close(scores.gather(1, found.indices), found.scores)
    assert not torch.equal(found.indices, plain.indices)


@pytest.fixture
def short_chunks(monkeypatch):
    """Labels are scored three at a time."""
    few = [slice(start, min(start + 3, len(COUNTS))) for start in range(0, len(COUNTS), 3)]
    monkeypatch.setattr("glocal.systems.mixture.label_chunks", lambda *_, **__: few)


@pytest.mark.usefixtures("short_chunks")
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("forbidden", [range(1, 10, 2), range(3, 10), range(7)])
def test_labels_that_are_not_allowed_come_out_of_no_chunk(way, forbidden):
    system, batch = build(*WAYS[way])
    allowed = torch.ones(len(COUNTS), dtype=torch.bool)
    allowed[list(forbidden)] = False
    n_allowed = int(allowed.sum())
    every = system.topk(batch, 10, experts=system.expert_names)
    found = system.topk(batch, 10, allowed=allowed, experts=system.expert_names)
    pairs = [(every.combined, found.combined)]
    pairs += [(every.experts[name], found.experts[name]) for name in system.expert_names]
    for full, best in pairs:
        for row in range(len(batch)):
            order = [label for label in full.indices[row].tolist() if allowed[label]]
            assert best.indices[row, :n_allowed].tolist() == order
        assert (best.indices[:, n_allowed:] == -1).all()
        assert (best.scores[:, n_allowed:] == 0).all()


@pytest.mark.usefixtures("short_chunks")
@pytest.mark.parametrize("way", WAYS)
def test_a_shortlist_has_room_for_allowed_labels_only(way):
    system, batch = build(*WAYS[way], "candidates.predict=3")
    allowed = torch.zeros(len(COUNTS), dtype=torch.bool)
    allowed[[2, 6, 9]] = True
    found = system.topk(batch, 3, allowed=allowed).combined
    assert found.indices.sort(1).values.tolist() == [[2, 6, 9]] * len(batch)


def test_candidates_that_are_not_allowed_are_skipped():
    system, batch = build(*WAYS["full"])
    allowed = torch.arange(len(COUNTS)) != 4
    candidates = torch.tensor([[4, 2, 9], [8, -1, 4], [4, 4, 4]])
    found = system.topk(batch, 3, candidates=candidates, allowed=allowed).combined
    assert found.indices.sort(1).values.tolist() == [[-1, 2, 9], [-1, -1, 8], [-1, -1, -1]]


@pytest.mark.parametrize("way", WAYS)
def test_candidates_are_scored_as_among_all_labels(way):
    system, batch = build(*WAYS[way])
    system.combination = COMBINATION
    scores = expected_scores(system, batch)
    candidates = torch.tensor([[4, 2, 9], [8, -1, 0], [-1, -1, 7]])
    found = system.topk(batch, 3, candidates=candidates).combined
    for row, asked in enumerate(candidates.tolist()):
        filled = found.indices[row] >= 0
        labels, given = found.indices[row][filled].tolist(), found.scores[row][filled].tolist()
        kept = dict(zip(labels, given, strict=True))
        assert kept.keys() == {label for label in asked if label >= 0}
        for label, score in kept.items():
            assert score == pytest.approx(float(scores[row, label]), rel=1e-5)


def test_experts_by_themselves_know_nothing_of_the_frequency():
    system, batch = build(*WAYS["full"])
    before = system.topk(batch, 10, experts=system.expert_names)
    system.combination = COMBINATION
    after = system.topk(batch, 10, experts=system.expert_names)
    for name in system.expert_names:
        assert torch.equal(before.experts[name].indices, after.experts[name].indices)
        assert torch.equal(before.experts[name].scores, after.experts[name].scores)


@pytest.mark.parametrize("way", WAYS)
def test_the_mean_of_probabilities_beside_what_the_weights_say(way):
    system, batch = build(*WAYS[way])
    plain = system.topk(batch, 10).combined
    system.combination = COMBINATION
    found = system.topk(batch, 10, mean=True)
    assert found.experts == {}
    assert system.topk(batch, 10).mean is None
    assert torch.equal(found.mean.indices, plain.indices)
    assert torch.equal(found.mean.scores, plain.scores)
    assert not torch.equal(found.combined.scores, plain.scores)


# --- a ranker of given logits -----------------------------------------------------------------


class Given(ExpertRanker):
    """Two experts with the same logits, a shortlist, and chunks of two labels."""

    def __init__(self, logits, listed, counts):
        super().__init__()
        self.table, self.listed, self.counts = logits, listed, torch.tensor(counts)
        self.n_labels, self.expert_names = logits.shape[1], ["a", "b"]

    chunking = None

    def prepare(self, batch):
        return None

    def chunks(self, documents, device):
        return [slice(i, min(i + 2, self.n_labels)) for i in range(0, self.n_labels, 2)]

    def shortlist(self, batch, states, k, allowed):
        return self.listed

    def expert_logits(self, states, labels):
        rows = self.table[:, labels] if isinstance(labels, slice) else self.table.gather(1, labels)
        return {"a": rows, "b": rows}


def given(listed):
    logits = torch.logit(torch.tensor([[0.2, 0.9, 0.4, 0.8, 0.6]]))
    batch = collate([np.array([1])], np.arange(1), pad_id=0, left=False)
    return Given(logits, None if listed is None else torch.tensor([listed]), [3, 0, 9, 4, 7]), batch


def test_labels_outside_a_shortlist_follow_by_frequency_below_its_last():
    ranker, batch = given([3, 1])
    found = ranker.topk(batch, 5, experts=["b"], mean=True)
    for best in (found.combined, found.experts["b"], found.mean):
        assert best.indices.tolist() == [[1, 3, 2, 4, 0]]
        shares = [10 / 11, 8 / 11, 4 / 11]
        expected = [0.9, 0.8, *(0.8 * share for share in shares)]
        torch.testing.assert_close(best.scores, torch.tensor([expected]))
    assert list(found.experts) == ["b"]


def test_a_shortlist_that_suffices_is_not_filled():
    ranker, batch = given([3, 1])
    assert ranker.topk(batch, 2).combined.indices.tolist() == [[1, 3]]
    ranker, batch = given([3, -1])
    assert ranker.topk(batch, 2).combined.indices.tolist() == [[3, -1]]
    found = ranker.topk(batch, 3).combined
    assert found.indices.tolist() == [[3, 2, 4]]
    torch.testing.assert_close(found.scores, torch.tensor([[0.8, 8 / 11, 6.4 / 11]]))


def test_labels_that_are_not_allowed_do_not_fill_a_shortlist():
    ranker, batch = given([3, 1])
    allowed = torch.tensor([True, True, False, True, True])
    found = ranker.topk(batch, 5, allowed=allowed).combined
    assert found.indices.tolist() == [[1, 3, 4, 0, -1]]


def test_candidates_that_were_given_are_not_filled():
    ranker, batch = given([3, 1])
    found = ranker.topk(batch, 3, candidates=torch.tensor([[0, 4]])).combined
    assert found.indices.tolist() == [[4, 0]]
    torch.testing.assert_close(found.scores, torch.tensor([[0.6, 0.2]]))
    ranker, batch = given(None)
    assert ranker.topk(batch, 5).combined.indices.tolist() == [[1, 3, 4, 2, 0]]


def test_deduplicated_labels_are_sorted_with_gaps():
    labels = torch.tensor([[3, 1, 3, -1], [2, 2, 2, 0]])
    assert deduplicate(labels).tolist() == [[-1, 1, 3, -1], [0, 2, -1, -1]]


@pytest.mark.gpu
@pytest.mark.parametrize("way", WAYS)
def test_a_gpu_scores_the_same_and_combines_without_waiting(way):
    system, batch = build(*WAYS[way])
    system.combination = COMBINATION
    here = system.topk(batch, 10).combined
    system, batch = system.to("cuda"), batch.to("cuda")
    there = system.topk(batch, 10).combined
    torch.testing.assert_close(there.scores.cpu(), here.scores, rtol=1e-3, atol=1e-4)
    logits = [torch.zeros(3, 10, device="cuda")] * 2
    labels = torch.zeros(3, 10, dtype=torch.long, device="cuda")
    try:
        with warnings.catch_warnings():  # that the mode is new is no news of ours
            warnings.simplefilter("ignore")
            torch.cuda.set_sync_debug_mode("error")
        for asked in (slice(0, 10), labels):
            COMBINATION(system.expert_names, logits, system.counts[asked])
    finally:
        torch.cuda.set_sync_debug_mode("default")


def test_an_empty_shortlist_is_filled_by_frequency_alone():
    ranker, batch = given([-1])
    found = ranker.topk(batch, 2).combined
    assert found.indices.tolist() == [[2, 4]]
    torch.testing.assert_close(found.scores, torch.tensor([[10 / 11, 8 / 11]]))
