"""The mean text of each label, of length one and without small values."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np

from glocal.companions.sparse.threads import ordered_map

CHUNK_LABELS = 128
CHUNK_ENTRIES = 4_000_000  # features of the texts of a chunk of labels, at most


def label_profiles(features: Any, labels: Any, *, threshold: float, threads: int) -> Any:
    """Return the mean text of each label.

    It is the scorer of a label that knows no other label: less exact than trained weights, but it
    keeps every word of a label with few texts.

    Args:
        features: (n, F) float32 CSR matrix of the texts.
        labels: (n, L) CSR matrix of ones.
        threshold: Smaller values are dropped, after scaling to length one.
        threads: Number of threads.

    Returns:
        (F, L) float32 CSR matrix, columns of length one before values were dropped.
    """
    from scipy.sparse import csr_matrix, vstack

    by_label = labels.T.tocsr()

    def profiles(chunk: tuple[int, int]) -> Any:
        sums = by_label[slice(*chunk)] @ features
        rows = np.repeat(np.arange(sums.shape[0]), np.diff(sums.indptr))
        length = np.sqrt(np.bincount(rows, sums.data**2, minlength=sums.shape[0]))
        sums.data /= np.maximum(length, 1e-12)[rows].astype(np.float32)
        sums.data[sums.data < threshold] = 0
        sums.eliminate_zeros()
        return sums

    # A label of very many texts has at most every feature.
    entries = np.diff(by_label.indptr) * (features.nnz / max(1, features.shape[0]))
    before = np.cumsum(np.minimum(entries, features.shape[1])) // CHUNK_ENTRIES
    starts = np.flatnonzero(np.diff(before, prepend=-1))
    starts = np.union1d(starts, np.arange(0, len(entries), CHUNK_LABELS))
    chunks = itertools.pairwise([*starts.tolist(), len(entries)])
    blocks = [csr_matrix((0, features.shape[1]), dtype=np.float32)]
    blocks += ordered_map(profiles, chunks, threads=threads)
    return vstack(blocks, format="csr").T.tocsr()
