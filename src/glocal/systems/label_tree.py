"""Label clusters that are picked before labels are scored (LightXML; levels as in XR-Transformer).

    clusters of the coarsest level → the best `picked` → their parts on the next level → … → labels

- Labels with similar texts share a cluster (`vocabulary/label_clusters.py`); clusters of all levels
  are one balanced binary tree, so a label's leaf says its cluster on every level.
- A cluster is scored as a label is: an expert has a row of parameters for each, and scores it on
  the state it has prepared for labels. Document experts and label attention work alike.
- Training: a cluster is positive where one of its labels is. The candidates of a text are the
  labels of its gold clusters and of the clusters that score highest now, so that negatives follow
  the model (dynamic negatives).
- Prediction: the log-probability of its clusters is added to a label's own, times `cluster_weight`.
  Labels are trained where their cluster is picked, right or wrong, so their own scores know it.
- With `candidates.coarse`, levels join the training one after another, and rows start as those of
  the cluster above them.
- Where labels are sharded, clusters are in every process, and are the same in each.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from glocal.config.settings import CandidatesConfig
from glocal.data.batches import Collator
from glocal.experts.document import DocumentExpert
from glocal.experts.expert import Expert, State
from glocal.label_slice import EVERY_LABEL
from glocal.log_odds import log_odds
from glocal.losses.bce import bce_candidates, bce_chunk
from glocal.losses.chunked import chunked_loss, label_chunks
from glocal.losses.memory import ChunkUse
from glocal.ranking.expert_topk import deduplicate
from glocal.systems.cluster_rows import ClusterRows
from glocal.vocabulary.label_clusters import label_leaves, label_means, tfidf

_PIFA_WIDTH = 512  # of the dense space that labels are clustered in
_smaller: Any = torch.sym_min  # also of sizes that an exported graph leaves open
_MOST_UNEVEN = 16  # times the memory of even clusters that a stored model may take


class LabelTree(nn.Module):
    """Clusters of labels on one level or several, scored by the rows of experts.

    Args:
        config: The settings; `clusters` is resolved.
        experts: The trained experts of the mixture; they stay its own.
        n_labels: Number of labels.
    """

    leaves: Tensor  # (L,) int64, the finest cluster of each label
    members: Tensor  # (K, S) int64, the labels of each finest cluster, −1 for none

    def __init__(self, config: CandidatesConfig, experts: Sequence[Expert], n_labels: int) -> None:
        super().__init__()
        self.config, self.n_labels, self.labels_here = config, n_labels, EVERY_LABEL
        self.sizes = level_sizes(config)
        # A tuple: they are modules of the mixture, not of the tree.
        documents = [expert for expert in experts if isinstance(expert, DocumentExpert)]
        first = (*documents, *experts)[:1]
        self.scorers = tuple(experts) if config.clusters_by == "all" else first
        levels = [[ClusterRows(expert, size) for expert in self.scorers] for size in self.sizes]
        self.levels = nn.ModuleList(nn.ModuleList(rows) for rows in levels)
        leaves = torch.arange(n_labels) * self.sizes[-1] // n_labels
        self.register_buffer("leaves", leaves)
        self.register_buffer("members", torch.zeros(0, 0, dtype=torch.int64), persistent=False)
        hook: Any = self.register_load_state_dict_post_hook
        hook(lambda tree, _: tree._list_members())
        self._list_members()

    def rows(self, level: int) -> list[ClusterRows]:
        """Return the rows of a level, one for each scorer."""
        return [rows for rows in self.levels[level].children() if isinstance(rows, ClusterRows)]

    @property
    def _here(self) -> slice:
        """The labels whose rows are in this process."""
        return slice(*self.labels_here.bounds(self.n_labels))

    def _list_members(self) -> None:
        """List the labels of each cluster.

        Raises:
            ValueError: A stored model's clusters are out of range or far from even.
        """
        if self.leaves.is_meta:
            return
        leaves, count = self.leaves.cpu().numpy(), self.sizes[-1]
        if leaves.min(initial=0) < 0 or leaves.max(initial=0) >= count:
            raise ValueError(f"the clusters of labels must be within 0 … {count - 1}")
        filled = np.bincount(leaves, minlength=count)
        widest = max(1, int(filled.max()))
        if count * widest > _MOST_UNEVEN * (len(leaves) + count):
            raise ValueError(f"a cluster has {widest} of {len(leaves)} labels")
        order = np.argsort(leaves, kind="stable")
        places = np.arange(len(leaves)) - np.repeat(np.cumsum(filled) - filled, filled)
        members = np.full((count, widest), -1, dtype=np.int64)
        members[leaves[order], places] = order
        self.members = torch.from_numpy(members).to(self.leaves.device)
        self.smallest = max(1, int(filled.min()))

    # --- the arrangement of labels --------------------------------------------------------------

    @torch.no_grad()
    def arrange(self, documents: Collator, seed: int) -> None:
        """Cluster the labels by their training texts, and set the clusters' initial biases."""
        gold = documents.gold[:, : self.n_labels]
        means = label_means(tfidf(documents.tokens.counts()), gold, seed=seed, width=_PIFA_WIDTH)
        leaves = label_leaves(means, n_leaves=self.sizes[-1], seed=seed)
        self.leaves.copy_(torch.from_numpy(leaves))
        self._list_members()
        for level in range(len(self.sizes)):
            prior = log_odds((self._texts(gold, level) + 0.5) / (gold.shape[0] + 1.0))
            for part in self.rows(level):
                for tensor in part.tensors:
                    if tensor.dim() == 1:
                        tensor.copy_(torch.from_numpy(prior))

    @torch.no_grad()
    def start_biases(self, documents: Collator, experts: Sequence[Expert]) -> None:
        """Set label biases to the log-odds among the texts that pick a label's cluster."""
        gold = documents.gold[:, : self.n_labels]
        counts = np.bincount(gold.indices, minlength=self.n_labels)
        share = min(1.0, self.config.picked / self.sizes[-1])
        picking = np.maximum(self._texts(gold, -1), share * gold.shape[0])
        prior = log_odds((counts + 0.5) / (picking[self.leaves.cpu().numpy()] + 1.0))
        prior = prior[self._here]
        for expert in experts:
            for tensor in expert.label_tensors():
                if isinstance(tensor, nn.Parameter) and tensor.dim() == 1:
                    tensor.copy_(torch.from_numpy(prior))

    def _texts(self, gold: Any, level: int) -> np.ndarray:
        """Return the number of texts with a label of each cluster."""
        size = self.sizes[level]
        of_label = self.at_level(self.leaves, level).cpu().numpy()
        texts = np.repeat(np.arange(gold.shape[0], dtype=np.int64), np.diff(gold.indptr))
        pairs = np.unique(texts * size + of_label[gold.indices])
        return np.bincount(pairs % size, minlength=size)

    @torch.no_grad()
    def place_labels(self, leaves: Tensor, vectors: Tensor) -> None:
        """Take over the leaves of labels, and find leaves for new labels at the end.

        A new label goes to the cluster whose labels have the most similar vectors, among those with
        room for it: clusters stay as large as the largest one, unless all are full.

        Args:
            leaves: (L − new,) the leaves of the labels that were there before.
            vectors: (L, d) label vectors of an expert, new labels last.
        """
        count = self.sizes[-1]
        unit = functional.normalize(vectors.float(), dim=1)
        old, new = unit[: len(leaves)], unit[len(leaves) :]
        centres = torch.zeros(count, unit.shape[1]).index_add_(0, leaves, old)
        filled = torch.bincount(leaves, minlength=count)
        room = max(int(filled.max()), -(-len(vectors) // count))
        similar = new @ functional.normalize(centres, dim=1).T
        for place, row in enumerate(similar, start=len(leaves)):
            leaf = row.masked_fill(filled >= room, -math.inf).argmax()
            filled[leaf] += 1
            self.leaves[place] = leaf
        self.leaves[: len(leaves)] = leaves
        self._list_members()

    def at_level(self, leaves: Tensor, level: int) -> Tensor:
        """Return the clusters of a level that leaves belong to; −1 stays −1."""
        parts = self.sizes[-1] // self.sizes[level]
        return torch.div(leaves, parts, rounding_mode="floor")

    # --- scores of clusters -----------------------------------------------------------------------

    def logits(
        self, level: int, place: int, states: Mapping[str, State], clusters: Tensor | None
    ) -> Tensor:
        """Return one expert's logits of clusters (B, C), or of all of a level."""
        expert = self.scorers[place]
        rows, state = self.rows(level)[place], states[expert.name]
        if clusters is not None:
            return expert.score(state, rows.at(clusters)).float()
        pieces = [
            expert.score(state, tuple(t[chunk] for t in rows.tensors)).float()
            for chunk in self._chunks(level, expert, state)
        ]
        return torch.cat(pieces, 1)

    def log_probabilities(
        self, level: int, states: Mapping[str, State], clusters: Tensor | None = None
    ) -> Tensor:
        """Return the logarithm of the experts' mean probability of clusters."""
        count = len(self.scorers)
        parts = [
            functional.logsigmoid(self.logits(level, place, states, clusters))
            for place in range(count)
        ]
        return torch.logsumexp(torch.stack(parts), 0) - math.log(count)

    def of_labels(self, states: Mapping[str, State], labels: slice | Tensor) -> Tensor:
        """Return the log-probability of the clusters of labels here: (B, C)."""
        leaves = self.leaves[self._here][labels]
        found: list[Tensor] = []
        for level, size in enumerate(self.sizes):
            wanted = self.at_level(leaves, level)
            few = wanted.dim() == 2 and not self._cheap
            # A graph has any number of candidates.
            if few and (torch.compiler.is_exporting() or size > wanted.shape[1]):
                found.append(self.log_probabilities(level, states, wanted))
            else:
                every = self.log_probabilities(level, states)
                found.append(every[:, wanted] if wanted.dim() == 1 else every.gather(1, wanted))
        return sum(found[1:], found[0])

    @property
    def _cheap(self) -> bool:
        """Whether scoring all clusters costs one product."""
        return all(isinstance(expert, DocumentExpert) for expert in self.scorers)

    def _chunks(self, level: int, expert: Expert, state: State) -> list[slice]:
        if torch.compiler.is_exporting():  # a graph has any number of documents
            return [slice(0, self.sizes[level])]
        device = state[0].device
        limit = ChunkUse.EXPERT_LOGITS.limit(device.type)
        width, documents = expert.label_width, state[0].shape[0]
        return label_chunks(self.sizes[level], documents=documents, width=width, limit=limit)

    # --- the clusters of a text -------------------------------------------------------------------

    @torch.no_grad()
    def pick(
        self,
        states: Mapping[str, State],
        count: int,
        *,
        gold: Tensor | None = None,
        allowed: Tensor | None = None,
    ) -> list[Tensor]:
        """Return the clusters picked on each level, (B, P), best first.

        Args:
            states: The experts' states.
            count: Clusters to pick.
            gold: (B, G) labels whose clusters are picked before all others, −1 for none.
            allowed: (L,) bool; clusters without an allowed label come last.
        """
        picked: list[Tensor] = []
        path: Tensor | None = None
        for level, size in enumerate(self.sizes):
            parts = None if path is None else self.parts(picked[-1], level)
            scores = self.log_probabilities(level, states, parts)
            if parts is not None:
                assert path is not None
                scores = scores + path.repeat_interleave(size // self.sizes[level - 1], 1)
            chosen = scores
            if gold is not None:
                chosen = torch.where(self._taken(gold, level, parts), math.inf, chosen)
            if allowed is not None:
                useful = self._useful(allowed, level)
                useful = useful if parts is None else useful[parts]
                chosen = torch.where(useful, chosen, -math.inf)
            best = chosen.topk(_smaller(count, scores.shape[1]), dim=1).indices
            picked.append(best if parts is None else parts.gather(1, best))
            path = scores.gather(1, best)
        return picked

    def parts(self, clusters: Tensor, level: int) -> Tensor:
        """Return the parts on a level of clusters (B, P) of the level before, (B, P · parts)."""
        each = self.sizes[level] // self.sizes[level - 1]
        offsets = torch.arange(each, device=clusters.device)
        return (clusters.unsqueeze(2) * each + offsets).flatten(1)

    def _taken(self, gold: Tensor, level: int, parts: Tensor | None) -> Tensor:
        """Return which clusters have a gold label: all of a level, or parts (B, C)."""
        size = self.sizes[level]
        clusters = self.at_level(self.leaves[gold.clamp(min=0)], level)
        clusters = torch.where(gold >= 0, clusters, size)  # an extra column that is cut off
        taken = torch.zeros(len(gold), size + 1, dtype=torch.bool, device=gold.device)
        taken = taken.scatter(1, clusters, True)[:, :size]
        return taken if parts is None else taken.gather(1, parts)

    def _useful(self, allowed: Tensor, level: int) -> Tensor:
        counts = torch.zeros(self.sizes[level], device=allowed.device)
        return counts.index_add(0, self.at_level(self.leaves, level), allowed.float()) > 0

    def candidates(
        self, states: Mapping[str, State], k: int, allowed: Tensor | None = None
    ) -> Tensor:
        """Return the labels of the clusters picked for each text, (B, C), −1 for none."""
        count = max(self.config.picked, -(-k // self.smallest))
        if allowed is not None:  # each has a label that is allowed
            count = max(count, min(k, self.sizes[-1]))
        leaves = self.pick(states, count, allowed=allowed)[-1]
        return self.members[leaves].flatten(1)

    # --- training ---------------------------------------------------------------------------------

    def depth(self, fraction: float) -> int:
        """Return how many levels are trained at a point of the run; one more means labels too."""
        if fraction >= self.config.coarse:
            return len(self.sizes) + 1
        return 1 + int(fraction / self.config.coarse * len(self.sizes))

    def joining(self, step: int, steps: int) -> range:
        """Return the depths that training reaches at a step; none at the first."""
        if not step or not self.config.coarse:
            return range(0)
        before, now = (self.depth(at / max(1, steps)) for at in (step - 1, step))
        return range(before + 1, now + 1)

    def loss(
        self, states: Mapping[str, State], gold: Tensor, picked: Sequence[Tensor], depth: int
    ) -> Tensor:
        """Return the summed BCE of the clusters of the first `depth` levels.

        On the first level all clusters are scored, on others the parts of those picked above.
        """
        total = torch.zeros((), device=gold.device)
        for level in range(min(depth, len(self.sizes))):
            for place in range(len(self.scorers)):
                if level == 0:
                    total = total + self._first_loss(place, states, gold)
                else:
                    parts = self.parts(picked[level - 1], level)
                    logits = self.logits(level, place, states, parts)
                    targets = self._taken(gold, level, parts).float()
                    total = total + bce_candidates(logits, targets, torch.ones_like(targets))
        return total

    def _first_loss(self, place: int, states: Mapping[str, State], gold: Tensor) -> Tensor:
        expert = self.scorers[place]
        state, rows = states[expert.name], self.rows(0)[place]
        clusters = self.at_level(self.leaves[gold.clamp(min=0)], 0)
        targets = deduplicate(torch.where(gold >= 0, clusters, -1))

        def chunk_loss(chunk: slice, flat: Any, tensors: Any) -> Tensor:
            return bce_chunk(expert.score(tuple(flat), tuple(tensors)), targets, chunk.start)

        chunks = self._chunks(0, expert, state)
        return chunked_loss(chunk_loss, chunks, list(state), list(rows.tensors))

    @torch.no_grad()
    def begin_level(self, depth: int) -> None:
        """Start the rows of the level that joins now, or of labels, at the clusters above them."""
        for place, rows in enumerate(self.rows(depth - 2)):
            if depth <= len(self.sizes):
                finer = self.rows(depth - 1)[place].at(None)
                clusters = torch.arange(self.sizes[depth - 1], device=self.leaves.device)
                clusters = clusters // (self.sizes[depth - 1] // self.sizes[depth - 2])
            else:
                finer = self.scorers[place].label_tensors()
                clusters = self.leaves[self._here]
            for tensor, coarse in zip(finer, rows.tensors, strict=True):
                if isinstance(tensor, nn.Parameter) and tensor.dim() > 1:
                    tensor.copy_(coarse[clusters])

    def parameter_groups(self) -> Iterator[tuple[str, nn.Parameter]]:
        """Yield the rows with the name of their learning rate."""
        for level in range(len(self.sizes)):
            for rows in self.rows(level):
                yield from zip(rows.groups, rows.tensors, strict=True)


def level_sizes(config: CandidatesConfig) -> list[int]:
    """Return the number of clusters of each level, the coarsest first."""
    sizes = [config.clusters]
    while len(sizes) < config.levels and sizes[0] // config.branching >= 2:
        sizes.insert(0, sizes[0] // config.branching)
    return sizes
