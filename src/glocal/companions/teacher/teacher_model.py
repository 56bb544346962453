"""TReaderXML's teacher: the labels of similar training texts, as a companion.

- Finds the k most similar training texts by the cosine of mean word vectors (Eq. 1 and 2) or of the
  words themselves, lets them vote for their labels by similarity, and adds the labels right above
  (Algorithm 1).
- Only training texts are searched, each distinct text once with the labels of all its copies. A
  text is never its own neighbour: texts with the same content, by hash, are excluded in training
  and in prediction, so that a text has the same scope in both.
- A text without any known word has no neighbours and an empty scope.
- Scopes of a corpus are computed once, cached on disk and memory-mapped.
- Stored as JSON, Parquet and npy files (and faiss's own for an approximate search), with the word
  vectors in a folder `vectors`.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from glocal.arrays import Floats32, Ints
from glocal.companions.companion import SCOPE, SCOPE_WEIGHT, Companion, FitInputs
from glocal.companions.teacher.known_labels import KnownLabels
from glocal.companions.teacher.teacher_explanation import (
    AddedParent,
    Neighbour,
    TeacherExplanation,
    Vote,
)
from glocal.companions.teacher.texts import IndexedTexts
from glocal.companions.teacher.vector_index import SimilarityIndex
from glocal.companions.teacher.votes import Scopes, scopes_from_neighbours, vote
from glocal.companions.teacher.word_index import WordIndex
from glocal.config import TeacherConfig
from glocal.config.checking import stored_section
from glocal.data.cache import Arrays, cached_arrays
from glocal.encoders.static import StaticVectors
from glocal.errors import DataError, ModelError, unreadable
from glocal.progress import Progress, StagedProgress, report, silent

if TYPE_CHECKING:
    from glocal.data.corpus import Corpus
    from glocal.vocabulary.label_space import LabelSpace

__all__ = ["Scopes", "Teacher"]

FORMAT_VERSION = 1
BATCH_TEXTS = 1024  # embedded at a time
SEARCHED_TEXTS = 8192  # looked up at a time
META_FILE, TEXTS_FILE, LABELS_FILE = "teacher.json", "texts.parquet", "labels.parquet"
VECTORS_FOLDER = "vectors"


@dataclass(frozen=True, eq=False)
class Teacher(Companion):
    """The labels of similar training texts.

    Args:
        texts: The training texts it can find.
        index: Their vectors, or their words.
        known: The labels it can name.
        config: The settings.
        vectors: Word vectors, which texts are compared by.
    """

    folder: ClassVar[str] = "teacher"
    reads_word_vectors: ClassVar[bool] = True

    texts: IndexedTexts
    index: SimilarityIndex | WordIndex
    known: KnownLabels
    config: TeacherConfig
    vectors: StaticVectors

    @classmethod
    def fit(cls, inputs: FitInputs, *, progress: StagedProgress = silent) -> Teacher:
        """Index the training texts.

        Args:
            inputs: Training texts, labels, settings and word vectors.
            progress: Returns the progress callback of a stage.
        """
        config, train, vectors = inputs.recipe.teacher, inputs.train, inputs.vectors
        assert vectors is not None, "a teacher compares texts by word vectors"
        known = KnownLabels.find(train, inputs.labels, inputs.table, config)
        texts, first = IndexedTexts.of_corpus(train, inputs.labels, n_labels=len(known))
        stage = progress("texts read by the teacher")
        return cls(texts, _index(train, first, config, vectors, stage), known, config, vectors)

    def fingerprint(self) -> str:
        """Identify the teacher: changes whenever the scope of some text may."""
        return self._fingerprint

    @cached_property
    def _fingerprint(self) -> str:
        digest = hashlib.blake2b(digest_size=16)
        labels = self.texts.labels
        facts = [asdict(self.config), self.vectors.fingerprint(), self.known.ids]
        digest.update(json.dumps([*facts, self.known.parents]).encode())
        for part in (self.texts.keys, labels.indptr.astype(np.int64), labels.indices):
            digest.update(np.ascontiguousarray(part).tobytes())
        return digest.hexdigest()

    def features(
        self, corpus: Corpus, *, allowed: np.ndarray | None = None, progress: Progress | None = None
    ) -> Arrays:
        """Return the scopes of a corpus's texts; `allowed` has no effect on them."""
        return _features(self.scopes(corpus, progress=progress))

    def features_for_texts(
        self, texts: Sequence[str], *, allowed: np.ndarray | None = None
    ) -> Arrays:
        """Return the scopes of texts; `allowed` has no effect on them."""
        return _features(self.scopes_of(texts))

    def training_features(self, train: Corpus, *, progress: Progress | None = None) -> Arrays:
        """Return the scopes of the training texts.

        Raises:
            DataError: No text has a similar one, so that there is nothing to learn from.
        """
        found = self.features(train, progress=progress)
        if not (found[SCOPE] >= 0).any():
            raise DataError(
                f"none of the {len(train):,} training texts has a similar one, so the teacher has "
                "no labels to suggest; its word vectors may not know the words of these texts: set "
                "teacher.vectors=corpus, or train without a teacher (reader.configuration=7, "
                "experts without T)",
                path=train.source,
            )
        return found

    def label_vectors(self, *, blank: bool = False) -> Floats32:
        """Return the mean word vector of each label's description, (T, D)."""
        if blank:
            return np.zeros((len(self.known), self.vectors.dimensions), dtype=np.float32)
        return self.vectors.embed(self.known.descriptions)

    def scopes(self, corpus: Corpus, *, progress: Progress | None = None) -> Scopes:
        """Return the scopes of a corpus's texts, computed once and memory-mapped.

        Args:
            corpus: The texts.
            progress: Called with the texts done and their number.
        """
        total = len(corpus)

        def fill(arrays: Arrays) -> None:
            for start in range(0, total, SEARCHED_TEXTS):
                found = self.scopes_of(corpus.texts(start, start + SEARCHED_TEXTS))
                done = start + len(found)
                arrays["labels"][start:done] = found.labels
                arrays["weights"][start:done] = found.weights
                report(progress, done, total)

        shape = (total, self.config.size)
        spec = {"labels": (np.int32, shape), "weights": (np.float32, shape)}
        key = [FORMAT_VERSION, corpus.fingerprint(), self.fingerprint()]
        return Scopes(**cached_arrays("scopes", key, spec, fill))

    def scopes_of(self, texts: Sequence[str]) -> Scopes:
        """Return the scopes of texts."""
        rows, similarities = self.nearest(texts, self.config.k)
        return self.scopes_from(rows, similarities)

    def scopes_from(self, rows: Ints, similarities: Floats32) -> Scopes:
        """Return the scopes that follow from the output of `nearest`."""
        return scopes_from_neighbours(
            rows,
            similarities,
            self.texts.labels,
            parent_matrix=self.known.parent_matrix,
            size=self.config.size,
            sharpness=self.config.sharpness,
        )

    def nearest(self, texts: Sequence[str], k: int) -> tuple[Ints, Floats32]:
        """Return the most similar training texts of each text, never one with the same content.

        Args:
            texts: The texts.
            k: Neighbours per text.

        Returns:
            (n, k) rows of the index, nearest first, -1 for none; (n, k) similarities.
        """
        own = self.texts.find(texts)
        return self.index.search(self.index.queries(texts, own, self.vectors), k, exclude=own)

    def similar_texts(self, text: str) -> TeacherExplanation:
        """Return a text's neighbours, the labels they vote for and the parents added to these."""
        rows, similarities = self.nearest([text], self.config.k)
        scope = self.scopes_from(rows, similarities)
        there = rows[0] >= 0
        neighbours = tuple(
            Neighbour(self.texts.ids[row], float(similarity), self._labels_of(row))
            for row, similarity in zip(rows[0][there], similarities[0][there], strict=True)
        )
        voted = set(vote(rows, similarities, self.texts.labels).indices.tolist())
        votes, parents = [], []
        for place, weight in zip(scope.labels[0].tolist(), scope.weights[0].tolist(), strict=True):
            if place < 0:
                break
            label, description = self.known.ids[place], self.known.descriptions[place]
            if place in voted:
                givers = [n.id for n in neighbours if label in n.labels]
                votes.append(Vote(label, description, weight, tuple(givers)))
            else:
                children = [self.known.ids[v] for v in voted if place in self.known.parents[v]]
                parents.append(AddedParent(label, description, tuple(sorted(children))))
        return TeacherExplanation(neighbours, tuple(votes), tuple(parents))

    def _labels_of(self, row: int) -> tuple[str, ...]:
        matrix = self.texts.labels
        places = matrix.indices[matrix.indptr[row] : matrix.indptr[row + 1]]
        return tuple(self.known.ids[place] for place in places)

    def save(self, folder: str | Path) -> None:
        """Write the teacher and its word vectors into a folder, which is created if need be."""
        target = Path(folder)
        target.mkdir(parents=True, exist_ok=True)
        meta = {
            "format_version": FORMAT_VERSION,
            "config": asdict(self.config),
            "vectors": self.vectors.fingerprint(),
        }
        (target / META_FILE).write_text(json.dumps(meta, indent=2) + "\n", encoding="utf-8")
        self.known.save(target / LABELS_FILE)
        self.texts.save(target / TEXTS_FILE)
        self.index.save(target)
        self.vectors.save(target / VECTORS_FOLDER)

    @classmethod
    def load(cls, folder: str | Path, labels: LabelSpace) -> Teacher:
        """Read a teacher written by `save`; the vectors of its texts are memory-mapped.

        Args:
            folder: The teacher's folder.
            labels: The label space it was fitted for.

        Raises:
            ModelError: The folder holds no teacher, is damaged, or belongs to other labels.
        """
        source = Path(folder)
        if not (source / META_FILE).is_file():
            raise ModelError(f"there is no teacher in {source}: it has no {META_FILE}")
        kinds = OSError, ValueError, LookupError, TypeError, AttributeError
        with unreadable(f"the teacher in {source} is damaged", *kinds):
            meta = json.loads((source / META_FILE).read_text(encoding="utf-8"))
            config = stored_section(TeacherConfig, meta["config"])
            made_with = str(meta["vectors"])
            known = KnownLabels.load(source / LABELS_FILE)
            texts = IndexedTexts.load(source / TEXTS_FILE, n_labels=len(known))
            vectors = StaticVectors.load(source / VECTORS_FOLDER)
        if known.ids[: len(labels)] != labels.ids:
            raise ModelError(f"the teacher in {source} was fitted for other labels than these")
        if made_with != vectors.fingerprint():
            raise ModelError(f"the teacher in {source} was fitted with other word vectors")
        index: SimilarityIndex | WordIndex
        if config.similarity == "words":
            n_words = len(vectors.matrix)
            index = WordIndex.load(source, n_words=n_words, heaviest=config.heaviest)
        else:
            index = SimilarityIndex.load(
                source, vectors.dimensions, kind=config.index, effort=config.effort
            )
        if len(index) != len(texts.ids):
            raise ModelError(
                f"the teacher in {source} is damaged: {len(index)} vectors, {len(texts.ids)} texts"
            )
        return cls(texts, index, known, config, vectors)


