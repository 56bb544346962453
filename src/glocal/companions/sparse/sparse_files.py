"""The files of a sparse model: JSON, Parquet and npy, nothing that executes.

    sparse.json        format version, settings, sizes
    words-PART.parquet words of a part (`text`, `title`, `pieces`, `stems`, `names`)
    pairs-PART.npy     pairs of words, as integers
    idf-PART.npy       their weights
    weights-*.npy      the CSR matrix (features, labels): bounds, labels, numbers of 16 bits and the
                       scale of each label (`compact_rows`); or values, columns, bounds in float32
    biases.npy         (labels,)
    groups-*.npy       where labels have groups: their matrix likewise, and the groups of each label
    votes-texts-*.npy  where similar texts vote: the CSR matrix of the training texts, by word
    votes-labels-*.npy the CSR matrix of their labels
    name-*.npy         where labels are scored by their names: labels, slopes, bounds of their
                       names, whether they have texts, CSR matrices of weights, relatives, words,
                       shares (`name_matcher`)
    sample-*.npy       the CSR matrix of the features of some training texts, for later changes
    sample-labels-*.npy  the CSR matrix of their labels

Weights are memory-mapped when a model is loaded: opening it is quick, and several processes share
one copy.
"""

from __future__ import annotations

import json
import math
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from glocal.companions.sparse.compact_rows import LABELS_OF_HALF, CompactRows
from glocal.companions.sparse.name_matcher import NameMatcher
from glocal.companions.sparse.sparse_rows import SparseRows, StoredRows
from glocal.companions.sparse.sparse_scoring import LabelGroups, LinearScorer
from glocal.companions.sparse.text_votes import TextVotes
from glocal.companions.sparse.training_memory import LabelledTexts, Scaling, TrainingMemory
from glocal.companions.sparse.vectoriser import Part, Vectoriser
from glocal.companions.sparse.word_features import Vocabulary
from glocal.config import SparseConfig
from glocal.config.checking import stored_section
from glocal.data.atomic import replace_dir, temporary_dir
from glocal.data.stored_arrays import check_csr, check_finite, check_range, read_array, read_columns
from glocal.errors import ModelError, NewerFormatError

# 1 had no groups, 2 one group for each label, 3 no labels of the sample, 4 no votes, 5 no names,
# 6 all weights in float32, 7 one slope for rare and frequent labels.
FORMAT = 8
_WORDS = pa.schema([("word", pa.string())])
_MATRIX: dict[str, type[np.generic]] = {
    "data": np.float32,
    "indices": np.int32,
    "indptr": np.int64,
}


def write_model(
    folder: str | Path,
    vectoriser: Vectoriser,
    scorer: LinearScorer,
    config: SparseConfig,
    memory: TrainingMemory | None = None,
) -> None:
    """Write a model to a folder atomically."""
    with temporary_dir(folder) as temporary:
        for part in vectoriser.parts:
            table = pa.table({"word": part.vocabulary.words}, schema=_WORDS)
            pq.write_table(table, temporary / f"words-{part.name}.parquet")
            _write(temporary / f"pairs-{part.name}.npy", part.vocabulary.pairs)
            _write(temporary / f"idf-{part.name}.npy", part.vocabulary.idf)
        _write_weights(temporary, "weights", scorer.weights)
        if scorer.groups is not None:
            _write_weights(temporary, "groups", scorer.groups.weights)
            _write(temporary / "groups-of.npy", scorer.groups.of.ravel())
        _write(temporary / "biases.npy", scorer.biases)
        votes = scorer.votes
        if votes is not None:
            _write_matrix(temporary, "votes-texts", votes.texts)
            _write_matrix(temporary, "votes-labels", votes.labels)
        if scorer.names is not None:
            _write_names(temporary, scorer.names)
        about = {
            "format": FORMAT,
            "config": asdict(config),
            "parts": [_about_part(part) for part in vectoriser.parts],
            "n_features": vectoriser.n_features,
            "n_labels": scorer.n_labels,
            "n_groups": 0 if scorer.groups is None else scorer.groups.weights.shape[1],
            "group_levels": 0 if scorer.groups is None else scorer.groups.of.shape[1],
            "names": None if scorer.names is None else _about_names(scorer.names),
        }
        if votes is not None:
            about["votes"] = {"slope": votes.slope, "n_texts": votes.labels.shape[0]}
        if memory is not None:
            _write_matrix(temporary, "sample", memory.sample.features)
            if memory.has_labels:
                _write_matrix(temporary, "sample-labels", memory.sample.gold)
            about["memory"] = {
                "margins": asdict(memory.margins),
                "names": asdict(memory.names),
                "n_texts": memory.n_texts,
                "n_sample": len(memory.sample),
                "has_labels": memory.has_labels,
            }
        (temporary / "sparse.json").write_text(json.dumps(about, indent=2), encoding="utf-8")
        replace_dir(temporary, folder)


