"""Tokenisation of a corpus: done once, cached on disk and memory-mapped afterwards.

- One flat array of token ids (`uint16` where the vocabulary allows, else `uint32`) and the offsets
  of the documents in it. Documents are cut at `max_length`; special tokens are included.
- A cache entry is keyed by the texts, the tokenizer and `max_length`.
- Memory is bounded by a batch of texts and eight bytes a document.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from glocal.arrays import Ints
from glocal.data.cache import cached
from glocal.data.corpus import Corpus
from glocal.data.stored_arrays import check_range, read_array
from glocal.progress import Progress, report

FORMAT_VERSION = 2
BATCH_TEXTS = 1024
TOKENS_FILE, OFFSETS_FILE = "tokens.bin", "offsets.npy"


class TextTokenizer(Protocol):
    """The interface of tokenizers that `tokenise` uses."""

    @property
    def fingerprint(self) -> str:
        """Identifies the tokenizer: changes whenever the token ids of some text do."""

    @property
    def vocab_size(self) -> int:
        """Number of token ids."""

    @property
    def id_bound(self) -> int:
        """The largest token id plus one."""

    def encode_batch(self, texts: list[str], max_length: int) -> list[list[int]]:
        """Return the token ids of each text, special tokens included, at most `max_length`."""


Encode = Callable[[TextTokenizer, Iterable[list[str]], int], Iterator[list[list[int]]]]
"""Tokenises batches of texts, in their order; the number is the most tokens of a text."""


def encode_here(
    tokenizer: TextTokenizer, batches: Iterable[list[str]], max_length: int
) -> Iterator[list[list[int]]]:
    """Tokenise batches of texts in this process."""
    for texts in batches:
        yield tokenizer.encode_batch(texts, max_length)


class TokenStore:
    """The token ids of every document.

    Args:
        tokens: The ids of all documents, one after another.
        offsets: (n + 1,) start of each document, and the end of the last.
    """

    def __init__(self, tokens: NDArray[Any], offsets: Ints) -> None:
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
    def lengths(self) -> Ints:
        """Number of tokens of each document."""
        return np.diff(self._offsets)

    def counts(self) -> Any:
        """Return how often each document has each token: a float32 CSR matrix (n, tokens)."""
        from scipy.sparse import csr_matrix

        ids = np.asarray(self._tokens).astype(np.int32)
        shape = (len(self), int(ids.max(initial=0)) + 1)
        counts = csr_matrix((np.ones(len(ids), np.float32), ids, self._offsets), shape=shape)
        counts.sum_duplicates()
        return counts


def tokenise(
    corpus: Corpus,
    tokenizer: TextTokenizer,
    *,
    max_length: int,
    encode: Encode | None = None,
    progress: Progress | None = None,
) -> TokenStore:
    """Tokenise a corpus, or open the result of an earlier call on the same texts.

    Args:
        corpus: The texts.
        tokenizer: Returns the token ids of texts.
        max_length: Maximum number of tokens per document.
        encode: Tokenises batches of texts; by default in this process.
        progress: Called with the number of documents done and their total.

    Raises:
        DataError: The cache folder cannot be written to.
    """
    dtype = np.dtype(np.uint16 if tokenizer.vocab_size <= 1 << 16 else np.uint32)
    total = len(corpus)

    def write(folder: Path) -> None:
        offsets = np.zeros(total + 1, dtype=np.int64)
        done = 0
        with open(folder / TOKENS_FILE, "wb") as file:
            batches = corpus.iter_texts(BATCH_TEXTS)
            for encoded in (encode or encode_here)(tokenizer, batches, max_length):
                lengths = [len(ids) for ids in encoded]
                flat = itertools.chain.from_iterable(encoded)
                np.fromiter(flat, dtype=dtype, count=sum(lengths)).tofile(file)
                offsets[done + 1 : done + 1 + len(lengths)] = lengths
                done += len(lengths)
                report(progress, done, total)
        np.cumsum(offsets, out=offsets)
        np.save(folder / OFFSETS_FILE, offsets, allow_pickle=False)

    def read(entry: Path) -> TokenStore:
        offsets = read_array(entry / OFFSETS_FILE, np.int64)
        size = (entry / TOKENS_FILE).stat().st_size
        if len(offsets) != total + 1 or offsets[0] != 0 or np.any(np.diff(offsets) < 0):
            raise ValueError("the offsets are damaged")
        if size != offsets[-1] * dtype.itemsize:
            raise ValueError(f"{size} bytes of tokens; expected {offsets[-1] * dtype.itemsize}")
        if size == 0:  # an empty file cannot be mapped
            return TokenStore(np.zeros(0, dtype=dtype), offsets)
        tokens = np.memmap(entry / TOKENS_FILE, dtype=dtype, mode="r")
        check_range("the token ids", tokens, 0, tokenizer.id_bound)
        return TokenStore(tokens, offsets)

    key = [FORMAT_VERSION, corpus.fingerprint(), tokenizer.fingerprint, max_length]
    return cached("tokens", key, write=write, read=read)
