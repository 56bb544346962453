"""Documents longer than an encoder's window, cut into chunks that it can read.

- the first chunk is the document cut at the window, as if nothing followed;
- the rest is covered by chunks that are full too, spread evenly: each reaches back over what came
  before it by at least `overlap` tokens, ends with tokens of its own, and carries the special
  tokens. A chunk is thus never padded, and what it says of a token depends on its document alone;
- `Continuation` is the rest of a batch's documents: each token has its place once, in the chunk
  that it is new in.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

__all__ = ["Chunking", "Continuation", "continuation_of"]


@dataclass(frozen=True)
class Chunking:
    """How long documents are cut.

    Args:
        window: Tokens of a chunk, special tokens included.
        overlap: Tokens that neighbouring chunks share at least.
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
        """New tokens of a chunk at most."""
        return self.body - self.overlap

    def first(self, tokens: NDArray[Any]) -> NDArray[Any]:
        """The first chunk: the document as it is, or cut at the window."""
        return tokens[self.order(len(tokens))[: self.window]]

    def order(self, length: int) -> NDArray[np.int64]:
        """Places of a document's tokens in the order they are attended to: first chunk, rest."""
        places = np.arange(length)
        if length <= self.window:
            return places
        middle = self.window - self.after
        return np.concatenate(
            [places[:middle], places[length - self.after :], places[middle : length - self.after]]
        )

    def beyond(self, tokens: NDArray[Any]) -> Iterator[tuple[NDArray[Any], int]]:
        """The further chunks of a document, each with the number of its last tokens that are new.

        Args:
            tokens: The document, special tokens included once.
        """
        rest = len(tokens) - self.window
        end = len(tokens) - self.after
        n_chunks = -(-rest // self.step) if rest > 0 else 0
        done = 0
        for number in range(1, n_chunks + 1):
            upto = number * rest // n_chunks  # even steps: no chunk is left with a few tokens
            stop = end - rest + upto
            parts = [tokens[: self.before], tokens[stop - self.body : stop], tokens[end:]]
            yield np.concatenate(parts), upto - done
            done = upto


@dataclass(frozen=True)
class Continuation:
    """The tokens of a batch's documents beyond their first chunk."""

    input_ids: Tensor  # (N, C) int64, chunks of all documents, none padded
    places: Tensor  # (B, S) int64, tokens among the N · C of all chunks, −1 where there are fewer
    chunks: Tensor  # (B, K) int64, the chunks of each document, −1 where there are fewer

    def tensors(self) -> tuple[Tensor, ...]:
        """Return the tensors that live on the device."""
        return self.input_ids, self.places, self.chunks

    def map(self, change: Callable[[Tensor], Tensor]) -> Continuation:
        """Return a copy with every tensor changed."""
        return Continuation(*(change(tensor) for tensor in self.tensors()))


def continuation_of(
    documents: Sequence[NDArray[Any]], chunking: Chunking, *, pad_id: int, multiple: int = 1
) -> Continuation | None:
    """Gather the further chunks of a batch; None where no document has any.

    Args:
        documents: Token ids of each, special tokens included once.
        chunking: How they are cut.
        pad_id: Fills chunks that stand for nothing.
        multiple: The longest continuation is rounded up to a multiple of this where their lengths
            differ, and the number of chunks to a multiple of it or of the documents, so that there
            are few shapes.
    """
    chunks: list[NDArray[Any]] = []
    places: list[NDArray[np.int64]] = []
    owned: list[NDArray[np.int64]] = []
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
    longest = max(lengths) if len(lengths) == 1 else _rounded(max(lengths), multiple)
    n_chunks = _rounded(len(chunks), min(multiple, len(documents)))
    ids = np.full((n_chunks, chunking.window), pad_id, dtype=np.int64)
    ids[: len(chunks)] = chunks
    # As many as the longest continuation may need: one shape for each rounded length.
    most = -(-longest // chunking.step)
    return Continuation(torch.from_numpy(ids), _padded(places, longest), _padded(owned, most))


def _rounded(count: int, multiple: int) -> int:
    return -(-count // multiple) * multiple


def _padded(rows: Sequence[NDArray[np.int64]], width: int) -> Tensor:
    padded = np.full((len(rows), width), -1, dtype=np.int64)
    for place, row in zip(padded, rows, strict=True):
        place[: len(row)] = row
    return torch.from_numpy(padded)
