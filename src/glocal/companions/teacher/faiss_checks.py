"""Checks of a faiss index read from disk, before a search follows its numbers.

Searches jump through memory by the positions stored in an index, without checking them: one that
points outside would end the process.
"""

from __future__ import annotations

from typing import Any

import faiss
import numpy as np

from glocal.data.stored_arrays import check_range


def check_faiss_index(index: Any, kind: str, shape: tuple[int, ...]) -> None:
    """Check that a search stays inside an index.

    Args:
        index: The faiss index.
        kind: `ivf` or `hnsw`.
        shape: Number and width of the vectors it was built from.

    Raises:
        ValueError: The index is of another kind or size, or its numbers point outside.
    """
    n_texts, width = shape
    expected = faiss.IndexIVFScalarQuantizer if kind == "ivf" else faiss.IndexHNSWSQ
    if not isinstance(index, expected):
        raise ValueError(f"its faiss index is a {type(index).__name__}")
    if (index.ntotal, index.d) != (n_texts, width) or not index.is_trained:
        raise ValueError(f"its faiss index has {index.ntotal} vectors of width {index.d}")
    if index.metric_type != faiss.METRIC_INNER_PRODUCT:
        raise ValueError(f"its faiss index has the metric {index.metric_type}")
    if kind == "ivf":
        _check_lists(index, n_texts, width)
    else:
        _check_graph(index, n_texts, width)


def _check_quantizer(quantizer: Any, code_size: int, width: int) -> None:
    """One byte for each dimension, with a smallest value and a range."""
    sizes = quantizer.d, quantizer.code_size, code_size, quantizer.trained.size()
    if sizes != (width, width, width, 2 * width) or quantizer.qtype != quantizer.QT_8bit:
        raise ValueError(f"the codes of its faiss index have the sizes {sizes}")


def _check_lists(index: Any, n_texts: int, width: int) -> None:
    lists = index.invlists
    coarse: Any = faiss.downcast_index(index.quantizer)
    _check_quantizer(index.sq, index.code_size, width)
    flat = isinstance(coarse, faiss.IndexFlat) and coarse.d == width
    if not flat or not coarse.ntotal == index.nlist == lists.nlist > 0:
        raise ValueError(f"its faiss index has {lists.nlist} lists, expected {index.nlist}")
    if coarse.codes.size() != 4 * width * index.nlist or lists.code_size != width:
        raise ValueError("the centres of its faiss index are cut off")
    sizes = [lists.list_size(number) for number in range(lists.nlist)]
    if sum(sizes) != n_texts:
        raise ValueError(f"the lists of its faiss index hold {sum(sizes)} texts, not {n_texts}")
    for number, size in enumerate(sizes):
        if size:
            ids = faiss.rev_swig_ptr(lists.get_ids(number), size)
            check_range("the lists of its faiss index", ids, 0, n_texts)


def _check_graph(index: Any, n_texts: int, width: int) -> None:
    storage, graph = faiss.downcast_index(index.storage), index.hnsw
    if not isinstance(storage, faiss.IndexScalarQuantizer) or storage.ntotal != n_texts:
        raise ValueError("its faiss index has no codes of all texts")
    _check_quantizer(storage.sq, storage.code_size, width)
    if storage.d != width or storage.codes.size() != n_texts * width:
        raise ValueError("the codes of its faiss index are cut off")
    neighbours, levels, per_level = (
        faiss.vector_to_array(v).astype(np.int64)
        for v in (graph.neighbors, graph.levels, graph.cum_nneighbor_per_level)
    )
    offsets = faiss.vector_to_array(graph.offsets).astype(np.int64)
    check_range("the graph of its faiss index", neighbours, -1, n_texts)
    check_range("the entry of its faiss index", np.array([graph.entry_point]), 0, n_texts)
    check_range("the levels of its faiss index", levels, 1, len(per_level))
    rooms = per_level[levels] if len(levels) == n_texts else np.empty(0)
    if (
        len(offsets) != n_texts + 1
        or offsets[0] != 0
        or offsets[-1] != len(neighbours)
        or not np.array_equal(np.diff(offsets), rooms)
        or not graph.max_level == levels[graph.entry_point] - 1 == levels.max() - 1
        or (np.diff(per_level) < 0).any()
        or per_level[0] != 0
    ):
        raise ValueError("the graph of its faiss index does not fit its texts")
