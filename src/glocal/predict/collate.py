"""Batches of texts as a model reads them: its tokens and its companions' features."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from glocal.data.batches import Collator
from glocal.data.corpus import Corpus
from glocal.data.tokens import TokenStore, tokenise
from glocal.predict.predict_options import check_unicode

if TYPE_CHECKING:
    from glocal.predict.predictor import Predictor


def collate(
    predictor: Predictor, texts: Sequence[str] | Corpus, *, allowed: np.ndarray | None = None
) -> Collator:
    """Return what makes batches of texts; the tokens of a corpus are cached on disk.

    Args:
        predictor: The model.
        texts: The texts.
        allowed: (L,) bool, the only labels that will be asked for; by default all.
    """
    length, companions = predictor.recipe.encoder.tokens_read, predictor.companions
    if isinstance(texts, Corpus):
        tokens = tokenise(texts, predictor.tokenizer, max_length=length)
        return collator(predictor, tokens, companions.features(texts, allowed=allowed))
    check_unicode(texts)
    tokens = TokenStore.in_memory(predictor.tokenizer.encode_batch(list(texts), length))
    return collator(predictor, tokens, companions.features_for_texts(texts, allowed=allowed))


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
