"""Random splits of a corpus into train and held-out parts.

- Reproducible: the same corpus, fractions and seed give the same parts.
- Equal texts stay together, so that no test text is also a training text.
- Rare labels stay in train: a document is held out only while each of its labels keeps another
  document in train. Every label of the corpus is therefore in train.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow.compute as pc
from numpy.typing import NDArray

from glocal.arrays import Ints
from glocal.data.corpus import Corpus
from glocal.data.duplicates import text_keys
from glocal.errors import ConfigError, DataError


def split_corpus(
    corpus: Corpus, *, fractions: Sequence[float] = (0.8, 0.1, 0.1), seed: int = 0
) -> tuple[Corpus, ...]:
    """Split a corpus at random.

    Held-out parts can be smaller than requested if labels are rare; train gets the rest.

    Args:
        corpus: The documents.
        fractions: Share of each part, train first; they sum to 1.
        seed: Random seed.

    Returns:
        One corpus per fraction, each in the order of `corpus`.

    Raises:
        ConfigError: The fractions are not positive, do not sum to 1 or are fewer than two.
        DataError: A part would be empty.
    """
    _check_fractions(fractions)
    part_of = _assign(corpus, fractions, seed)
    parts = [np.flatnonzero(part_of == part) for part in range(len(fractions))]
    for part, rows in enumerate(parts):
        if not len(rows):
            raise DataError(
                f"part {part + 1} of the split (fraction {fractions[part]:g}) would be empty: "
                f"{len(corpus)} documents are too few, or their labels too rare to hold any out; "
                "use larger fractions or more documents",
                path=corpus.source,
            )
    return tuple(corpus.take(rows) for rows in parts)


def _check_fractions(fractions: Sequence[float]) -> None:
    problems = []
    if len(fractions) < 2:
        problems.append(f"a split needs at least two fractions, got {list(fractions)}")
    if any(not fraction > 0 for fraction in fractions):
        problems.append(f"the fractions of a split must be above 0, got {list(fractions)}")
    if abs(sum(fractions) - 1) > 1e-6:
        problems.append(f"the fractions of a split must sum to 1, got {sum(fractions):g}")
    ConfigError.raise_any(problems)


def _assign(corpus: Corpus, fractions: Sequence[float], seed: int) -> Ints:
    """Return the part of each document."""
    _, group_of = np.unique(text_keys(corpus, near=False), return_inverse=True)
    groups = np.split(np.argsort(group_of, kind="stable"), np.cumsum(np.bincount(group_of))[:-1])
    codes, offsets, in_train = _label_codes(corpus)
    part_of = np.zeros(len(corpus), dtype=np.int64)
    quotas = [round(fraction * len(corpus)) for fraction in fractions]
    part = 1
    for group in np.random.default_rng(seed).permutation(len(groups)):
        while part < len(quotas) and quotas[part] == 0:
            part += 1
        if part == len(quotas):
            break
        rows = groups[group]
        labels = np.concatenate([codes[offsets[row] : offsets[row + 1]] for row in rows])
        distinct, times = np.unique(labels, return_counts=True)
        if len(rows) <= quotas[part] and np.all(in_train[distinct] > times):
            in_train[distinct] -= times
            part_of[rows] = part
            quotas[part] -= len(rows)
    return part_of


def _label_codes(corpus: Corpus) -> tuple[NDArray[Any], Ints, Ints]:
    """Return the label numbers of all documents, their offsets, and the documents per label."""
    column = corpus.table.column("labels")
    flat = pc.list_flatten(column)
    codes = pc.index_in(flat, value_set=flat.unique()).to_numpy()
    offsets = np.concatenate([[0], np.cumsum(pc.list_value_length(column).to_numpy())])
    return codes, offsets.astype(np.int64), np.bincount(codes).astype(np.int64)
