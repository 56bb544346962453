"""Search over the names of labels, and their hierarchy; quick with a million labels.

- Names and alternative names are compared without case, accents and punctuation.
- Every word of a query must occur in one name. Exact names come first, then names that start with
  the query, then those with its words at the start of words, then the rest; of equal ones, labels
  with more training texts.
- Arrow's string kernels do the matching, without Python loops over labels.
"""

from __future__ import annotations

import re
import unicodedata
from functools import cached_property, lru_cache

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from glocal.vocabulary.label_space import LabelSpace

Positions = NDArray[np.int64]

_NOT_WORD = re.compile(r"[\W_]+")
_CACHED_QUERIES = 64  # so that the next page of a search costs nothing


def normalise(text: str) -> str:
    """Return a text's words without case and accents, each after one space."""
    plain = text
    if not text.isascii():
        decomposed = unicodedata.normalize("NFKD", text)
        plain = "".join(char for char in decomposed if not unicodedata.combining(char))
    return " " + _NOT_WORD.sub(" ", plain.casefold()).strip()


class LabelSearch:
    """Finds labels of a label space.

    Args:
        labels: The label space.
    """

    def __init__(self, labels: LabelSpace) -> None:
        self.labels = labels
        self._matches = lru_cache(_CACHED_QUERIES)(self._search)

    def prepare(self) -> None:
        """Make the index, which the first search does otherwise."""
        _ = self._names, self._children

    def find(
        self, query: str = "", *, parent: str | None = None, page: int, size: int
    ) -> tuple[int, list[int]]:
        """Return how many labels match a query, and the positions of those on a page.

        Args:
            query: Words to look for in names; all labels by default.
            parent: Only labels right below the one with this id; only top labels if empty.
            page: Number of the page, from 1.
            size: Labels on a page.
        """
        found = self._matches(normalise(query).strip(), parent)
        start = (page - 1) * size
        return len(found), found[start : start + size].tolist()

    def children_count(self, position: int) -> int:
        """Return the number of labels right below one."""
        starts = self._children[0]
        return int(starts[position + 1] - starts[position])

    def _search(self, query: str, parent: str | None) -> Positions:
        within = self._below(parent)
        if not query:
            counts = self.labels.counts if within is None else self.labels.counts[within]
            order = np.argsort(-counts, kind="stable")
            return order if within is None else within[order]
        merits = self._merits(query)
        found = np.flatnonzero(merits) if within is None else within[merits[within] > 0]
        return found[np.lexsort((found, -self.labels.counts[found], -merits[found]))]

    def _merits(self, query: str) -> NDArray[np.int8]:
        """Return for each label how well its best name matches; 0 for not at all."""
        names, owners = self._names
        words = [f" {word}" for word in query.split()]
        merits = pc.match_substring(names, words[0].strip()).to_numpy(zero_copy_only=False)
        candidates = np.flatnonzero(merits)
        for word in words[1:]:
            kept = _matches(names, candidates, word.strip())
            candidates = candidates[kept]
        merit = np.ones(len(candidates), np.int8)
        starts = np.ones(len(candidates), bool)
        for word in words:
            starts &= _matches(names, candidates, word)
        merit[starts] = 2
        chosen = names.take(pa.array(candidates))
        merit[pc.starts_with(chosen, f" {query}").to_numpy(zero_copy_only=False)] = 3
        merit[pc.equal(chosen, f" {query}").to_numpy(zero_copy_only=False)] = 4
        best = np.zeros(len(self.labels), np.int8)
        np.maximum.at(best, owners[candidates], merit)
        return best

    def _below(self, parent: str | None) -> Positions | None:
        if parent is None:
            return None
        starts, children, tops = self._children
        if not parent:
            return tops
        position = self.labels.index.get(parent)
        if position is None:
            return np.empty(0, np.int64)
        return children[starts[position] : starts[position + 1]]

    @cached_property
    def _names(self) -> tuple[pa.Array, Positions]:
        """Return all names, normalised, and the label each belongs to."""
        alternatives = pa.array(self.labels.alt_names, pa.list_(pa.large_string()))
        own = np.repeat(np.arange(len(self.labels)), pc.list_value_length(alternatives))
        names = pa.concat_arrays(
            [pa.array(self.labels.names, pa.large_string()), alternatives.flatten()]
        )
        return _normalised(names), np.concatenate([np.arange(len(self.labels)), own])

    @cached_property
    def _children(self) -> tuple[Positions, Positions, Positions]:
        """Return where each label's children start, all children, and the top labels."""
        parents = pa.array(self.labels.parents, pa.list_(pa.large_string()))
        below = np.repeat(np.arange(len(self.labels)), pc.list_value_length(parents))
        ids = pa.array(self.labels.ids, pa.large_string())
        found = pc.index_in(parents.flatten(), value_set=ids)
        above = pc.fill_null(found, -1).to_numpy(zero_copy_only=False).astype(np.int64)
        known = (above >= 0) & (above != below)
        # One number for each pair of labels sorts them by the one above, and finds repeated ones.
        n_labels = len(self.labels)
        above, below = np.divmod(np.unique(above[known] * n_labels + below[known]), n_labels)
        tops = np.ones(n_labels, bool)
        tops[below] = False
        starts = np.searchsorted(above, np.arange(n_labels + 1))
        return starts, below, np.flatnonzero(tops)


def _normalised(names: pa.Array) -> pa.Array:
    """Return names as `normalise` does; those of plain ASCII, usually most, in Arrow."""
    plain = pc.string_is_ascii(names)
    words = pc.replace_substring_regex(pc.ascii_lower(names), r"[^a-z0-9]+", " ")
    empty, space = (pa.scalar(text, pa.large_string()) for text in ("", " "))
    words = pc.binary_join_element_wise(empty, pc.ascii_trim_whitespace(words), space)
    rest = pc.filter(names, pc.invert(plain))
    other = pa.array([normalise(name) for name in rest.to_pylist()], pa.large_string())
    return pc.replace_with_mask(words, pc.invert(plain), other)


def _matches(names: pa.Array, candidates: Positions, pattern: str) -> NDArray[np.bool_]:
    chosen = names.take(pa.array(candidates))
    matched: NDArray[np.bool_] = pc.match_substring(chosen, pattern).to_numpy(zero_copy_only=False)
    return matched