def read_model(
    folder: str | Path,
) -> tuple[Vectoriser, LinearScorer, SparseConfig, TrainingMemory | None]:
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
        scorer = LinearScorer(
            _read_weights(source, "weights", (about["n_features"], about["n_labels"])),
            read_array(source / "biases.npy", np.floating),
            _read_groups(source, about),
            _read_votes(source, about, vectoriser.n_words),
            _read_names(source, about),
        )
        check_finite("biases.npy", scorer.biases)
        config = stored_section(SparseConfig, about["config"])
        memory = _read_memory(source, about)
    except (OSError, ValueError, LookupError, TypeError, AttributeError, OverflowError) as error:
        raise ModelError(
            f"{source}: not a readable sparse model ({str(error).splitlines()[0]:.120}); copy the "
            "folder again, or train the model again"
        ) from error
    _check_sizes(vectoriser, scorer, about, source)
    return vectoriser, scorer, config, memory


def _check_format(about: dict[str, Any], source: Path) -> None:
    if about["format"] > FORMAT:
        raise NewerFormatError(
            f"{source}: the sparse model has format {about['format']}, this version reads up to "
            f"{FORMAT}; upgrade glocal"
        )


def _check_sizes(
    vectoriser: Vectoriser, scorer: LinearScorer, about: dict[str, Any], source: Path
) -> None:
    seen = [vectoriser.n_features, scorer.n_labels, len(scorer.biases)]
    expected = [about["n_features"], about["n_labels"], about["n_labels"]]
    if scorer.groups is not None:
        seen.append(len(scorer.groups.of))
        expected.append(about["n_labels"])
    if seen != expected:
        raise ModelError(
            f"{source}: the files do not belong together: features and labels are {seen}, "
            f"{expected} are expected; copy the folder again"
        )


def _read_part(source: Path, about: dict[str, Any]) -> Part:
    name = about["name"]
    if not str(name).isalnum():
        raise ValueError(f"a part is called {name!r}")
    words = read_columns(source / f"words-{name}.parquet", _WORDS).column("word").to_pylist()
    vocabulary = Vocabulary(
        words,
        read_array(source / f"pairs-{name}.npy", np.integer),
        read_array(source / f"idf-{name}.npy", np.floating),
    )
    if len(vocabulary.idf) != len(vocabulary):
        raise ValueError(f"{len(vocabulary.idf)} weights for {len(vocabulary)} words and pairs")
    check_finite(f"idf-{name}.npy", vocabulary.idf)
    if not (np.diff(vocabulary.pairs) > 0).all():
        raise ValueError(f"pairs-{name}.npy is not sorted")
    check_range(f"pairs-{name}.npy", vocabulary.pairs, 0, len(words) ** 2)
    return Part(name, float(about["weight"]), vocabulary, str(about.get("language", "")))


def _about_part(part: Part) -> dict[str, Any]:
    about: dict[str, Any] = {"name": part.name, "weight": part.weight}
    return {**about, "language": part.language} if part.language else about


