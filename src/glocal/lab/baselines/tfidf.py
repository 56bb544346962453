"""TF-IDF features, the same for every linear baseline.

Words of two characters or more, lower-cased, sublinear term frequency, rows of length 1, fitted on
the training texts alone (scikit-learn's TfidfVectorizer); on request also character 3- and 4-grams
within words. Texts without a known word have an empty row.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from glocal.data.atomic import atomic_write
from glocal.data.corpus import Corpus
from glocal.errors import DataError, require


class TextFeatures:
    """Turns texts into rows of a sparse matrix.

    Args:
        characters: Add character n-grams to the words.
        extra: Extra of this package to name if scikit-learn is missing.
    """

    def __init__(self, *, characters: bool = False, extra: str = "baselines") -> None:
        text = require("sklearn.feature_extraction.text", extra=extra, purpose="TF-IDF features")
        common: dict[str, Any] = {"sublinear_tf": True, "dtype": np.float32}
        self.vectorizers = [text.TfidfVectorizer(**common)]
        if characters:
            grams = {"analyzer": "char_wb", "ngram_range": (3, 4), "min_df": 2}
            self.vectorizers.append(text.TfidfVectorizer(**grams, **common))

    def fit(self, train: Corpus) -> Any:
        """Learn the words of the training texts; return their rows, CSR (texts, features).

        Raises:
            DataError: If no text has a word.
        """
        try:
            return _side_by_side([v.fit_transform(_texts(train)) for v in self.vectorizers])
        except ValueError as error:  # scikit-learn's "empty vocabulary"
            raise DataError(
                f"no features can be made of the texts ({error}); words of two letters or more are "
                "needed",
                path=train.source,
            ) from error

    def transform(self, texts: Sequence[str]) -> Any:
        """Return the rows of other texts, CSR (texts, features)."""
        return _side_by_side([v.transform(texts) for v in self.vectorizers])

    def save(self, path: Path) -> None:
        """Write words and weights as Parquet."""
        import pyarrow as pa
        import pyarrow.parquet as pq

        table = pa.table(
            {
                "feature": np.concatenate([v.get_feature_names_out() for v in self.vectorizers]),
                "idf": np.concatenate([v.idf_ for v in self.vectorizers]).astype(np.float32),
            }
        )
        with atomic_write(path) as file:
            pq.write_table(table, file)


def _texts(corpus: Corpus) -> itertools.chain[str]:
    return itertools.chain.from_iterable(corpus.iter_texts())


def _side_by_side(parts: Sequence[Any]) -> Any:
    from scipy.sparse import csr_matrix, hstack

    matrix = csr_matrix(parts[0] if len(parts) == 1 else hstack(parts))
    matrix.sort_indices()
    return matrix
