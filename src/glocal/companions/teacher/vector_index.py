"""Nearest training texts by cosine similarity of their vectors.

- `exact` compares with every text: by matrix products in blocks, or for a few queries with the
  bounds of `pruning.py`. `ivf` and `hnsw` are faiss's approximate searches for millions of texts,
  over vectors of one byte per dimension.
- Each search only proposes candidates, whose similarities are computed again in double precision.
  The order of neighbours therefore depends neither on the number of queries nor on the machine;
  ties are broken by position.
- Vectors have length 1 and are centred if asked. A text without a vector is never a neighbour, nor
  is one with a similarity of 0 or less.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from glocal.arrays import Floats32, Ints
from glocal.data.stored_arrays import read_array
from glocal.errors import require, unreadable

if TYPE_CHECKING:
    from glocal.companions.teacher.pruning import PrunedSearch
    from glocal.encoders.static import StaticVectors

BLOCK_ELEMENTS = 1 << 24  # similarities held at a time
MOST_QUERIES = 1024
SPARE = 8  # candidates beyond k, among which ties are broken
MOST_TIED = 64  # tied neighbours that are considered, in order of position
SETTLED_ELEMENTS = 1 << 23  # numbers of neighbours' vectors held at a time
ROUNDING = 1e-5  # above the rounding error of a cosine in single precision
FEW_QUERIES, MANY_TEXTS = 8, 5_000  # queries are searched one at a time if few, and the texts many
TRAINING_TEXTS_PER_LIST = 40
INDEX_FILE, VECTORS_FILE, CENTRE_FILE = "index.faiss", "vectors.npy", "centre.npy"

Rows = Ints
Similarities = Floats32


class SimilarityIndex:
    """Vectors of training texts, searched by cosine.

    Args:
        vectors: (N, D) of length 1, or zero.
        centre: (D,) subtracted from vectors of length 1 before they are compared.
        kind: `exact`, `ivf` or `hnsw`.
        effort: Lists (ivf) or candidates (hnsw) that an approximate search visits.
        approximate: The faiss index, if it is already built.
    """

    def __init__(
        self,
        vectors: Floats32,
        centre: Floats32,
        *,
        kind: str = "exact",
        effort: int = 64,
        approximate: Any = None,
    ) -> None:
        self.vectors, self.centre, self.kind = vectors, centre, kind
        if kind != "exact" and approximate is None:
            approximate = _build(vectors, kind)
        self._approximate = approximate
        if approximate is not None:
            _set_effort(approximate, kind, effort)

    @classmethod
    def of_embedded(
        cls, embedded: Floats32, *, centred: bool, kind: str = "exact", effort: int = 64
    ) -> SimilarityIndex:
        """Build an index.

        Args:
            embedded: (N, D) vectors of the training texts, of any length.
            centred: Whether their mean is subtracted before comparing.
            kind: `exact`, `ivf` or `hnsw`.
            effort: Lists (ivf) or candidates (hnsw) that an approximate search visits.
        """
        unit = _unit(embedded)
        known = np.any(unit, axis=1)
        centre = np.zeros(unit.shape[1], dtype=np.float32)
        # A single text would be its own centre.
        if centred and known.sum() > 1:
            centre = unit[known].mean(axis=0, dtype=np.float64).astype(np.float32)
        return cls(_shifted(unit, centre), centre, kind=kind, effort=effort)

    def __len__(self) -> int:
        return len(self.vectors)

    def queries(self, texts: Sequence[str], own: Rows, vectors: StaticVectors) -> Floats32:
        """Return texts as vectors that this index compares, (n, D).

        Args:
            texts: The texts.
            own: Position of each among the training texts; -1 for a new text.
            vectors: Word vectors, for new texts.
        """
        found = np.empty((len(texts), self.vectors.shape[1]), dtype=np.float32)
        (known,), (new,) = np.nonzero(own >= 0), np.nonzero(own < 0)
        found[known] = self.vectors[own[known]]
        if len(new):
            found[new] = self.prepare(vectors.embed([texts[int(i)] for i in new]))
        return found

    def prepare(self, embedded: Floats32) -> Floats32:
        """Scale vectors of texts to length 1 and centre them."""
        return _shifted(_unit(embedded), self.centre)

    def search(
        self, queries: Floats32, k: int, *, exclude: Rows | None = None
    ) -> tuple[Rows, Similarities]:
        """Return the nearest training texts of each text.

        Args:
            queries: (n, D) as `prepare` gives them.
            k: Neighbours per text.
            exclude: For each text, the row to exclude; -1 for none.

        Returns:
            (n, k) rows, nearest first, -1 where there are fewer; (n, k) similarities, 0 there.
        """
        left_out = np.full(len(queries), -1) if exclude is None else exclude
        rows = np.full((len(queries), k), -1, dtype=np.int64)
        similarities = np.zeros((len(queries), k), dtype=np.float32)
        size = max(1, min(MOST_QUERIES, len(queries), BLOCK_ELEMENTS // max(1, len(self))))
        propose: Callable[[Floats32, int, Rows], Rows] = self._propose_approximate
        if self._approximate is None:
            # One buffer for the similarities of every block: new memory costs a fifth of the time.
            scratch = np.empty((size, len(self)), dtype=np.float32)
            propose = partial(self._propose_exact, scratch=scratch)
        for start in range(0, len(queries), size):
            block = slice(start, start + size)
            proposed = propose(queries[block], k, left_out[block])
            found = self._settle(queries[block], proposed, k)
            rows[block, : found[0].shape[1]], similarities[block, : found[1].shape[1]] = found
        return rows, similarities

    @cached_property
    def _pruned(self) -> PrunedSearch:
        from glocal.companions.teacher.pruning import PrunedSearch

        return PrunedSearch(self.vectors)

    def _propose_exact(
        self, queries: Floats32, k: int, exclude: Rows, *, scratch: Similarities
    ) -> Rows:
        if len(queries) <= FEW_QUERIES and len(self) >= max(MANY_TEXTS, 4 * k):
            near = (
                self._pruned.candidates(query, k, exclude=int(row), slack=ROUNDING)
                for query, row in zip(queries, exclude, strict=True)
            )
            found = [_nearest(rows, scores, k) for rows, scores in near]
            nothing = np.empty((len(queries), 0), dtype=np.int64)
            return _widen(nothing, np.arange(len(queries)), found)
        return self._propose_by_product(queries, k, exclude, scratch[: len(queries)])

    def _propose_by_product(
        self, queries: Floats32, k: int, exclude: Rows, scratch: Similarities
    ) -> Rows:
        import torch

        scores = torch.from_numpy(scratch)  # (n, N)
        torch.mm(torch.from_numpy(queries), torch.from_numpy(self.vectors).T, out=scores)
        (excluding,) = np.nonzero(exclude >= 0)
        scores[torch.from_numpy(excluding), torch.from_numpy(exclude[excluding])] = -torch.inf
        width = min(k + SPARE, len(self))
        best, rows = scores.topk(width, dim=1)
        proposed: Rows = rows.numpy()
        if width == len(self):
            return np.where(best.numpy() == -np.inf, -1, proposed)
        # If the last candidate ties with the k-th, so may others that come before it.
        tied = (best[:, k - 1] - best[:, -1] <= ROUNDING) & (best[:, -1] > 0)
        positions = np.flatnonzero(tied.numpy())
        everything = np.arange(len(self))
        return _widen(proposed, positions, [_nearest(everything, scratch[p], k) for p in positions])

    def _propose_approximate(self, queries: Floats32, k: int, exclude: Rows) -> Rows:
        # Ranking by bytes is coarse; four times as many candidates contain the right ones.
        width = min(4 * k + SPARE, len(self))
        _, rows = self._approximate.search(np.ascontiguousarray(queries), width)
        return np.where(rows == exclude[:, None], -1, rows)

    def _settle(self, queries: Floats32, proposed: Rows, k: int) -> tuple[Rows, Similarities]:
        """Return the k nearest candidates, by similarities in double precision."""
        exact = np.empty(proposed.shape)
        step = max(1, SETTLED_ELEMENTS // max(1, proposed.shape[1] * queries.shape[1]))
        for start in range(0, len(queries), step):
            part = slice(start, start + step)
            near = self.vectors[np.maximum(proposed[part], 0)]  # (n, C, D)
            exact[part] = np.einsum("ncd,nd->nc", near, queries[part].astype(np.float64))
        scores = np.where(proposed < 0, 0, exact).astype(np.float32)
        # Last key first: similarity, then position.
        order = np.lexsort((proposed, -scores), axis=1)[:, :k]
        scores = np.take_along_axis(scores, order, axis=1)
        rows = np.take_along_axis(proposed, order, axis=1)
        return np.where(scores > 0, rows, -1), np.maximum(scores, 0)

    def save(self, folder: Path) -> None:
        """Write the vectors, the centre and the faiss index, if any."""
        np.save(folder / VECTORS_FILE, self.vectors, allow_pickle=False)
        np.save(folder / CENTRE_FILE, self.centre, allow_pickle=False)
        if self._approximate is not None:
            _faiss().write_index(self._approximate, str(folder / INDEX_FILE))

    @classmethod
    def load(cls, folder: Path, width: int, *, kind: str, effort: int) -> SimilarityIndex:
        """Read an index written by `save`; its vectors are memory-mapped.

        Args:
            folder: The teacher's folder.
            width: Width of the vectors.
            kind: `exact`, `ivf` or `hnsw`.
            effort: Lists (ivf) or candidates (hnsw) that an approximate search visits.

        Raises:
            ModelError: A file is missing or damaged.
        """
        what = f"the index in {folder} is damaged or incomplete"
        with unreadable(what, OSError, ValueError, RuntimeError, MemoryError):
            # Copy on write: nothing is written, but torch refuses to share read-only memory.
            vectors = read_array(folder / VECTORS_FILE, np.float32, ndim=2, mapped="c")
            centre = read_array(folder / CENTRE_FILE, np.float32)
            if not len(vectors) or not vectors.shape[1] == len(centre) == width:
                raise ValueError(f"its vectors do not have the width {width}")
            approximate = None
            if kind != "exact":
                approximate = _faiss().read_index(str(folder / INDEX_FILE))
                from glocal.companions.teacher.faiss_checks import check_faiss_index

                check_faiss_index(approximate, kind, vectors.shape)
        return cls(vectors, centre, kind=kind, effort=effort, approximate=approximate)


def _unit(vectors: Floats32) -> Floats32:
    """Return vectors of length 1; zero vectors stay zero."""
    lengths = np.sqrt((vectors * vectors).sum(axis=1, keepdims=True))
    return np.asarray(vectors / np.where(lengths > 0, lengths, 1), dtype=np.float32)


def _shifted(unit: Floats32, centre: Floats32) -> Floats32:
    """Return centred vectors of length 1; zero vectors stay zero."""
    known = np.any(unit, axis=1, keepdims=True)
    return _unit(np.where(known, unit - centre, 0)) if centre.any() else unit


def _nearest(rows: Rows, scores: Similarities, k: int) -> Rows:
    """Return the rows above the k-th best, and the first of those that tie with it.

    Args:
        rows: Rows in ascending order.
        scores: Their approximate similarities.
        k: Number of neighbours; with fewer rows the result is empty.
    """
    if len(rows) < k:
        return rows[:0]
    kth = np.partition(scores, len(rows) - k)[len(rows) - k]
    above = scores > kth + ROUNDING
    (tied,) = np.nonzero(~above & (scores >= kth - ROUNDING))
    return np.append(rows[above], rows[tied[:MOST_TIED]])


def _widen(proposed: Rows, positions: Rows, rows: Sequence[Rows]) -> Rows:
    """Return the candidates with those at some positions replaced by longer lists."""
    width = max([proposed.shape[1], *map(len, rows)])
    wide = np.full((len(proposed), width), -1, dtype=np.int64)
    wide[:, : proposed.shape[1]] = proposed
    for position, found in zip(positions, rows, strict=True):
        wide[position] = -1
        wide[position, : len(found)] = found
    return wide


def _faiss() -> Any:
    return require("faiss", extra="search", purpose="the approximate search (teacher.index)")


def _build(vectors: Floats32, kind: str) -> Any:
    """Build a faiss index over the vectors, with one byte per dimension."""
    faiss = _faiss()
    n_lists = max(1, min(int(4 * len(vectors) ** 0.5), len(vectors) // TRAINING_TEXTS_PER_LIST))
    layout = f"IVF{n_lists},SQ8" if kind == "ivf" else "HNSW32_SQ8"
    index = faiss.index_factory(vectors.shape[1], layout, faiss.METRIC_INNER_PRODUCT)
    index.train(vectors)
    index.add(vectors)
    return index


def _set_effort(index: Any, kind: str, effort: int) -> None:
    if kind == "ivf":
        index.nprobe = min(effort, index.nlist)
    else:
        index.hnsw.efSearch = effort
