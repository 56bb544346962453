"""A system as one graph, from token ids to the experts' logits.

There are two forms, by the way a model predicts:

- every label: `labels` (C,), consecutive ids, are scored for all documents;
- a shortlist: the document expert's best labels and `candidates` (B, M) of each document are
  scored. The graph also returns which labels these are, and the document expert's logits of all.

Documents come as `input_ids` and `attention_mask` (B, T), and with the features of companions where
experts read them. Documents longer than the encoder's window also have `chunk_ids` (N, C), `places`
(B, S) and `chunks` (B, K), as in `data.chunks.Continuation`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from glocal.data.batches import Batch
from glocal.data.chunks import Continuation
from glocal.encoders.encoder import Encoder
from glocal.experts.expert import Expert
from glocal.experts.label_attention import LabelAttentionExpert
from glocal.ranking.graph_ranker import GraphFacts
from glocal.ranking.ranker import Ranker
from glocal.systems.mixture import ExpertMixture
from glocal.systems.mixture_ensemble import mixtures_of

_TOKENS, _CHUNKS = ("input_ids", "attention_mask"), ("chunk_ids", "places", "chunks")


class ScoringGraph(nn.Module):
    """Computes the logits of labels by every expert.

    Args:
        system: A trained system; its label parameters become constants.
    """

    def __init__(self, system: Ranker) -> None:
        super().__init__()
        self.system = system
        self.mixtures = mixtures_of(system)
        self.shortlists = any(mixture.shortlists for mixture in self.mixtures)
        for module in system.modules():
            if isinstance(module, Expert):
                _fix_labels(module)
            if isinstance(module, LabelAttentionExpert):
                module.fold_output()
            if isinstance(module, Encoder) and module.model.config.model_type != "mpnet":
                # PyTorch's own attention would be written with checks for texts without a token.
                module.model.config._attn_implementation = "eager"

    def facts(self) -> GraphFacts:
        """Return the facts that a runtime needs."""
        width, proposed = 1, 0
        for mixture in self.mixtures:
            width = max(width, *(e.label_width for e in mixture.experts if isinstance(e, Expert)))
            if mixture.shortlists:
                proposed = self._proposed(mixture)
        names = tuple(self.system.expert_names)
        return GraphFacts("onnx", "fp32", names, proposed, width)

    @staticmethod
    def _proposed(mixture: ExpertMixture) -> int:
        return min(mixture.recipe.candidates.predict, mixture.n_labels)

    def forward(self, inputs: Mapping[str, Tensor]) -> tuple[Tensor, ...]:
        """Return logits (E, B, C) of the experts; with a shortlist see the module's docstring."""
        batch = _batch(inputs)
        states = self.system.prepare(batch)
        if not self.shortlists:
            return (self._logits(states, inputs["labels"]),)
        own = states if isinstance(states, list) else [states]
        proposals = [self._propose(m, s) for m, s in zip(self.mixtures, own, strict=True)]
        allowed = inputs["allowed"]
        lists = [inputs["candidates"]]
        for mixture, found in zip(self.mixtures, proposals, strict=True):
            usable = found.masked_fill(~allowed, -torch.inf)
            lists.append(usable.topk(self._proposed(mixture), dim=1).indices)
        labels = torch.cat(lists, 1)
        logits = self._logits(states, labels.clamp(min=0))
        return logits, labels, torch.stack(proposals)

    def _logits(self, states: Any, labels: Tensor) -> Tensor:
        return torch.stack(list(self.system.expert_logits(states, labels).values()))

    @staticmethod
    def _propose(mixture: ExpertMixture, states: dict[str, Any]) -> Tensor:
        """Return the document expert's logits of every label, (B, L)."""
        proposer = mixture.proposer
        assert proposer is not None, "a rule for shortlists"
        every = torch.arange(mixture.n_labels)
        return proposer.logits(states[proposer.name], every).float()

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
        if not self.shortlists:
            return {**inputs, "labels": torch.arange(min(self.system.n_labels, 5))}
        inputs["candidates"] = torch.zeros(2, 3, dtype=torch.int64)
        inputs["allowed"] = torch.ones(self.system.n_labels, dtype=torch.bool)
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
        if self.shortlists:
            sizes["candidates"][1] = torch.export.Dim("candidates", min=1)
            sizes["allowed"] = {}
        else:
            sizes["labels"] = {0: torch.export.Dim("labels", min=1)}
        return sizes


def _batch(inputs: Mapping[str, Tensor]) -> Batch:
    ids = inputs["input_ids"]
    known = {*_TOKENS, *_CHUNKS, "labels", "candidates", "allowed"}
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
        companion_features={n: rows for n, rows in inputs.items() if n not in known},
        continuation=continuation,
    )


def _fix_labels(expert: Expert) -> None:
    """Turn an expert's label tensors into constants, also those that are computed from texts."""
    if not expert.scores_rows:
        return
    tensors = tuple(tensor.detach() for tensor in expert.label_tensors())
    for number, tensor in enumerate(tensors):
        expert.register_buffer(f"label_rows_{number}", tensor, persistent=False)
    expert.label_tensors = lambda: tensors  # type: ignore[method-assign]