def _read_groups(source: Path, about: dict[str, Any]) -> LabelGroups | None:
    n_groups = about.get("n_groups", 0)
    if not n_groups:
        return None
    matrix = _read_weights(source, "groups", (about["n_features"], n_groups))
    of = read_array(source / "groups-of.npy", np.integer)
    check_range("groups-of.npy", of, -1, n_groups)  # -1: a label without training texts
    return LabelGroups(matrix, of.reshape(-1, about.get("group_levels", 1)))


def _read_votes(source: Path, about: dict[str, Any], n_words: int) -> TextVotes | None:
    """Read the texts that vote; most models have none."""
    kept = about.get("votes")
    if kept is None:
        return None
    n_texts, slope = int(kept["n_texts"]), float(kept["slope"])
    if not math.isfinite(slope):
        raise ValueError(f"the slope of votes is {slope}")
    texts = _read_matrix(source, "votes-texts", (n_words, n_texts))
    labels = _read_matrix(source, "votes-labels", (n_texts, about["n_labels"]))
    return TextVotes(texts, labels, slope)


def _write_names(folder: Path, names: NameMatcher) -> None:
    _write(folder / "name-labels.npy", names.labels)
    _write(folder / "name-bounds.npy", names.bounds)
    _write(folder / "name-slopes.npy", names.slopes)
    _write(folder / "name-trained.npy", names.trained.astype(np.uint8))
    for name in ("weights", "relatives", "words", "shares"):
        _write_matrix(folder, f"name-{name}", getattr(names, name))


def _about_names(names: NameMatcher) -> dict[str, int]:
    return {
        "n_labels": len(names.labels),
        "n_words": names.shares.shape[0],
        "n_names": names.shares.shape[1],
    }


def _read_names(source: Path, about: dict[str, Any]) -> NameMatcher | None:
    kept = about.get("names")
    if kept is None:
        return None
    n_labels, n_words, n_names = (int(kept[name]) for name in ("n_labels", "n_words", "n_names"))
    labels = read_array(source / "name-labels.npy", np.integer).astype(np.int64)
    bounds = read_array(source / "name-bounds.npy", np.integer).astype(np.int64)
    check_range("name-labels.npy", labels, 0, about["n_labels"])
    steps = np.diff(bounds) if len(bounds) == n_labels + 1 else np.zeros(1)
    if len(labels) != n_labels or not (np.diff(labels) > 0).all():
        raise ValueError(f"name-labels.npy has not {n_labels} labels in order")
    if bounds[0] != 0 or bounds[-1] != n_names or not (steps > 0).all():
        raise ValueError(f"name-bounds.npy does not divide {n_names} names among {n_labels} labels")
    slopes = _read_vector(source / "name-slopes.npy", np.floating, n_labels).astype(np.float32)
    check_finite("name-slopes.npy", slopes)
    n_features = about["n_features"]
    shapes = {
        "weights": (n_features, n_labels),
        "relatives": (n_features, n_labels),
        "words": (n_features, n_words),
        "shares": (n_words, n_names),
    }
    matrices = {n: _read_matrix(source, f"name-{n}", shape) for n, shape in shapes.items()}
    trained = np.zeros(n_labels, dtype=bool)
    if about["format"] >= 8:
        trained = _read_vector(source / "name-trained.npy", np.integer, n_labels) > 0
    return NameMatcher(labels, slopes, **matrices, bounds=bounds, trained=trained)


def _read_memory(source: Path, about: dict[str, Any]) -> TrainingMemory | None:
    """Read what the model keeps of its training; older models have none."""
    kept = about.get("memory")
    if kept is None:
        return None
    features = _read_matrix(source, "sample", (kept["n_sample"], about["n_features"]))
    shape, has_labels = (kept["n_sample"], about["n_labels"]), bool(kept.get("has_labels"))
    gold = _read_matrix(source, "sample-labels", shape) if has_labels else _empty(shape)
    sample = LabelledTexts(features, gold)
    margins, names = (_scaling(kept[name]) for name in ("margins", "names"))
    if about["format"] < 6:  # their slope was that of the likeness itself; equal at 0.1
        names = replace(names, slope=names.slope * 0.1 / math.log1p(10))
    return TrainingMemory(margins, names, int(kept["n_texts"]), sample, has_labels)


