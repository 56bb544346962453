"""A system as one graph, from token ids to the experts' logits.

There are three forms, by the way a model predicts:

- every label is scored, block by block, each with label parameters of its own, so that no tensor
  has a row for every (document, label) pair except the logits;
- a shortlist: the document expert's best labels and `candidates` (B, M) of each document are
  scored. The graph also returns which labels these are, and the document expert's logits of all;
- clusters: the labels of the best clusters, as many as `picks` (P,) is long, and `candidates` are
  scored. The graph also returns which labels these are.

Documents come as `input_ids` and `attention_mask` (B, T), and with the features of companions where
experts read them. Documents longer than the encoder's window also have `chunk_ids` (N, C), `places`
(B, S) and `chunks` (B, K), as in `data.chunks.Continuation`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from glocal.data.batches import Batch
from glocal.data.chunks import Continuation
from glocal.encoders.encoder import Encoder
from glocal.errors import ModelError
from glocal.experts.expert import Expert
from glocal.experts.label_attention import LabelAttentionExpert
from glocal.export.node_attention import attend_in_one_node, attend_plainly
from glocal.ranking.graph_ranker import ClusterFacts, GraphFacts
from glocal.ranking.graph_session import OnnxGraph
from glocal.ranking.ranker import Ranker
from glocal.systems.label_tree import LabelTree
from glocal.systems.mixture import ExpertMixture
from glocal.systems.mixture_ensemble import mixtures_of

_TOKENS, _CHUNKS = ("input_ids", "attention_mask"), ("chunk_ids", "places", "chunks")
_NOT_FEATURES = {*_TOKENS, *_CHUNKS, "candidates", "allowed", "picks"}
# Elements that a block of labels holds in memory for each document, except for the tokens; more
# where there would be too many blocks.
_BLOCK, _MOST_BLOCKS = 1 << 20, 128


class ScoringGraph(nn.Module):
    """Computes the logits of labels by every expert.

    Args:
        system: A trained system; its label parameters become constants.
        runtime: The runtime it is traced for.

    Raises:
        ModelError: The system has a part that no graph has.
    """

    def __init__(self, system: Ranker, *, runtime: str = OnnxGraph.runtime) -> None:
        super().__init__()
        self.system = system
        self.mixtures = mixtures_of(system)
        self.shortlists = any(mixture.shortlists for mixture in self.mixtures)
        self.tree = _only_tree(self.mixtures)
        for module in system.modules():
            if isinstance(module, Expert):
                _fix_labels(module)
            if isinstance(module, LabelAttentionExpert):
                module.fold_output()
            if isinstance(module, Encoder) and module.model.config.model_type != "mpnet":
                own_node = runtime == OnnxGraph.runtime
                (attend_in_one_node if own_node else attend_plainly)(module.model)

    def facts(self) -> GraphFacts:
        """Return the facts that a runtime needs."""
        width, proposed, clusters = self._label_width, 0, None
        for mixture in self.mixtures:
            if mixture.shortlists:
                proposed = self._proposed(mixture)
        if self.tree is not None:
            picked, most = self._picks(self.tree)
            proposed = picked * self.tree.members.shape[1]
            clusters = ClusterFacts(picked, most, self.tree.smallest)
        names = tuple(self.system.expert_names)
        return GraphFacts("onnx", "fp32", names, proposed, width, clusters)

    @property
    def n_outputs(self) -> int:
        """Number of tensors that it returns."""
        return 3 if self.shortlists else 1 if self.tree is None else 2

    @property
    def _label_width(self) -> int:
        experts = [e for mixture in self.mixtures for e in mixture.experts]
        return max([1, *(e.label_width for e in experts if isinstance(e, Expert))])

    @staticmethod
    def _proposed(mixture: ExpertMixture) -> int:
        return min(mixture.recipe.candidates.predict, mixture.n_labels)

    @staticmethod
    def _picks(tree: LabelTree) -> tuple[int, int]:
        """Return how many clusters are picked, and how many can be."""
        return min(tree.config.picked, tree.sizes[-1]), tree.sizes[-1]

    def forward(self, inputs: Mapping[str, Tensor]) -> tuple[Tensor, ...]:
        """Return logits (E, B, C) of the experts; see the module's docstring for the rest."""
        states = self.system.prepare(_batch(inputs))
        if self.tree is not None:
            return self._of_clusters(self.tree, states, inputs)
        if self.shortlists:
            return self._of_shortlist(states, inputs)
        blocks = self._blocks()
        return (torch.cat([self._logits(states, block) for block in blocks], -1),)

    def _blocks(self) -> list[slice]:
        """Return the labels that are scored together."""
        count = self.system.n_labels
        blocks = min(_MOST_BLOCKS, -(-count * self._label_width // _BLOCK))
        size = -(-count // blocks)
        return [slice(start, min(start + size, count)) for start in range(0, count, size)]

    def _of_shortlist(self, states: Any, inputs: Mapping[str, Tensor]) -> tuple[Tensor, ...]:
        own = states if isinstance(states, list) else [states]
        proposals = [self._propose(m, s) for m, s in zip(self.mixtures, own, strict=True)]
        lists = [inputs["candidates"]]
        for mixture, found in zip(self.mixtures, proposals, strict=True):
            usable = found.masked_fill(~inputs["allowed"], -torch.inf)
            lists.append(usable.topk(self._proposed(mixture), dim=1).indices)
        labels = torch.cat(lists, 1)
        return self._logits(states, labels.clamp(min=0)), labels, torch.stack(proposals)

    def _of_clusters(
        self, tree: LabelTree, states: Any, inputs: Mapping[str, Tensor]
    ) -> tuple[Tensor, ...]:
        count = inputs["picks"].shape[0]
        leaves = tree.pick(states, count, allowed=inputs["allowed"])[-1]
        labels = torch.cat([inputs["candidates"], tree.members[leaves].flatten(1)], 1)
        return self._logits(states, labels.clamp(min=0)), labels

    def _logits(self, states: Any, labels: slice | Tensor) -> Tensor:
        return torch.stack(list(self.system.expert_logits(states, labels).values()))

    @staticmethod
    def _propose(mixture: ExpertMixture, states: dict[str, Any]) -> Tensor:
        """Return the document expert's logits of every label, (B, L)."""
        proposer = mixture.proposer
        assert proposer is not None, "a rule for shortlists"
        return proposer.logits(states[proposer.name], slice(0, mixture.n_labels)).float()

    def example(self, features: Mapping[str, np.ndarray]) -> dict[str, Tensor]:
        """Return inputs of the right kinds, which the graph is traced with.

        Args:
            features: Companions' features of two texts.
        """
        chunking = self.system.chunking
        length = 9 if chunking is None else chunking.window
        ids = torch.ones(2, length, dtype=torch.int64)
        mask = torch.ones_like(ids)
        mask[0, -1] = 0
        inputs = {"input_ids": ids, "attention_mask": mask}
        if chunking is not None:
            places = torch.arange(3 * chunking.window)[:5].expand(2, -1).contiguous()
            inputs["chunk_ids"] = torch.ones(3, chunking.window, dtype=torch.int64)
            inputs["places"] = places
            inputs["chunks"] = torch.arange(2).expand(2, -1).contiguous()
        inputs |= {name: torch.from_numpy(np.array(rows)) for name, rows in features.items()}
        if self.shortlists or self.tree is not None:
            inputs["candidates"] = torch.zeros(2, 3, dtype=torch.int64)
            inputs["allowed"] = torch.ones(self.system.n_labels, dtype=torch.bool)
        if self.tree is not None:
            inputs["picks"] = torch.zeros(2, dtype=torch.int64)
        return inputs

    def dynamic_axes(self, inputs: Mapping[str, Tensor]) -> dict[str, dict[int, Any]]:
        """Return which axes of the inputs have any size, by the input's name."""
        documents = torch.export.Dim("documents", min=1)
        sizes: dict[str, dict[int, Any]] = {name: {0: documents} for name in inputs}
        length = torch.export.Dim("tokens", min=1)
        for name in _TOKENS:
            sizes[name][1] = length
        if "chunk_ids" in inputs:
            sizes["chunk_ids"] = {0: torch.export.Dim("all_chunks", min=1)}
            sizes["places"][1] = torch.export.Dim("further_tokens", min=1)
            sizes["chunks"][1] = torch.export.Dim("further_chunks", min=1)
        if "candidates" in inputs:
            sizes["candidates"][1] = torch.export.Dim("candidates", min=1)
            sizes["allowed"] = {}
        if self.tree is not None:
            _, most = self._picks(self.tree)
            sizes["picks"] = {0: torch.export.Dim("picks", min=1, max=most)}
        return sizes


def _batch(inputs: Mapping[str, Tensor]) -> Batch:
    ids = inputs["input_ids"]
    continuation = None
    if "chunk_ids" in inputs:
        continuation = Continuation(*(inputs[name] for name in _CHUNKS))
    return Batch(
        ids,
        inputs["attention_mask"].bool(),
        gold=ids[:, :1],
        positions=np.zeros(0, np.int64),
        denominator=1.0,
        padded=True,
        companion_features={n: rows for n, rows in inputs.items() if n not in _NOT_FEATURES},
        continuation=continuation,
    )


def _only_tree(mixtures: Sequence[ExpertMixture]) -> LabelTree | None:
    """Return the clusters of a model; None where it has none."""
    trees = [mixture.tree for mixture in mixtures if mixture.tree is not None]
    if len(trees) > 1:
        raise ModelError(
            "this model cannot be exported: each of its members has clusters of its own; train it "
            "with train.members=1"
        )
    if trees and trees[0].sizes[-1] < 2:
        raise ModelError("this model cannot be exported: all its labels are in one cluster")
    return trees[0] if trees else None


def _fix_labels(expert: Expert) -> None:
    """Turn an expert's label tensors into constants, also those that are computed from texts."""
    if not expert.scores_rows:
        return
    tensors = tuple(tensor.detach() for tensor in expert.label_tensors())
    for number, tensor in enumerate(tensors):
        expert.register_buffer(f"label_rows_{number}", tensor, persistent=False)
    expert.label_tensors = lambda: tensors  # type: ignore[method-assign]
