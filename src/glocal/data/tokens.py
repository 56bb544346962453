"""Tokenising a corpus once, into a cache that is memory-mapped afterwards.

- One flat array of token ids (`uint16` where the vocabulary allows, else `uint32`) and the offsets
  of the documents in it. Documents are cut at `max_length`; special tokens are included.
- An entry is keyed by the texts, the tokenizer and `max_length`, written under a temporary name and
  renamed, and checked when opened: a damaged one is built again.
- Memory is bounded by a batch of texts and eight bytes a document.
"""

from __future__ import annotations

import hashlib
import itertools
import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from glocal.data.atomic import replace_dir, temporary_dir
from glocal.data.cache import cache_dir as default_cache_dir
from glocal.data.cache import cache_error
from glocal.data.corpus import Corpus
from glocal.progress import Progress

__all__ = ["TextTokenizer", "TokenStore", "tokenise"]

FORMAT_VERSION = 1
BATCH_TEXTS = 1024
TOKENS_FILE, OFFSETS_FILE, META_FILE = "tokens.bin", "offsets.bin", "meta.json"


class TextTokenizer(Protocol):
    """What `tokenise` needs of a tokenizer."""

    @property
    def fingerprint(self) -> str:
        """A name that changes whenever the token ids of some text do."""

    @property
    def vocab_size(self) -> int:
        """The number of token ids."""

    def encode_batch(self, texts: list[str], max_length: int) -> list[list[int]]:
        """The token ids of each text, special tokens included, at most `max_length`."""


class TokenStore:
    """The token ids of every document.

    Args:
        tokens: The ids of all documents, one after another.
        offsets: Where each document starts, and where the last one ends (n + 1).
    """

    def __init__(self, tokens: NDArray[Any], offsets: NDArray[np.int64]) -> None:
        self._tokens = tokens
        self._offsets = offsets

    @classmethod
    def in_memory(cls, documents: Iterable[Sequence[int]]) -> TokenStore:
        """Build a store from lists of token ids."""
        lists = [np.asarray(document, dtype=np.uint32) for document in documents]
        lengths = np.array([0, *map(len, lists)], dtype=np.int64)
        tokens = np.concatenate(lists) if lists else np.zeros(0, dtype=np.uint32)
        return cls(tokens, np.cumsum(lengths, dtype=np.int64))

    def __len__(self) -> int:
        return len(self._offsets) - 1

    def __getitem__(self, index: int) -> NDArray[Any]:
        position = range(len(self))[index]
        return self._tokens[self._offsets[position] : self._offsets[position + 1]]

    @property
    def lengths(self) -> NDArray[np.int64]:
        """The number of tokens of each document."""
        return np.diff(self._offsets)


def tokenise(
    corpus: Corpus,
    tokenizer: TextTokenizer,
    *,
    max_length: int,
    cache_dir: str | Path | None = None,
    progress: Progress | None = None,
) -> TokenStore:
    """Tokenise a corpus, or open the result of an earlier call on the same texts.

    Args:
        corpus: The texts.
        tokenizer: Gives the token ids of texts.
        max_length: The most tokens a document keeps.
        cache_dir: Where entries are kept; the library's cache folder by default.
        progress: Called with the number of documents done and their total.

    Raises:
        DataError: The cache folder cannot be written to.
    """
    root = default_cache_dir("tokens") if cache_dir is None else Path(cache_dir)
    entry = root / _key(corpus, tokenizer, max_length)
    store = _open(entry, n_documents=len(corpus))
    if store is not None:
        return store
    try:
        with temporary_dir(entry) as folder:
            _write(folder, corpus, tokenizer, max_length=max_length, progress=progress)
            replace_dir(folder, entry)
    except OSError as error:
        store = _open(entry, n_documents=len(corpus))
        if store is not None:  # another process finished the same entry first
            return store
        raise cache_error(root, error) from error
    store = _open(entry, n_documents=len(corpus))
    if store is None:
        raise cache_error(root, OSError("an entry just written cannot be read back"))
    return store


def _key(corpus: Corpus, tokenizer: TextTokenizer, max_length: int) -> str:
    parts = [FORMAT_VERSION, corpus.fingerprint(), tokenizer.fingerprint, max_length]
    return hashlib.blake2b(json.dumps(parts).encode(), digest_size=16).hexdigest()


def _write(
    folder: Path,
    corpus: Corpus,
    tokenizer: TextTokenizer,
    *,
    max_length: int,
    progress: Progress | None,
) -> None:
    dtype = np.dtype(np.uint16 if tokenizer.vocab_size <= 1 << 16 else np.uint32)
    total = len(corpus)
    offsets = np.zeros(total + 1, dtype=np.int64)
    done = 0
    with open(folder / TOKENS_FILE, "wb") as file:
        for texts in corpus.iter_texts(BATCH_TEXTS):
            encoded = tokenizer.encode_batch(texts, max_length)
            lengths = [len(ids) for ids in encoded]
            flat = itertools.chain.from_iterable(encoded)
            np.fromiter(flat, dtype=dtype, count=sum(lengths)).tofile(file)
            offsets[done + 1 : done + 1 + len(texts)] = lengths
            done += len(texts)
            if progress is not None:
                progress(done, total)
    np.cumsum(offsets, out=offsets)
    offsets.tofile(folder / OFFSETS_FILE)
    meta = {"dtype": dtype.name, "n_documents": total, "n_tokens": int(offsets[-1])}
    (folder / META_FILE).write_text(json.dumps(meta), encoding="utf-8")


def _open(entry: Path, *, n_documents: int) -> TokenStore | None:
    """Map an entry of the cache; None when it is missing or damaged."""
    try:
        meta = json.loads((entry / META_FILE).read_text(encoding="utf-8"))
        dtype, n_tokens = np.dtype(meta["dtype"]), int(meta["n_tokens"])
        offsets = np.fromfile(entry / OFFSETS_FILE, dtype=np.int64)
        size = (entry / TOKENS_FILE).stat().st_size
    except (OSError, ValueError, KeyError, TypeError):
        return None
    whole = len(offsets) == n_documents + 1 and size == n_tokens * dtype.itemsize
    if not whole or offsets[0] != 0 or offsets[-1] != n_tokens or np.any(np.diff(offsets) < 0):
        return None
    if n_tokens == 0:  # an empty file cannot be mapped
        return TokenStore(np.zeros(0, dtype=dtype), offsets)
    tokens = np.memmap(entry / TOKENS_FILE, dtype=dtype, mode="r", shape=(n_tokens,))
    return TokenStore(tokens, offsets)
