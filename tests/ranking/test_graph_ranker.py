"""The ranker of an exported graph against a search over every label; the graph is a fake one."""

from dataclasses import replace

import numpy as np
import pytest

from glocal.companions.companion import SCOPE, SPARSE
from glocal.data.batches import Collator
from glocal.data.chunks import Chunking
from glocal.data.tokens import TokenStore
from glocal.encoders.word_tokenizer import NoTokenizer
from glocal.errors import ModelError
from glocal.log_odds import sigmoid
from glocal.ranking import graph_ranker
from glocal.ranking.combination import Combination
from glocal.ranking.document_ranker import RankRequest
from glocal.ranking.graph_ranker import ClusterFacts, GraphFacts, GraphRanker

N, L, EXPERTS = 6, 12, ("D-last", "A-1")
TABLE = np.random.default_rng(0).normal(0, 3, (len(EXPERTS), N, L)).astype(np.float32)
LONG = Chunking(window=4, overlap=1, before=1, after=1)


class FakeGraph:
    """Gives the logits of TABLE; a document is known by its first token."""

    def __init__(self, kind, names, folder, runtime, side_by_side):
        self.kind, self.input_names = kind, frozenset(names)
        self.opened = folder, runtime, side_by_side
        self.runs = []

    def run(self, inputs):
        self.runs.append(inputs)
        ids, mask = inputs["input_ids"], inputs["attention_mask"]
        assert mask.dtype == np.int64
        logits = TABLE[:, ids[:, 0]]
        if self.kind == "every":
            return [logits]
        labels = np.broadcast_to(inputs["candidates"], (len(ids), inputs["candidates"].shape[1]))
        usable = np.where(inputs["allowed"], logits[0], -np.inf)
        more = np.argsort(-usable, axis=1, kind="stable")[:, :3]  # the document expert's proposals
        if self.kind == "clusters":
            more = more[:, : len(inputs["picks"])]
        labels = np.concatenate([labels, more], axis=1)
        found = np.take_along_axis(
            logits, np.broadcast_to(np.maximum(labels, 0), (2, *labels.shape)), 2
        )
        return [found, labels] if self.kind == "clusters" else [found, labels, logits[:1]]


INPUTS = {
    "every": ("input_ids", "attention_mask"),
    "shortlist": ("input_ids", "attention_mask", "candidates", "allowed"),
    "clusters": ("input_ids", "attention_mask", "candidates", "allowed", "picks"),
}


@pytest.fixture
def made(monkeypatch):
    """Returns a ranker over a fake graph, and the graphs that were opened."""

    def make(kind="every", *, names=(), proposed=3, suggested=0, threads=1, chunking=None):
        graphs = []

        def opened(folder, runtime, *, side_by_side=False):
            graphs.append(FakeGraph(kind, [*INPUTS[kind], *names], folder, runtime, side_by_side))
            return graphs[-1]

        monkeypatch.setattr(graph_ranker, "open_graph", opened)
        monkeypatch.setattr(graph_ranker, "n_threads", lambda given: {0: threads}[given])
        clusters = ClusterFacts(2, 3, 4) if kind == "clusters" else None
        proposed = 0 if kind == "every" else proposed
        facts = GraphFacts("onnx", "fp32", EXPERTS, proposed, 5, clusters)
        options = {"chunking": chunking, "suggested": suggested}
        return GraphRanker("graph", facts, np.arange(L), **options), graphs

    return make


def documents(features=None, *, lengths=(3,) * N, chunking=None):
    tokens = [np.array([number, *[1] * (n - 1)]) for number, n in enumerate(lengths)]
    facts = NoTokenizer().facts
    return Collator(
        TokenStore.in_memory(tokens),
        facts,
        n_labels=L,
        companion_features=features or {},
        chunking=chunking,
    )


def best(logits, labels, k, combination=None):
    """The k best of some labels of a document, by brute force; ties by label."""
    combination = combination or Combination()
    named = {name: values[None, labels] for name, values in zip(EXPERTS, logits, strict=True)}
    scores = combination.of_arrays(named, np.array(labels)[None])[0]
    order = sorted(range(len(labels)), key=lambda place: (-scores[place], labels[place]))[:k]
    return [labels[place] for place in order], [scores[place] for place in order]


def check(found, row, number, labels, k, combination=None, logits=None):
    expected, scores = best(TABLE[:, number] if logits is None else logits, labels, k, combination)
    filled = found.indices[row] >= 0
    assert found.indices[row][filled].tolist() == expected
    np.testing.assert_allclose(found.scores[row][filled], scores, rtol=1e-6)
    assert (found.indices[row][~filled] == -1).all()
    assert (found.scores[row][~filled] == -np.inf).all()


