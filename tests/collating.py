"""Batches of a few documents for tests."""

from glocal.data.batches import Collator
from glocal.data.tokens import TokenStore
from glocal.encoders.tokenizer import TokenizerFacts


def collate(tokens, positions, *, pad_id=0, left=False, denominator=None, multiple=8, **options):
    """A batch of the documents at some positions."""
    store = tokens if isinstance(tokens, TokenStore) else TokenStore.in_memory(tokens)
    collator = Collator(store, TokenizerFacts(pad_id, cls_last=left), **options)
    return collator(positions, denominator=denominator, multiple=multiple)
