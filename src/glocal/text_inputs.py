"""Texts and labels as Python users have them: lists, arrays, Series, indicator matrices.

Labels that were given as an indicator matrix are predicted as one, so that scikit-learn's scorers
and `cross_val_predict` work: see `LabelColumns`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from glocal.errors import InputError

if TYPE_CHECKING:
    from scipy.sparse import csr_matrix

    from glocal.data.corpus import Corpus
    from glocal.ranking.predictions import Predictions


def as_texts(X: Any, name: str = "X") -> list[str]:
    """Return texts as a list of strings.

    Args:
        X: A list, a tuple, an array, a Series or any other iterable of strings.
        name: The argument's name, for messages.

    Raises:
        InputError: X is not a sequence of strings.
    """
    if isinstance(X, str | bytes):
        raise InputError(f"{name} is a single text; expected a list of texts: [{name}]")
    if hasattr(X, "columns"):
        raise InputError(
            f"{name} is a table with the columns {', '.join(map(str, X.columns))}; expected texts: "
            f'pass one column, such as {name}["text"]'
        )
    if hasattr(X, "tocsr"):
        raise InputError(f"{name} is a sparse matrix; expected a list of texts, not features")
    if isinstance(X, Mapping) or not isinstance(X, Iterable):
        raise InputError(f"{name} is of type {type(X).__name__}; expected a list of texts")
    texts = list(X)
    for row, text in enumerate(texts):
        if not isinstance(text, str):
            raise InputError(
                f"{name}[{row}] is {text!r:.60} of type {type(text).__name__}; "
                "expected a string: remove the row, or use '' for an empty text"
            )
    return [str(text) for text in texts]  # numpy's strings too become plain ones


def as_corpus(X: Any, y: Any, name: str = "X") -> tuple[Corpus, bool]:
    """Return texts with labels as a corpus, and whether the labels are whole numbers.

    Args:
        X: Texts.
        y: Their labels, in any form `as_label_lists` takes.
        name: The argument's name, for messages.

    Raises:
        InputError: Texts or labels cannot be used.
    """
    from glocal.data.corpus import Corpus

    label_lists = as_label_lists(y)
    kinds = {isinstance(label, int | np.integer) for labels in label_lists for label in labels}
    if len(kinds) > 1:
        raise InputError("the labels mix strings and whole numbers; use one of the two")
    texts = as_texts(X, name)
    if not texts:
        raise InputError(f"{name} has no texts; expected at least one, with its labels")
    return Corpus.from_texts(texts, label_lists, source=name), kinds == {True}


def as_dev_corpus(dev: Any) -> Corpus | None:
    """Return held-out texts and labels, given as a pair, as a corpus.

    Raises:
        InputError: It is not a pair, or its texts or labels cannot be used.
    """
    if dev is None:
        return None
    if not isinstance(dev, tuple | list) or len(dev) != 2:
        raise InputError(
            f"dev is of type {type(dev).__name__}; expected a pair (texts, labels), as for training"
        )
    texts, labels = dev
    return as_corpus(texts, labels, "dev")[0]


@dataclass(frozen=True)
class LabelColumns:
    """The form of labels that were given as an indicator matrix (texts, labels).

    Attributes:
        form: `dense`, `sparse`, or `table` for a DataFrame.
        names: The label of each column.
    """

    form: str
    names: tuple[Any, ...]

    @classmethod
    def of(cls, y: Any) -> LabelColumns | None:
        """Return the columns of labels; None for lists of labels."""
        if hasattr(y, "columns"):
            return cls("table", tuple(y.columns))
        if hasattr(y, "tocsr") or (not isinstance(y, list | tuple) and np.ndim(y) == 2):
            return cls("sparse" if hasattr(y, "tocsr") else "dense", tuple(range(y.shape[1])))
        return None

    def positions(self, label_ids: Sequence[str]) -> NDArray[np.int64]:
        """Return the column of each label."""
        places = {str(name): place for place, name in enumerate(self.names)}
        return np.array([places[label] for label in label_ids], dtype=np.int64)

    def shaped(self, matrix: csr_matrix) -> Any:
        """Return a matrix of predictions as an indicator matrix in the form of the labels."""
        indicator = matrix.astype(np.int64)
        indicator.data[:] = 1
        if self.form == "sparse":
            return indicator
        dense = indicator.toarray()
        if self.form == "dense":
            return dense
        from pandas import DataFrame

        return DataFrame(dense, columns=list(self.names))


def as_matrix(found: Predictions, places: NDArray[np.int64], width: int) -> csr_matrix:
    """Return predictions as a sparse matrix of probabilities.

    Args:
        found: The predictions.
        places: The column of each label.
        width: Number of columns.
    """
    from scipy.sparse import csr_matrix

    rows, slots = np.nonzero(found.indices >= 0)
    columns, scores = places[found.indices[rows, slots]], found.scores[rows, slots]
    return csr_matrix((scores, (rows, columns)), (len(found), width))


def as_label_lists(y: Any) -> list[list[Any]]:
    """Return the labels of each text as a list.

    Args:
        y: For each text a list, tuple, set or array of labels; or an indicator matrix of 0 and 1
            (texts, labels), dense or sparse, whose column numbers are the labels; or such a table
            (DataFrame), whose column names are.

    Raises:
        InputError: y has another form.
    """
    if y is None:
        raise InputError(
            "labels are required: y is None; pass for each text the list of its labels"
        )
    columns = LabelColumns.of(y)
    if columns is None:
        return [_labels_of(labels, row) for row, labels in enumerate(y)]
    if columns.form == "sparse":
        matrix = y.tocsr(copy=True)
    else:
        from scipy.sparse import csr_matrix

        matrix = csr_matrix(np.asarray(y, dtype=np.float32))
    return [[columns.names[place] for place in row] for row in _columns(matrix)]


def _labels_of(labels: Any, row: int) -> list[Any]:
    if isinstance(labels, str | bytes) or not isinstance(labels, Iterable):
        raise InputError(
            f"y[{row}] is {labels!r:.60}; expected a list of labels, such as [{labels!r:.30}]"
        )
    # Sets have no order of their own; a fixed one keeps runs repeatable.
    return sorted(labels, key=str) if isinstance(labels, set | frozenset) else list(labels)


def _columns(matrix: csr_matrix) -> list[list[int]]:
    """Return the columns that hold a 1 in each row of a matrix, which is changed."""
    matrix.eliminate_zeros()
    if not np.all(matrix.data == 1):
        raise InputError(
            f"an indicator matrix must hold 0 and 1 only; this one also holds {matrix.data.max():g}"
        )
    bounds = zip(matrix.indptr[:-1], matrix.indptr[1:], strict=True)
    return [sorted(matrix.indices[start:stop].tolist()) for start, stop in bounds]
