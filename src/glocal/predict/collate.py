"""Batches of texts as a model reads them: its tokens and its companions' features."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import numpy as np

from glocal.data.batches import Collator
from glocal.data.corpus import Corpus
from glocal.data.tokens import TokenStore, tokenise
from glocal.predict.predict_options import allowed_labels, check_unicode

if TYPE_CHECKING:
    from glocal.predict.predictor import Predictor


_FEW_TEXTS = 64  # texts up to which starting a thread is not worth while


class PreparedTexts(Sequence[str]):
    """Texts that a model has read already: predicting them, also several times, is quicker.

    Args:
        texts: The texts.
        documents: Makes batches of them.
    """

    def __init__(self, texts: Sequence[str], documents: Collator) -> None:
        self._texts, self.documents = texts, documents

    def __len__(self) -> int:
        return len(self._texts)

    def __getitem__(self, place: Any) -> Any:
        return self._texts[place]


def prepare_texts(
    predictor: Predictor,
    texts: Sequence[str],
    *,
    only: Sequence[str] | None = None,
    exclude: Sequence[str] | None = None,
) -> PreparedTexts:
    """Read texts, perhaps in another thread, for `predict` with the same `only` and `exclude`."""
    allowed = allowed_labels(predictor.labels, only, exclude)
    return PreparedTexts(texts, collate(predictor, texts, allowed=allowed))


def collate(
    predictor: Predictor, texts: Sequence[str] | Corpus, *, allowed: np.ndarray | None = None
) -> Collator:
    """Return what makes batches of texts; the tokens of a corpus are cached on disk.

    Args:
        predictor: The model.
        texts: The texts.
        allowed: (L,) bool, the only labels that will be asked for; by default all.
    """
    if isinstance(texts, PreparedTexts):
        return texts.documents
    length, companions = predictor.recipe.encoder.tokens_read, predictor.companions
    if isinstance(texts, Corpus):
        tokens = tokenise(texts, predictor.tokenizer, max_length=length)
        return collator(predictor, tokens, companions.features(texts, allowed=allowed))
    check_unicode(texts)
    if len(texts) <= _FEW_TEXTS or not companions:
        tokens = TokenStore.in_memory(predictor.tokenizer.encode_batch(list(texts), length))
        return collator(predictor, tokens, companions.features_for_texts(texts, allowed=allowed))
    with ThreadPoolExecutor(1) as pool:  # both are compiled code that releases Python's lock
        encoded = pool.submit(predictor.tokenizer.encode_batch, list(texts), length)
        features = companions.features_for_texts(texts, allowed=allowed)
        return collator(predictor, TokenStore.in_memory(encoded.result()), features)


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