def _features(scopes: Scopes) -> Arrays:
    return {SCOPE: scopes.labels, SCOPE_WEIGHT: scopes.weights}


def _index(
    train: Corpus,
    rows: Ints,
    config: TeacherConfig,
    vectors: StaticVectors,
    progress: Progress,
) -> SimilarityIndex | WordIndex:
    """Index the words, or the vectors, of the texts at some rows."""
    if config.similarity == "words":
        index = WordIndex.of_texts(
            train.iter_texts(BATCH_TEXTS),
            vectors,
            heaviest=config.heaviest,
            progress=lambda done: progress(done, len(train)),
        )
        return index if len(rows) == len(index) else index.keep(rows)
    embedded = _embed_corpus(train, vectors, progress)
    return SimilarityIndex.of_embedded(
        embedded if len(rows) == len(embedded) else embedded[rows],
        centred=config.centre,
        kind=config.index,
        effort=config.effort,
    )


def _embed_corpus(corpus: Corpus, vectors: StaticVectors, progress: Progress) -> Floats32:
    """Return the vectors of all texts, computed once and memory-mapped."""

    def fill(arrays: Arrays) -> None:
        done = 0
        for texts in corpus.iter_texts(BATCH_TEXTS):
            arrays["vectors"][done : done + len(texts)] = vectors.embed(texts)
            done += len(texts)
            progress(done, len(corpus))

    key = [FORMAT_VERSION, corpus.fingerprint(), vectors.fingerprint()]
    spec = {"vectors": (np.float32, (len(corpus), vectors.dimensions))}
    return cached_arrays("text-vectors", key, spec, fill)["vectors"]
