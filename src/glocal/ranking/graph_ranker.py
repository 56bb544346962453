"""The ranker of an exported model: a graph gives the experts' logits, numpy does the rest.

The graph scores every label, or a shortlist for each document: the labels that its document expert
proposes, or those of the clusters it picks, and the candidates it is given
(`export/scoring_graph.py`).
"""

from __future__ import annotations

import copy
import itertools
import threading
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from glocal.arrays import Bools, Floats32, Ints
from glocal.companions.companion import SCOPE, SPARSE
from glocal.companions.sparse.threads import n_threads, ordered_map
from glocal.errors import ModelError
from glocal.log_odds import sigmoid
from glocal.ranking.combination import Combination
from glocal.ranking.document_ranker import DocumentRanker, RankRequest
from glocal.ranking.graph_session import open_graph
from glocal.ranking.predictions import Predictions

if TYPE_CHECKING:
    from glocal.data.batches import Collator
    from glocal.data.chunks import Chunking

_SEVERAL = 1 << 23  # elements of the largest tensors of a run: a few documents fit into a cache
_LOW = 0x7FFFFFFF


@dataclass(frozen=True)
class ClusterFacts:
    """Facts about the clusters of labels that a graph picks from.

    Attributes:
        picked: Clusters that are picked.
        most: Clusters that can be picked.
        smallest: Labels of the smallest one.
    """

    picked: int
    most: int
    smallest: int

    def wanted(self, k: int, *, some_labels: bool) -> int:
        """Return how many clusters k labels need, as `LabelTree.candidates` has it.

        Args:
            k: Number of labels.
            some_labels: Whether only some labels are allowed: then each cluster has one of them.
        """
        count = max(self.picked, -(-k // self.smallest))
        return min(max(count, k) if some_labels else count, self.most)


@dataclass(frozen=True)
class GraphFacts:
    """Facts about an exported graph, stored in the model directory.

    Attributes:
        runtime: `onnx` or `openvino`.
        precision: `fp32`, or `int8` where encoder weights are rounded.
        experts: The experts, in the order of the graph's logits.
        proposed: Labels that the document experts propose for each document, or that the picked
            clusters have; 0 if every label is scored.
        label_width: Elements for each (document, label) pair that the graph holds in memory, except
            for the tokens attended to.
        clusters: Facts about clusters of labels; None if none are picked.
    """

    runtime: str
    precision: str
    experts: tuple[str, ...]
    proposed: int
    label_width: int
    clusters: ClusterFacts | None = None

    def to_mapping(self) -> dict[str, Any]:
        """Return plain values for storage."""
        stored = {**asdict(self), "experts": list(self.experts)}
        return {name: value for name, value in stored.items() if value is not None}

    @classmethod
    def from_mapping(cls, mapping: Mapping[str, Any]) -> GraphFacts:
        """Read stored values."""
        clusters = mapping.get("clusters")
        return cls(
            str(mapping["runtime"]),
            str(mapping["precision"]),
            tuple(map(str, mapping["experts"])),
            int(mapping["proposed"]),
            max(1, int(mapping["label_width"])),
            clusters and ClusterFacts(**{name: max(1, int(n)) for name, n in clusters.items()}),
        )


class GraphRanker(DocumentRanker):
    """Ranks labels by an exported graph.

    Args:
        folder: The graph's folder.
        facts: Facts about the graph.
        counts: (L,) training texts of each label.
        chunking: The way long documents are cut; None if only their start is read.
        suggested: Most labels that companions suggest, of those that join a shortlist.

    Raises:
        ModelError: The graph is damaged or does not belong to the model.
    """

    learns_weights = True

    def __init__(
        self,
        folder: Path,
        facts: GraphFacts,
        counts: NDArray[np.integer],
        *,
        chunking: Chunking | None = None,
        suggested: int = 0,
    ) -> None:
        self.folder, self.facts, self._chunking = folder, facts, chunking
        self.counts, self.n_labels = np.asarray(counts), len(counts)
        self.expert_names, self._suggested = list(facts.experts), suggested
        self.graph = open_graph(folder, facts.runtime)
        self._worker: GraphRanker | None = None
        self._opening = threading.Lock()

    @property
    def chunking(self) -> Chunking | None:
        """The way batches must cut long documents; None if only their start is read."""
        return self._chunking

    def rank_documents(
        self, documents: Collator, positions: Ints, request: RankRequest
    ) -> Predictions:
        """Return the best labels of a batch of documents."""
        parts = list(self._parts(documents, positions))
        if len(parts) == 1:
            return self._rank(documents, positions, request)
        ranker = self._side_by_side()

        def rank(part: tuple[slice, Ints]) -> Predictions:
            return ranker._rank(documents, part[1], rows_of(request, part[0]))

        return Predictions.concat(list(ordered_map(rank, parts, threads=n_threads(0))))

    def _side_by_side(self) -> GraphRanker:
        """Return a ranker for several parts at a time.

        A thread for each part is faster than all threads on one part after another, since threads
        that share a part wait for each other at every node.
        """
        if n_threads(0) == 1:
            return self
        with self._opening:
            if self._worker is None:
                worker = copy.copy(self)
                worker.graph = open_graph(self.folder, self.facts.runtime, side_by_side=True)
                self._worker = worker
        self._worker.combination = self.combination
        return self._worker

    def expert_logits(
        self, documents: Collator, positions: Ints, labels: Ints
    ) -> dict[str, Floats32]:
        """Return each expert's logits of labels (B, M) of a batch of documents."""
        found = [
            self._logits_at(self._inputs(documents, some), labels[places])
            for places, some in self._parts(documents, positions)
        ]
        whole = np.concatenate(found, axis=1)
        return dict(zip(self.expert_names, whole, strict=True))

    def _parts(self, documents: Collator, positions: Ints) -> Iterator[tuple[slice, Ints]]:
        """Yield parts of a batch that fit into memory, as many and as large for each thread."""
        longest = int(documents.tokens.lengths[positions].max(initial=1))
        most = max(1, _SEVERAL // (self._scored * (self.facts.label_width + longest)))
        threads = n_threads(0)
        count = threads * -(-len(positions) // (most * threads))
        bounds = np.arange(count + 1) * len(positions) // max(1, count)
        for start, stop in itertools.pairwise(np.unique(bounds)):
            yield slice(start, stop), positions[start:stop]

    @property
    def _scored(self) -> int:
        """Labels that every expert scores for a document."""
        return (self.facts.proposed + self._suggested) if self.facts.proposed else self.n_labels

    def _inputs(self, documents: Collator, positions: Ints) -> dict[str, np.ndarray]:
        ids, mask, further = documents.padded(positions)
        inputs = {"input_ids": ids, "attention_mask": mask.astype(np.int64)}
        if self._chunking is not None:
            if further is None:  # a chunk that no document reads
                none = np.full((len(positions), 1), -1)
                unread = np.full((1, self._chunking.window), documents.padding.pad_id, np.int64)
                further = unread, none, none
            inputs |= dict(zip(("chunk_ids", "places", "chunks"), further, strict=True))
        features = documents.companion_features.items()
        return inputs | {name: rows[positions] for name, rows in features}

    # --- which labels are scored --------------------------------------------------------------

    def _rank(self, documents: Collator, positions: Ints, request: RankRequest) -> Predictions:
        inputs = self._inputs(documents, positions)
        if request.candidates is not None:
            logits = self._logits_at(inputs, request.candidates)
            return self._best(request.candidates, logits, request)
        if self.facts.proposed:
            return self._best(*self._shortlist(inputs, request), request)
        return self._best(np.arange(self.n_labels), self._run(inputs)[0], request)

    def _logits_at(self, inputs: dict[str, np.ndarray], labels: Ints) -> Floats32:
        """Return logits (E, B, M) of labels (B, M), −1 for none."""
        wanted = np.maximum(labels, 0)
        if self.facts.proposed:
            every = np.ones(self.n_labels, dtype=bool)
            inputs = {**inputs, "candidates": wanted, "allowed": every, **self._picks(1)}
            return self._run(inputs)[0][:, :, : labels.shape[1]]
        logits = self._run(inputs)[0]
        return np.take_along_axis(logits, np.broadcast_to(wanted, (len(logits), *wanted.shape)), 2)

    def _picks(self, count: int) -> dict[str, np.ndarray]:
        """Return the input that says how many clusters are picked, where there are any."""
        return {"picks": np.zeros(count, np.int64)} if self.facts.clusters is not None else {}

    def _shortlist(
        self, inputs: dict[str, np.ndarray], request: RankRequest
    ) -> tuple[Ints, Floats32]:
        """Return the labels of each document worth scoring, −1 for none, and their logits."""
        allowed, clusters = request.allowed, self.facts.clusters
        usable = np.ones(self.n_labels, dtype=bool) if allowed is None else allowed
        suggested = [inputs[name] for name in (SPARSE, SCOPE) if name in inputs]
        none = np.full((len(inputs["input_ids"]), 1), -1)
        lists = [labels[:, : self._suggested].astype(np.int64) for labels in suggested]
        pooled = np.concatenate([none, *lists], axis=1)
        pooled[pooled >= self.n_labels] = -1  # a teacher also knows labels outside the space
        inputs = {**inputs, "candidates": pooled, "allowed": usable}
        if clusters is not None:
            picks = self._picks(clusters.wanted(request.k, some_labels=allowed is not None))
            logits, labels = self._run({**inputs, **picks})
            return _without_repeats(labels), logits
        logits, labels, proposals = self._run(inputs)
        if request.k > self.facts.proposed:  # more than the graph proposes
            every = np.where(usable, np.arange(self.n_labels), -1)[None]
            best = [_topk(every, sigmoid(found), request.k)[0] for found in proposals]
            more = np.concatenate([pooled, *best], axis=1)
            logits, labels, _ = self._run({**inputs, "candidates": more})
        return _without_repeats(labels), logits

    def _run(self, inputs: dict[str, np.ndarray]) -> list[np.ndarray]:
        if inputs.keys() != self.graph.input_names:
            raise ModelError(
                f"the exported graph reads {', '.join(sorted(self.graph.input_names))}, but the "
                f"model gives it {', '.join(sorted(inputs))}; export the model again"
            )
        try:
            return self.graph.run(inputs)
        except MemoryError:
            raise
        except Exception as error:  # each runtime has exceptions of its own
            reason = (str(error).splitlines() or [type(error).__name__])[0]
            raise ModelError(
                f"the graph in {self.folder} cannot be computed ({reason:.200}); it is damaged: "
                "copy the model directory again, or export the model again"
            ) from error

    # --- from logits to the best labels -------------------------------------------------------

    def _best(self, labels: Ints, logits: Floats32, request: RankRequest) -> Predictions:
        """Return the best labels by the combined score, and by each expert where asked for.

        Args:
            labels: The labels that were scored, (C,) or (B, C), −1 for none.
            logits: Their logits by each expert, (E, B, C).
            request: Says which labels are asked for.
        """
        experts = dict(zip(self.expert_names, logits, strict=True))
        counts, own = self.counts[labels], list(request.experts)
        scores = [self.combination.of_arrays(experts, counts)]
        scores += [Combination().of_arrays({name: experts[name]}, counts) for name in own]
        if request.mean:
            scores.append(Combination().of_arrays(experts, counts))
        rows = np.broadcast_to(labels, scores[0].shape)
        usable = rows >= 0
        if request.allowed is not None:
            usable = usable & request.allowed[rows]
        kept = np.where(usable, rows, -1)
        combined, *parts = [Predictions(*_topk(kept, found, request.k)) for found in scores]
        return replace(
            combined,
            experts=dict(zip(own, parts, strict=False)),
            mean=parts[-1] if request.mean else None,
        )


def rows_of(request: RankRequest, places: slice) -> RankRequest:
    """Return the request for some documents of a batch."""
    if request.candidates is None:
        return request
    return replace(request, candidates=request.candidates[places])


def _topk(labels: Ints, scores: Floats32, k: int) -> tuple[Ints, Floats32]:
    """Return the best k labels of each row, ties by label, −1 for none (see `ranking/topk.py`)."""
    bits = scores.view(np.int32).astype(np.int64)
    keys = np.where(labels >= 0, (bits << 31) | (_LOW - labels), -1)
    k = min(k, keys.shape[1])
    best = -np.sort(np.partition(-keys, k - 1)[:, :k])
    empty = best < 0
    values = (best >> 31).astype(np.int32).view(np.float32)
    return np.where(empty, -1, _LOW - (best & _LOW)), np.where(empty, 0.0, values)


def _without_repeats(labels: Ints) -> Ints:
    """Replace labels of a row that appear again by −1."""
    order = np.argsort(labels, kind="stable")
    ordered = np.take_along_axis(labels, order, 1)
    again = np.zeros(labels.shape, dtype=bool)
    again[:, 1:] = ordered[:, 1:] == ordered[:, :-1]
    repeated: Bools = np.empty_like(again)
    np.put_along_axis(repeated, order, again, 1)
    return np.where(repeated, -1, labels)
