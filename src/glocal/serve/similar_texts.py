"""Training texts that the operator allows to be shown, and the search for similar ones.

Texts are compared by the cosine of their words (TF-IDF). The index is built in the background;
until it is there, explanations come without similar texts.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from glocal.data.corpus import Corpus
from glocal.serve import schemas

if TYPE_CHECKING:
    from glocal.predict.predictor import Predictor

logger = logging.getLogger(__name__)

_SHOWN_CHARACTERS = 500
_MOST, _LEAST = 10, 0.05  # texts of an explanation, similarity of one that is shown


@dataclass(frozen=True)
class SimilarText:
    """A text that may be shown.

    Attributes:
        id: Its id.
        text: Its beginning.
        labels: Ids of its labels.
        similarity: Cosine similarity.
    """

    id: str
    text: str | None
    labels: Sequence[str]
    similarity: float


class SimilarTexts:
    """Texts and their index.

    Args:
        corpus: The texts, with labels.
    """

    def __init__(self, corpus: Corpus) -> None:
        self.corpus = corpus
        self._index: Future[tuple[Any, Any]] = Future()
        threading.Thread(target=self._build, name="glocal-similar-texts", daemon=True).start()

    def _build(self) -> None:
        from glocal.companions.sparse.vectoriser import Vectoriser
        from glocal.config import SparseConfig

        try:
            found = Vectoriser.fit(self.corpus, SparseConfig(pairs=False, min_words=1))
            self._index.set_result(found)
        except Exception as error:
            logger.warning("similar texts cannot be shown: %s", error)
            self._index.set_exception(error)

    def wait(self) -> None:
        """Wait until the index is built."""
        self._index.exception()

    def find(self, text: str, k: int) -> list[SimilarText]:
        """Return the k most similar texts, nearest first; none while the index is being built."""
        if not self._index.done() or self._index.exception() is not None:
            return []
        vectoriser, rows = self._index.result()
        query = vectoriser.transform([text]).toarray()[0]
        similarities = rows @ query
        best = np.argsort(-similarities, kind="stable")[:k]
        return [
            self._shown(int(row), float(similarities[row]))
            for row in best
            if similarities[row] >= _LEAST
        ]

    def explain(self, predictor: Predictor, text: str) -> list[schemas.SimilarText]:
        """Return the texts that a teacher found, or else those with similar words."""
        known, teacher = predictor.labels, predictor.explain_teacher(text)
        if teacher is None:
            found = self.find(text, _MOST)
        else:
            found = [
                SimilarText(n.id, self.beginning(n.id), n.labels, n.similarity)
                for n in teacher.neighbours[:_MOST]
            ]

        def named(id_: str) -> schemas.LabelName:
            name = known.names[known.index[id_]] if id_ in known.index else id_
            return schemas.LabelName(id=id_, name=name)

        return [
            schemas.SimilarText(**{**vars(one), "labels": list(map(named, one.labels))})
            for one in found
        ]

    def beginning(self, id: str) -> str | None:
        """Return the beginning of the text with an id; None if there is none."""
        row = self._rows.get(id)
        return None if row is None else self._text(row)

    @cached_property
    def _rows(self) -> dict[str, int]:
        ids = self.corpus.table.column("id").to_pylist()
        return {id_: row for row, id_ in reversed(list(enumerate(ids)))}

    def _text(self, row: int) -> str:
        text: str = self.corpus.table.column("text")[row].as_py()
        cut = text[:_SHOWN_CHARACTERS]
        return cut if len(cut) == len(text) else f"{cut}…"

    def _shown(self, row: int, similarity: float) -> SimilarText:
        table = self.corpus.table
        labels = table.column("labels")[row].as_py()
        return SimilarText(table.column("id")[row].as_py(), self._text(row), labels, similarity)
