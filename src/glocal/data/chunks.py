"""Chunks of documents that are longer than an encoder's window.

- The first chunk is the document truncated at the window.
- The rest is covered by full chunks, spread evenly: each overlaps the text before it by at least
  `overlap` tokens, ends with new tokens, and has the special tokens. A chunk is thus never padded,
  and the hidden states of a token depend on its document alone.
- `Continuation` holds the further chunks of a batch: each token is read from the chunk in which it
  is new.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from glocal.arrays import Ints

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True)
class Chunking:
    """The way long documents are cut.

    Args:
        window: Tokens of a chunk, special tokens included.
        overlap: Minimum number of tokens that neighbouring chunks share.
        before: Special tokens at the start of every chunk.
        after: Special tokens at its end.
    """

    window: int
    overlap: int
    before: int
    after: int

    @property
    def body(self) -> int:
        """Tokens of a chunk that are not special."""
        return self.window - self.before - self.after

    @property
    def step(self) -> int:
        """Maximum number of new tokens of a chunk."""
        return self.body - self.overlap

    def first(self, tokens: NDArray[Any]) -> NDArray[Any]:
        """Return the first chunk: the document, truncated at the window."""
        return tokens[self.order(len(tokens))[: self.window]]

    def order(self, length: int) -> Ints:
        """Return the places of a document's tokens in the order of attention: first chunk, rest."""
        places = np.arange(length)
        if length <= self.window:
            return places
        middle = self.window - self.after
        return np.concatenate(
            [places[:middle], places[length - self.after :], places[middle : length - self.after]]
        )

    def beyond(self, tokens: NDArray[Any]) -> Iterator[tuple[NDArray[Any], int]]:
        """Yield the further chunks of a document, each with the number of new tokens at its end.

        Args:
            tokens: The document, special tokens included once.
        """
        rest = len(tokens) - self.window
        end = len(tokens) - self.after
        n_chunks = -(-rest // self.step) if rest > 0 else 0
        done = 0
        for number in range(1, n_chunks + 1):
            upto = number * rest // n_chunks  # even steps: no chunk has only a few new tokens
            stop = end - rest + upto
            parts = [tokens[: self.before], tokens[stop - self.body : stop], tokens[end:]]
            yield np.concatenate(parts), upto - done
            done = upto


@dataclass(frozen=True)
class Continuation:
    """The part of a batch's documents beyond their first chunk."""

    input_ids: Tensor  # (N, C) int64, chunks of all documents, none padded
    places: Tensor  # (B, S) int64, tokens among the N · C of all chunks, −1 where there are fewer
    chunks: Tensor  # (B, K) int64, the chunks of each document, −1 where there are fewer

    def tensors(self) -> tuple[Tensor, ...]:
        """Return all tensors."""
        return self.input_ids, self.places, self.chunks

    def map(self, change: Callable[[Tensor], Tensor]) -> Continuation:
        """Return a copy with every tensor changed."""
        return Continuation(*(change(tensor) for tensor in self.tensors()))


def continuation_arrays(
    documents: Sequence[NDArray[Any]], chunking: Chunking, *, pad_id: int, multiple: int = 1
) -> tuple[Ints, Ints, Ints] | None:
    """Return the further chunks of a batch as in `Continuation`; None if no document has any.

    Args:
        documents: Token ids of each, special tokens included once.
        chunking: The way documents are cut.
        pad_id: Fills empty chunks.
        multiple: The longest continuation is rounded up to a multiple of this where they differ,
            and the number of chunks to a multiple of it or of the documents: few shapes.
    """
    chunks: list[NDArray[Any]] = []
    places: list[Ints] = []
    owned: list[Ints] = []
    for document in documents:
        start, spans = len(chunks), []
        for chunk, new in chunking.beyond(document):
            chunks.append(chunk)
            end = len(chunks) * chunking.window - chunking.after
            spans.append(np.arange(end - new, end))
        places.append(np.concatenate(spans) if spans else np.zeros(0, np.int64))
        owned.append(np.arange(start, len(chunks)))
    if not chunks:
        return None
    lengths = {len(row) for row in places}
    longest = max(lengths) if len(lengths) == 1 else rounded(max(lengths), multiple)
    n_chunks = rounded(len(chunks), min(multiple, len(documents)))
    ids = np.full((n_chunks, chunking.window), pad_id, dtype=np.int64)
    ids[: len(chunks)] = chunks
    # The most chunks that the longest continuation may need: one shape for each rounded length.
    most = -(-longest // chunking.step)
    return ids, padded_rows(places, longest), padded_rows(owned, most)


def rounded(count: int, multiple: int) -> int:
    """Return a number rounded up to a multiple."""
    return -(-count // multiple) * multiple


def padded_rows(rows: Sequence[NDArray[Any]], width: int) -> Ints:
    """Return rows of whole numbers as a matrix of this width, with −1 at their ends."""
    padded = np.full((len(rows), width), -1, dtype=np.int64)
    for place, row in zip(padded, rows, strict=True):
        place[: len(row)] = row
    return padded
