"""The words behind a tag: the label-attention expert's weights, mapped back to the text.

A label's attention over tokens is summed over the pieces of each word; special tokens have no place
in the text and are skipped, so the weights of a tag may sum to less than one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

import torch

from glocal.experts.label_attention import LabelAttentionExpert
from glocal.ranking.ranker import Ranker
from glocal.systems.mixture_ensemble import MixtureEnsemble, mixtures_of

if TYPE_CHECKING:
    import numpy as np
    from torch import Tensor

    from glocal.companions.sparse.word_weights import Contribution


@dataclass(frozen=True)
class Span:
    """A word of the text and its share of a label's attention."""

    start: int
    end: int
    text: str
    weight: float


@dataclass(frozen=True)
class TagExplanation:
    """A predicted label, each expert's score of it, and the words behind it."""

    label_id: str
    label_name: str
    score: float
    expert_scores: dict[str, float]
    spans: list[Span]
    weighed: list[Span] = field(default_factory=list)  # by the sparse expert, in log-odds

    def to_dict(self) -> dict[str, Any]:
        """Return plain values for JSON."""
        return asdict(self)


def attention_weights(system: Ranker, states: Any, labels: Tensor) -> Tensor | None:
    """Return the labels' attention over tokens (k, T); None without an attention expert.

    The weights are the mean over all attention experts, of every member of an ensemble.

    Args:
        system: In evaluation mode.
        states: What it prepared of one document, without padding.
        labels: (1, k) label ids.
    """
    members = mixtures_of(system)
    prepared = states if isinstance(system, MixtureEnsemble) else [states]
    weights = [
        expert.attention(state[expert.name], labels)[0]
        for member, state in zip(members, prepared, strict=False)
        for expert in member.experts
        if isinstance(expert, LabelAttentionExpert)
    ]
    return torch.stack(weights).mean(0).cpu() if weights else None


def attention_spans(
    weights: Tensor | None,
    text: str,
    tokens: tuple[Sequence[tuple[int, int]], Sequence[int | None]],
    *,
    order: np.ndarray | None = None,
    words: int,
) -> list[list[Span]]:
    """Return for each label the words with the highest attention weights.

    Args:
        weights: (k, T) from `attention_weights`; without any there are no spans.
        text: The text.
        tokens: The character span and the word number of each token.
        order: (T,) the token each weight belongs to; by default they are in order.
        words: Number of words at most.
    """
    if weights is None:
        return []
    places = range(weights.shape[1]) if order is None else order.tolist()
    offsets, word_ids = [tokens[0][place] for place in places], [tokens[1][p] for p in places]
    return [_top_words(row, text, offsets, word_ids, words) for row in weights]


def weighed_spans(found: Sequence[Contribution], text: str, words: int) -> list[Span]:
    """Return the phrases with the largest weights for a label, where each first stands.

    Args:
        found: The contribution of each phrase to the log-odds.
        text: The text.
        words: Number of phrases at most.
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
    """Trim a span: some tokenizers (SentencePiece) count the space before a word as part of it."""
    piece = text[start:end]
    return start + len(piece) - len(piece.lstrip()), start + len(piece.rstrip())
