"""The files of a sparse model: JSON, Parquet and npy, nothing that executes.

    sparse.json        format version, settings, sizes
    words-PART.parquet words of a part (`text`, `title`, `pieces`)
    pairs-PART.npy     pairs of words, as integers
    idf-PART.npy       their weights
    weights-*.npy      the CSR matrix (features, labels): values, columns, bounds
    biases.npy         (labels,)

Weights are memory-mapped when a model is loaded: opening it is quick, and several processes share
one copy.
"""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from glocal.companions.sparse.sparse_scoring import LinearScorer
from glocal.companions.sparse.vectoriser import Part, Vectoriser
from glocal.companions.sparse.word_features import Vocabulary
from glocal.config import SparseConfig
from glocal.data.atomic import replace_dir, temporary_dir
from glocal.errors import ModelError, NewerFormatError

__all__ = ["FORMAT", "read_model", "write_model"]

FORMAT = 1
_WEIGHTS = {"data": np.float32, "indices": np.int32, "indptr": np.int64}


def write_model(
    folder: str | Path, vectoriser: Vectoriser, scorer: LinearScorer, config: SparseConfig
) -> None:
    """Write a model to a folder atomically."""
    with temporary_dir(folder) as temporary:
        for part in vectoriser.parts:
            table = pa.table({"word": pa.array(part.vocabulary.words, pa.string())})
            pq.write_table(table, temporary / f"words-{part.name}.parquet")
            _write(temporary / f"pairs-{part.name}.npy", part.vocabulary.pairs)
            _write(temporary / f"idf-{part.name}.npy", part.vocabulary.idf)
        for name, kind in _WEIGHTS.items():
            _write(temporary / f"weights-{name}.npy", getattr(scorer.weights, name).astype(kind))
        _write(temporary / "biases.npy", scorer.biases)
        about = {
            "format": FORMAT,
            "config": asdict(config),
            "parts": [{"name": part.name, "weight": part.weight} for part in vectoriser.parts],
            "n_features": vectoriser.n_features,
            "n_labels": scorer.n_labels,
        }
        (temporary / "sparse.json").write_text(json.dumps(about, indent=2), encoding="utf-8")
        replace_dir(temporary, folder)


def read_model(folder: str | Path) -> tuple[Vectoriser, LinearScorer, SparseConfig]:
    """Read a model written by `write_model`.

    Raises:
        ModelError: The folder is not such a model, or is damaged.
        NewerFormatError: It was written by a newer version.
    """
    source = Path(folder)
    try:
        about = json.loads((source / "sparse.json").read_text(encoding="utf-8"))
        _check_format(about, source)
        vectoriser = Vectoriser([_read_part(source, part) for part in about["parts"]])
        scorer = LinearScorer(_read_weights(source, about), _read(source / "biases.npy"))
        config = SparseConfig(**about["config"])
    except (OSError, ValueError, KeyError, TypeError, pa.ArrowException) as error:
        raise ModelError(
            f"{source}: not a readable sparse model ({str(error).splitlines()[0]:.120}); copy the "
            "folder again, or train the model again"
        ) from error
    _check_sizes(vectoriser, scorer, about, source)
    return vectoriser, scorer, config


def _check_format(about: dict[str, Any], source: Path) -> None:
    if about["format"] > FORMAT:
        raise NewerFormatError(
            f"{source}: the sparse model has format {about['format']}, this version reads up to "
            f"{FORMAT}; upgrade glocal"
        )


def _check_sizes(
    vectoriser: Vectoriser, scorer: LinearScorer, about: dict[str, Any], source: Path
) -> None:
    seen = (vectoriser.n_features, *scorer.weights.shape, scorer.n_labels)
    expected = (about["n_features"], about["n_features"], about["n_labels"], about["n_labels"])
    bounds = scorer.weights.indptr
    whole = len(bounds) == about["n_features"] + 1 and bounds[-1] == len(scorer.weights.data)
    if seen != expected or not whole:
        raise ModelError(
            f"{source}: the files do not belong together: features and labels are {seen}, "
            f"{expected} are expected; copy the folder again"
        )


def _read_part(source: Path, about: dict[str, Any]) -> Part:
    name = about["name"]
    words = pq.read_table(source / f"words-{name}.parquet", partitioning=None).column("word")
    vocabulary = Vocabulary(
        words.to_pylist(), _read(source / f"pairs-{name}.npy"), _read(source / f"idf-{name}.npy")
    )
    if len(vocabulary.idf) != len(vocabulary):
        raise ValueError(f"{len(vocabulary.idf)} weights for {len(vocabulary)} words and pairs")
    return Part(name, float(about["weight"]), vocabulary)


def _read_weights(source: Path, about: dict[str, Any]) -> Any:
    from scipy.sparse import csr_matrix

    matrix = csr_matrix((about["n_features"], about["n_labels"]), dtype=np.float32)
    # Set one by one: the constructor would read, and perhaps copy, every page of the files.
    bounds = _read(source / "weights-indptr.npy")
    matrix.data = _read(source / "weights-data.npy", mapped=True)
    matrix.indices = _read(source / "weights-indices.npy", mapped=True)
    # scipy wants both kinds of indices of one type; the mapped one must not be copied.
    matrix.indptr = bounds if bounds[-1] > np.iinfo(np.int32).max else bounds.astype(np.int32)
    return matrix


def _write(path: Path, array: np.ndarray[Any, Any]) -> None:
    np.save(path, np.ascontiguousarray(array), allow_pickle=False)


def _read(path: Path, *, mapped: bool = False) -> Any:
    # An empty file cannot be mapped.
    array = np.load(path, mmap_mode="r" if mapped else None, allow_pickle=False)
    return array if array.size else np.array(array)