WEIGHTED = Combination({"D-last": 0.7, "A-1": 0.4}, -0.5, 0.2)


@pytest.mark.parametrize("combination", [Combination(), WEIGHTED])
@pytest.mark.parametrize("k", [1, 4, L, L + 3])
def test_every_label_is_ranked(made, combination, k):
    ranker, graphs = made()
    ranker.combination = combination
    positions = np.array([4, 0, 5])
    found = ranker.rank_documents(
        documents(), positions, RankRequest(k, experts=["A-1"], mean=True)
    )
    assert found.indices.shape == (3, min(k, L))
    for row, number in enumerate(positions):
        check(found, row, number, range(L), k, combination)
        check(found.mean, row, number, range(L), k)
        alone = np.stack([TABLE[1, number]] * 2)
        check(found.experts["A-1"], row, number, range(L), k, logits=alone)
    assert set(found.experts) == {"A-1"}
    assert len(graphs[0].runs) == 1
    assert graphs[0].opened == ("graph", "onnx", False)


def test_without_being_asked_there_are_no_parts(made):
    found = made()[0].rank_documents(documents(), np.arange(2), RankRequest(2))
    assert found.experts == {}
    assert found.mean is None


def test_only_allowed_labels_and_given_ones(made):
    ranker, _ = made()
    allowed = np.arange(L) % 3 == 0
    found = ranker.rank_documents(documents(), np.arange(N), RankRequest(6, allowed=allowed))
    for number in range(N):
        check(found, number, number, [0, 3, 6, 9], 6)
    given = np.array([[7, 2, -1], [1, -1, -1]])
    request = RankRequest(3, candidates=given, allowed=np.arange(L) != 2)
    found = ranker.rank_documents(documents(), np.array([2, 3]), request)
    check(found, 0, 2, [7], 3)
    check(found, 1, 3, [1], 3)
    logits = ranker.expert_logits(documents(), np.array([2, 3]), np.array([[7, 2], [1, 0]]))
    assert list(logits) == list(EXPERTS)
    np.testing.assert_array_equal(logits["A-1"], [TABLE[1, 2, [7, 2]], TABLE[1, 3, [1, 0]]])


