"""The mean text of each label, of length one and without small values."""

from __future__ import annotations

from typing import Any

import numpy as np

from glocal.companions.sparse.threads import ordered_map

CHUNK_LABELS = 128


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

    def profiles(start: int) -> Any:
        sums = by_label[start : start + CHUNK_LABELS] @ features
        rows = np.repeat(np.arange(sums.shape[0]), np.diff(sums.indptr))
        length = np.sqrt(np.bincount(rows, sums.data**2, minlength=sums.shape[0]))
        sums.data /= np.maximum(length, 1e-12)[rows].astype(np.float32)
        sums.data[sums.data < threshold] = 0
        sums.eliminate_zeros()
        return sums

    starts = range(0, by_label.shape[0], CHUNK_LABELS)
    blocks = [csr_matrix((0, features.shape[1]), dtype=np.float32)]
    blocks += ordered_map(profiles, starts, threads=threads)
    return vstack(blocks, format="csr").T.tocsr()
