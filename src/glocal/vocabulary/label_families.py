"""Families of labels: a label of the hierarchy and those right below it."""

from __future__ import annotations

from typing import Any

import numpy as np

from glocal.vocabulary.label_space import LabelSpace

_LARGEST = 200  # members of a family; larger ones say little about each of them


def label_families(labels: LabelSpace) -> Any:
    """Return which labels belong to each family.

    Returns:
        (families, L) float32 CSR matrix of ones. Two labels that share a family are parent and
        child, or have a parent in common.
    """
    from scipy.sparse import csr_matrix

    members: dict[str, set[int]] = {}
    for label, above in enumerate(labels.parents):
        for parent in above:
            members.setdefault(parent, set()).add(label)
    for parent, below in members.items():
        if parent in labels.index:
            below.add(labels.index[parent])
    families = [sorted(below) for below in members.values() if 1 < len(below) <= _LARGEST]
    rows = np.repeat(np.arange(len(families)), [len(below) for below in families])
    columns = np.array([label for below in families for label in below], dtype=np.int64)
    ones = np.ones(len(columns), np.float32)
    return csr_matrix((ones, (rows, columns)), (len(families), len(labels)))