@pytest.mark.parametrize("threads", [1, 2, 3])
def test_parts_of_a_batch_are_ranked_alike(made, monkeypatch, threads):
    whole = made()[0].rank_documents(documents(), np.arange(N), RankRequest(5))
    ranker, graphs = made(threads=threads)
    ranker.combination = WEIGHTED
    monkeypatch.setattr(graph_ranker, "_SEVERAL", L * (5 + 3) * 2)  # two documents
    given = np.tile(np.arange(L), (N, 1))
    found = ranker.rank_documents(documents(), np.arange(N), RankRequest(5, candidates=given))
    for number in range(N):
        check(found, number, number, range(L), 5, WEIGHTED)
    worker = graphs[-1]
    assert worker.opened[2] is (threads > 1)
    sizes = [len(run["input_ids"]) for run in worker.runs]
    assert sum(sizes) == N
    assert max(sizes) == min(2, N // threads)
    logits = ranker.expert_logits(documents(), np.arange(N), given)
    np.testing.assert_array_equal(logits["D-last"], TABLE[0])
    ranker.combination = Combination()
    again = ranker.rank_documents(documents(), np.arange(N), RankRequest(5))
    np.testing.assert_array_equal(again.indices, whole.indices)
    assert len(graphs) == (1 if threads == 1 else 2)  # opened once more, and kept


def test_long_texts_make_smaller_parts(made, monkeypatch):
    ranker, graphs = made()
    monkeypatch.setattr(graph_ranker, "_SEVERAL", L * (5 + 3) * 2)
    ranker.rank_documents(documents(lengths=(3,) * 5 + (11,)), np.arange(N), RankRequest(1))
    assert [len(run["input_ids"]) for run in graphs[0].runs] == [1] * N


def test_a_shortlist_is_what_the_graph_proposes_and_companions_suggest(made):
    sparse = np.array([[8, 1, 3]] * N, dtype=np.int32)
    scope = np.array([[L + 1, 8, 2]] * N, dtype=np.int32)  # the first is outside the label space
    ranker, graphs = made("shortlist", names=(SPARSE, SCOPE), proposed=6, suggested=2)
    features = {SPARSE: sparse, SCOPE: scope}
    found = ranker.rank_documents(documents(features), np.arange(N), RankRequest(6))
    for number in range(N):
        proposed = np.argsort(-TABLE[0, number], kind="stable")[:3].tolist()
        labels = sorted({8, 1, *proposed})
        check(found, number, number, labels, 6)
    assert found.indices.shape == (N, 6)
    assert graphs[0].runs[0]["candidates"].tolist() == [[-1, 8, 1, -1, 8]] * N
    assert graphs[0].runs[0]["allowed"].all()
    assert len(graphs[0].runs) == 1
    ranker.rank_documents(documents(features), np.arange(N), RankRequest(7))
    assert len(graphs[0].runs) == 3  # seven labels are more than it proposes


def test_more_labels_than_are_proposed_come_from_the_document_expert(made):
    ranker, graphs = made("shortlist")
    allowed = np.arange(L) != 5
    found = ranker.rank_documents(documents(), np.arange(N), RankRequest(8, allowed=allowed))
    for number in range(N):
        usable = np.where(allowed, TABLE[0, number], -np.inf)
        check(found, number, number, np.argsort(-usable, kind="stable")[:8].tolist(), 8)
    given = RankRequest(2, candidates=np.array([[4, -1]] * N), allowed=allowed)
    found = ranker.rank_documents(documents(), np.arange(N), given)
    for number in range(N):
        check(found, number, number, [4], 2)
    assert graphs[0].runs[-1]["allowed"].all()


def test_clusters_are_picked_for_as_many_labels(made):
    ranker, graphs = made("clusters")
    for k, allowed, picks in ((1, None, 2), (12, None, 3), (1, np.arange(L) > 0, 2)):
        ranker.rank_documents(documents(), np.arange(N), RankRequest(k, allowed=allowed))
        assert graphs[0].runs[-1]["picks"].tolist() == [0] * picks
    found = ranker.rank_documents(documents(), np.arange(N), RankRequest(4))
    for number in range(N):
        proposed = np.argsort(-TABLE[0, number], kind="stable")[:2].tolist()
        check(found, number, number, proposed, 4)
    ranker.rank_documents(documents(), np.arange(1), RankRequest(1, candidates=np.array([[3]])))
    assert graphs[0].runs[-1]["picks"].shape == (1,)


@pytest.mark.parametrize(
    ("k", "some", "wanted"),
    [
        (1, False, 2),
        (8, False, 2),
        (9, False, 3),
        (100, False, 6),
        (1, True, 2),
        (5, True, 5),
        (9, True, 6),
    ],
)
def test_how_many_clusters_labels_need(k, some, wanted):
    assert ClusterFacts(2, 6, 4).wanted(k, some_labels=some) == wanted


def test_facts_are_stored_and_read_again():
    facts = GraphFacts("onnx", "int8", EXPERTS, 3, 5, ClusterFacts(2, 3, 4))
    stored = facts.to_mapping()
    assert stored["clusters"] == {"picked": 2, "most": 3, "smallest": 4}
    assert stored["experts"] == list(EXPERTS)
    assert GraphFacts.from_mapping(stored) == facts
    plain = replace(facts, clusters=None)
    assert "clusters" not in plain.to_mapping()
    assert GraphFacts.from_mapping(plain.to_mapping()) == plain
    least = GraphFacts.from_mapping(
        {**stored, "label_width": 0, "clusters": {"picked": 0, "most": 0, "smallest": 0}}
    )
    assert (least.label_width, least.clusters) == (1, ClusterFacts(1, 1, 1))


def test_chunks_of_long_texts_are_given_to_the_graph(made):
    names = ("chunk_ids", "places", "chunks")
    ranker, graphs = made(names=names, chunking=LONG)
    assert ranker.chunking is LONG
    short = documents(chunking=LONG)
    ranker.rank_documents(short, np.arange(2), RankRequest(1))
    run = graphs[0].runs[-1]
    assert run["chunk_ids"].tolist() == [[short.padding.pad_id] * 4]
    assert run["places"].tolist() == run["chunks"].tolist() == [[-1], [-1]]
    assert {run[name].dtype for name in names} == {np.dtype(np.int64)}
    ranker.rank_documents(documents(lengths=(9,) * N, chunking=LONG), np.arange(2), RankRequest(1))
    assert (graphs[0].runs[-1]["chunks"] >= 0).any()


def test_a_graph_that_does_not_fit_or_cannot_be_computed_is_named(made, monkeypatch):
    ranker, graphs = made(names=("more",))
    with pytest.raises(ModelError, match=r"reads attention_mask, input_ids, more, but .*gives it"):
        ranker.rank_documents(documents(), np.arange(1), RankRequest(1))
    ranker, graphs = made()

    def fail(error):
        def run(inputs):
            raise error

        monkeypatch.setattr(graphs[0], "run", run)

    fail(RuntimeError("a node is wrong\nin line 2"))
    with pytest.raises(ModelError, match=r"graph in graph cannot be computed \(a node is wrong\)"):
        ranker.rank_documents(documents(), np.arange(1), RankRequest(1))
    fail(RuntimeError())
    with pytest.raises(ModelError, match=r"\(RuntimeError\)"):
        ranker.rank_documents(documents(), np.arange(1), RankRequest(1))
    fail(MemoryError())
    with pytest.raises(MemoryError):
        ranker.rank_documents(documents(), np.arange(1), RankRequest(1))


def test_best_of_rows_with_ties_and_empty_places():
    labels = np.array([[3, -1, 1, 2], [7, 0, -1, -1]])
    scores = np.array([[0.5, 0.9, 0.5, 0.25], [0.0, 1.0, 1.0, 1.0]], dtype=np.float32)
    found, values = graph_ranker._topk(labels, scores, 3)
    assert found.tolist() == [[1, 3, 2], [0, 7, -1]]
    assert values.tolist() == [[0.5, 0.5, 0.25], [1.0, 0.0, 0.0]]
    assert graph_ranker._topk(labels, scores, 9)[0].shape == (2, 4)
    kept = graph_ranker._without_repeats(np.array([[4, 2, 4, 4, 2], [-1, 0, -1, 0, 1]]))
    assert kept.tolist() == [[4, 2, -1, -1, -1], [-1, 0, -1, -1, 1]]


def test_the_share_of_scores_is_a_probability(made):
    found = made()[0].rank_documents(documents(), np.arange(1), RankRequest(1, experts=["D-last"]))
    assert found.experts["D-last"].scores[0, 0] == pytest.approx(sigmoid(TABLE[0, 0].max()))


@pytest.mark.parametrize("kind", ["every", "shortlist"])
def test_a_batch_without_documents(made, kind):
    ranker, graphs = made(kind)
    found = ranker.rank_documents(documents(), np.zeros(0, np.int64), RankRequest(3))
    assert len(found) == 0
    assert not graphs[0].runs


def test_a_graph_is_told_which_labels_are_allowed_by_truth_values(made):
    ranker, graphs = made("shortlist")
    given = np.array([[4, -1]] * N)
    ranker.rank_documents(documents(), np.arange(N), RankRequest(2))
    ranker.rank_documents(documents(), np.arange(N), RankRequest(2, candidates=given))
    ranker.expert_logits(documents(), np.arange(N), given)
    assert {run["allowed"].dtype for run in graphs[0].runs} == {np.dtype(bool)}
    assert {run["allowed"].shape for run in graphs[0].runs} == {(L,)}
    assert len(graphs[0].runs) == 3


@pytest.mark.parametrize("k", [1, 2, 5, 63])
def test_best_of_many_labels(k):
    rng = np.random.default_rng(k)
    labels = np.stack([rng.permutation(400)[:300] for _ in range(3)])
    scores = rng.integers(0, 50, labels.shape).astype(np.float32) / 50
    found, values = graph_ranker._topk(labels, scores, k)
    for row in range(3):
        order = np.lexsort((labels[row], -scores[row]))[:k]
        assert found[row].tolist() == labels[row, order].tolist()
        assert values[row].tolist() == scores[row, order].tolist()
    last = np.array([[2**31 - 1, 2]])
    found, values = graph_ranker._topk(last, np.zeros((1, 2), np.float32), 2)
    assert found.tolist() == [[2, 2**31 - 1]]
    assert values.tolist() == [[0, 0]]


def test_several_experts_and_the_mean_are_told_apart(made):
    ranker, request = made()[0], RankRequest(4, experts=EXPERTS, mean=True)
    ranker.combination = WEIGHTED
    found = ranker.rank_documents(documents(), np.arange(N), request)
    for number in range(N):
        check(found, number, number, range(L), 4, WEIGHTED)
        check(found.mean, number, number, range(L), 4)
        for place, name in enumerate(EXPERTS):
            alone = np.stack([TABLE[place, number]] * 2)
            check(found.experts[name], number, number, range(L), 4, logits=alone)


def test_candidates_go_with_their_documents_into_the_parts_of_a_batch(made, monkeypatch):
    ranker, _ = made(threads=2)
    monkeypatch.setattr(graph_ranker, "_SEVERAL", L * (5 + 3) * 2)  # two documents
    positions = np.array([5, 3, 0, 4, 1])
    given = np.stack([np.random.default_rng(row).permutation(L)[:4] for row in range(5)])
    found = ranker.rank_documents(documents(), positions, RankRequest(3, candidates=given))
    for row, number in enumerate(positions):
        check(found, row, number, given[row].tolist(), 3)