def _scaling(stored: dict[str, Any]) -> Scaling:
    slope, shift, likeness = (float(stored[name]) for name in ("slope", "shift", "likeness"))
    logs, squares = map(float, stored["frequency"])
    rare = (stored.get(name) for name in ("rare_slope", "rare_likeness"))
    of_rare = (None if value is None else float(value) for value in rare)
    return Scaling(slope, shift, likeness, (logs, squares), *of_rare)


def _empty(shape: tuple[int, int]) -> SparseRows:
    return SparseRows(
        np.empty(0, np.float32), np.empty(0, np.int32), np.zeros(shape[0] + 1, np.int32), shape
    )


def _read_weights(source: Path, name: str, shape: tuple[int, int]) -> StoredRows:
    """Read weights of 16 bits; older models, and those made from them, have float32."""
    if not (source / f"{name}-scales.npy").exists():
        return _read_matrix(source, name, shape)
    scales = _read_vector(source / f"{name}-scales.npy", np.float32, shape[1])
    check_finite(f"{name}-scales.npy", scales)
    entries = read_array(source / f"{name}-entries.npy", np.int32, mapped="r")
    numbers = None
    if shape[1] > LABELS_OF_HALF:
        numbers = read_array(source / f"{name}-numbers.npy", np.int16, mapped="r")
    matrix = CompactRows(entries, numbers, _read_bounds(source, name, shape[0]), scales, shape)
    labels, stored = matrix.labels, entries if numbers is None else numbers
    check_csr(name, SparseRows(stored, labels, matrix.indptr, shape))
    return matrix


def _read_matrix(source: Path, name: str, shape: tuple[int, int]) -> SparseRows:
    data = read_array(source / f"{name}-data.npy", _MATRIX["data"], mapped="r")
    indices = read_array(source / f"{name}-indices.npy", _MATRIX["indices"], mapped="r")
    matrix = SparseRows(data, indices, _read_bounds(source, name, shape[0]), shape)
    check_csr(name, matrix)
    check_finite(f"{name}-data.npy", matrix.data)
    return matrix


def _read_bounds(source: Path, name: str, n_rows: int) -> NDArray[np.integer[Any]]:
    bounds = _read_vector(source / f"{name}-indptr.npy", _MATRIX["indptr"], n_rows + 1)
    # scipy wants both kinds of indices of one type; the mapped one must not be copied.
    return bounds if bounds.max() > np.iinfo(np.int32).max else bounds.astype(np.int32)


def _read_vector(path: Path, kind: type[Any], size: int) -> NDArray[Any]:
    values = read_array(path, kind)
    if len(values) != size:
        raise ValueError(f"{path.name} has {len(values)} values; expected {size}")
    return values


def _write_weights(folder: Path, name: str, matrix: Any) -> None:
    """Write weights of 16 bits; weights that are not rounded, of older models, stay as they are."""
    compact = CompactRows.of(matrix)
    if compact is None:
        _write_matrix(folder, name, matrix)
        return
    _write(folder / f"{name}-indptr.npy", compact.indptr.astype(_MATRIX["indptr"]))
    _write(folder / f"{name}-scales.npy", compact.scales)
    _write(folder / f"{name}-entries.npy", compact.entries)
    if compact.numbers is not None:
        _write(folder / f"{name}-numbers.npy", compact.numbers)


def _write_matrix(folder: Path, name: str, matrix: Any) -> None:
    for part, kind in _MATRIX.items():
        _write(folder / f"{name}-{part}.npy", getattr(matrix, part).astype(kind))


def _write(path: Path, array: np.ndarray[Any, Any]) -> None:
    np.save(path, np.ascontiguousarray(array), allow_pickle=False)
