"""The words behind a tag: the label-attention expert's weights, mapped back to the text.

A label's attention over tokens is summed over the pieces of each word; special tokens have no place
in the text and are left out of the spans, so the weights of a tag may sum to less than one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

import torch

from glocal.data.batches import Batch
from glocal.experts.label_attention import LabelAttentionExpert
from glocal.ranking.ranker import Ranker
from glocal.systems.mixture import ExpertMixture
from glocal.systems.mixture_ensemble import mixtures_of

if TYPE_CHECKING:
    import numpy as np
    from torch import Tensor

    from glocal.companions.sparse.word_weights import Contribution

__all__ = ["Span", "TagExplanation", "attention_spans", "weighed_spans"]


@dataclass(frozen=True)
class Span:
    """A word of the text and its share of a label's attention."""

    start: int
    end: int
    text: str
    weight: float


@dataclass(frozen=True)
class TagExplanation:
    """One predicted label, what each expert gave it, and the words behind it."""

    label_id: str
    label_name: str
    score: float
    expert_scores: dict[str, float]
    spans: list[Span]
    weighed: list[Span] = field(default_factory=list)  # by the sparse expert, in log-odds

    def to_dict(self) -> dict[str, Any]:
        """Plain values, for JSON."""
        return asdict(self)


def attention_spans(
    system: Ranker,
    batch: Batch,
    labels: np.ndarray,
    *,
    text: str,
    offsets: Sequence[tuple[int, int]],
    word_ids: Sequence[int | None],
    words: int,
) -> list[list[Span]]:
    """For each label, the words with the highest attention weights; none without attention.

    The weights are the mean over all attention experts, of every member where there are several.

    Args:
        system: In evaluation mode.
        batch: The one document, without padding.
        labels: (k,) label ids.
        text: Its text.
        offsets: Character span of each token.
        word_ids: The word each token belongs to.
        words: How many words at most.
    """
    chosen = torch.from_numpy(labels).to(batch.input_ids.device)[None]  # (1, k)
    with torch.inference_mode():
        weights = [
            row for member in mixtures_of(system) for row in _attention(member, batch, chosen)
        ]
    if not weights:
        return [[] for _ in labels]
    mean = torch.stack(weights).mean(0).cpu()  # (k, T)
    return [_top_words(row, text, offsets, word_ids, words) for row in mean]


def _attention(mixture: ExpertMixture, batch: Batch, chosen: Tensor) -> list[Tensor]:
    """Each attention expert's weights of the chosen labels, (k, T)."""
    experts = [e for e in mixture.experts if isinstance(e, LabelAttentionExpert)]
    states = mixture.prepare(batch) if experts else {}
    return [expert.attention(states[expert.name], chosen)[0] for expert in experts]


def weighed_spans(found: Sequence[Contribution], text: str, words: int) -> list[Span]:
    """The phrases that speak most for a label, each where it first stands in the text.

    Args:
        found: What each phrase adds to the log-odds.
        text: The text.
        words: How many phrases at most.
    """
    totals: dict[tuple[int, int], float] = {}
    for contribution in found:
        for place in contribution.spans[:1]:
            totals[place] = totals.get(place, 0.0) + contribution.weight
    best = sorted((-weight, place) for place, weight in totals.items() if weight > 0)[:words]
    return [Span(start, end, text[start:end], -weight) for weight, (start, end) in best]


def _top_words(
    weights: Tensor,
    text: str,
    offsets: Sequence[tuple[int, int]],
    word_ids: Sequence[int | None],
    words: int,
) -> list[Span]:
    merged: dict[int, tuple[int, int, float]] = {}
    for weight, (start, end), word in zip(weights.tolist(), offsets, word_ids, strict=True):
        start, end = _without_spaces(text, start, end)
        if word is None or end <= start:
            continue
        first, last, total = merged.get(word, (start, end, 0.0))
        merged[word] = (min(first, start), max(last, end), total + weight)
    best = sorted(merged.values(), key=lambda span: (-span[2], span[0]))[:words]
    return [Span(start, end, text[start:end], weight) for start, end, weight in best]


def _without_spaces(text: str, start: int, end: int) -> tuple[int, int]:
    """Some tokenizers (SentencePiece) count the space before a word as a part of it."""
    piece = text[start:end]
    return start + len(piece) - len(piece.lstrip()), start + len(piece.rstrip())
