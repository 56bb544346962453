"""Batches of texts as a model reads them: its tokens and its companions' features."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from glocal.data.batches import Collator
from glocal.data.tokens import TokenStore, tokenise

if TYPE_CHECKING:
    from glocal.data.corpus import Corpus
    from glocal.predict.predictor import Predictor


def collate_corpus(
    predictor: Predictor, corpus: Corpus, *, allowed: np.ndarray | None = None
) -> Collator:
    """Return what makes batches of a corpus; its tokens are cached on disk.

    Args:
        predictor: The model.
        corpus: The texts.
        allowed: (L,) bool, the only labels that will be asked for; by default all.
    """
    length = predictor.recipe.encoder.tokens_read
    tokens = tokenise(corpus, predictor.tokenizer, max_length=length)
    return collator(predictor, tokens, predictor.companions.features(corpus, allowed=allowed))


def collator(
    predictor: Predictor, tokens: TokenStore, features: Mapping[str, np.ndarray]
) -> Collator:
    """Return what makes batches of texts that were tokenised."""
    return Collator(
        tokens,
        predictor.tokenizer.facts,
        n_labels=len(predictor.labels),
        companion_features=features,
        chunking=predictor.system.chunking,
    )
