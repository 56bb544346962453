"""TReaderXML's teacher: what the labels of similar training texts say about a text.

- Finds the k most similar training texts by the cosine of mean word vectors (Eq. 1 and 2) or of the
  words themselves, lets them vote for their labels by similarity, and adds the labels right above
  (Algorithm 1).
- Training texts only, each distinct text once with all the labels its copies have. A text is never
  its own neighbour: whatever has the same content, by hash, is left out, in training and at
  prediction alike, so that a text's scope is the same in both.
- A text without any known word has no neighbours, and an empty scope.
- Scopes of a corpus are computed once, cached on disk and memory-mapped.
- In a model directory: JSON, Parquet and npy files (and faiss's own for an approximate search).
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import asdict
from functools import cached_property
from pathlib import Path

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from glocal.companions.teacher.array_store import Arrays, cached_arrays
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
from glocal.data.corpus import Corpus
from glocal.data.label_table import LabelTable
from glocal.encoders.static import TextVectors
from glocal.errors import ConfigError, ModelError
from glocal.progress import Progress
from glocal.vocabulary.label_space import LabelSpace

__all__ = ["Scopes", "Teacher"]

FORMAT_VERSION = 1
BATCH_TEXTS = 1024  # embedded at a time
SEARCHED_TEXTS = 8192  # looked up at a time
META_FILE, TEXTS_FILE, LABELS_FILE = "teacher.json", "texts.parquet", "labels.parquet"


class Teacher:
    """The labels of similar training texts.

    Args:
        texts: The training texts it can find.
        index: Their vectors, or their words.
        known: The labels it can name.
        config: Its settings.
        vectors: Gives the vectors of texts.
    """

    def __init__(
        self,
        texts: IndexedTexts,
        index: SimilarityIndex | WordIndex,
        known: KnownLabels,
        config: TeacherConfig,
        vectors: TextVectors,
    ) -> None:
        self.texts, self.index, self.known = texts, index, known
        self.config, self.vectors = config, vectors
        self._parents = known.parent_matrix()

    @classmethod
    def fit(
        cls,
        train: Corpus,
        labels: LabelSpace,
        table: LabelTable | None,
        config: TeacherConfig,
        vectors: TextVectors,
        *,
        progress: Progress | None = None,
    ) -> Teacher:
        """Make a teacher of training texts.

        Args:
            train: The texts; none but these are ever found.
            labels: The label space.
            table: Names and parents of labels.
            config: The settings.
            vectors: Gives the vectors of texts.
            progress: Called with the texts embedded and their number.

        Raises:
            ConfigError: Settings that do not go together.
        """
        if config.similarity == "words" and config.index != "exact":
            raise ConfigError(
                f"'teacher.index' = {config.index} searches vectors, but 'teacher.similarity' is "
                "words, whose search is always exact; set teacher.index=exact"
            )
        known = KnownLabels.find(
            train,
            labels,
            table,
            parents=config.parents,
            words=config.words,
            text_words=config.text_words,
        )
        texts, first = IndexedTexts.of_corpus(train, labels, n_labels=len(known))
        build = _index_words if config.similarity == "words" else _index_vectors
        return cls(texts, build(train, first, config, vectors, progress), known, config, vectors)

    @property
    def label_ids(self) -> list[str]:
        """The labels of the label space in its order, then parents outside it."""
        return self.known.ids

    @property
    def descriptions(self) -> list[str]:
        """A few words about each label."""
        return self.known.descriptions

    @cached_property
    def fingerprint(self) -> str:
        """A name that changes whenever the scope of some text may."""
        digest = hashlib.blake2b(digest_size=16)
        labels = self.texts.labels
        facts = [asdict(self.config), self.vectors.fingerprint(), self.known.ids]
        digest.update(json.dumps([*facts, self.known.parents]).encode())
        for part in (self.texts.keys, labels.indptr.astype(np.int64), labels.indices):
            digest.update(np.ascontiguousarray(part).tobytes())
        return digest.hexdigest()

    def scopes(self, corpus: Corpus, *, progress: Progress | None = None) -> Scopes:
        """The scopes of a corpus's texts, computed once and memory-mapped.

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
                if progress is not None:
                    progress(done, total)

        shape = (total, self.config.size)
        spec = {"labels": (np.int32, shape), "weights": (np.float32, shape)}
        key = _key(FORMAT_VERSION, corpus.fingerprint(), self.fingerprint)
        return Scopes(**cached_arrays("scopes", key, spec, fill))

    def scopes_of(self, texts: Sequence[str]) -> Scopes:
        """The scopes of texts."""
        rows, similarities = self.nearest(texts, self.config.k)
        return self.scopes_from(rows, similarities)

    def scopes_from(self, rows: NDArray[np.int64], similarities: NDArray[np.float32]) -> Scopes:
        """The scopes that follow from neighbours, as `nearest` gives them."""
        return scopes_from_neighbours(
            rows,
            similarities,
            self.texts.labels,
            parent_matrix=self._parents,
            size=self.config.size,
            sharpness=self.config.sharpness,
        )

    def nearest(
        self, texts: Sequence[str], k: int
    ) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
        """The most similar training texts of each text, never one with the same content.

        Args:
            texts: The texts.
            k: How many for each.

        Returns:
            (n, k) rows of the index, nearest first, -1 where there are fewer; (n, k) similarities.
        """
        own = self.texts.find(texts)
        return self.index.search(self.index.queries(texts, own, self.vectors), k, exclude=own)

    def neighbours(self, text: str) -> TeacherExplanation:
        """What the teacher makes of a text, and why."""
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
            label, description = self.label_ids[place], self.descriptions[place]
            if place in voted:
                givers = [n.id for n in neighbours if label in n.labels]
                votes.append(Vote(label, description, weight, tuple(givers)))
            else:
                children = [self.label_ids[v] for v in voted if place in self.known.parents[v]]
                parents.append(AddedParent(label, description, tuple(sorted(children))))
        return TeacherExplanation(neighbours, tuple(votes), tuple(parents))

    def _labels_of(self, row: int) -> tuple[str, ...]:
        matrix = self.texts.labels
        places = matrix.indices[matrix.indptr[row] : matrix.indptr[row + 1]]
        return tuple(self.label_ids[place] for place in places)

    def save(self, folder: str | Path) -> None:
        """Write the teacher into a folder, which is made if need be; vectors are saved apart."""
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

    @classmethod
    def load(cls, folder: str | Path, labels: LabelSpace, vectors: TextVectors) -> Teacher:
        """Read a teacher written by `save`; the vectors of its texts are memory-mapped.

        Args:
            folder: Where it is.
            labels: The label space it was made for.
            vectors: The word vectors it was made with.

        Raises:
            ModelError: There is none, it is damaged, or it goes with other labels or vectors.
        """
        source = Path(folder)
        if not (source / META_FILE).is_file():
            raise ModelError(f"there is no teacher in {source}: it has no {META_FILE}")
        try:
            meta = json.loads((source / META_FILE).read_text(encoding="utf-8"))
            config, made_with = TeacherConfig(**meta["config"]), str(meta["vectors"])
            known = KnownLabels.load(source / LABELS_FILE)
            texts = IndexedTexts.load(source / TEXTS_FILE, n_labels=len(known))
        except (OSError, ValueError, KeyError, TypeError, pa.ArrowException) as error:
            reason = str(error).splitlines()[0]
            raise ModelError(f"the teacher in {source} is damaged: {reason}") from error
        if known.ids[: len(labels)] != labels.ids:
            raise ModelError(f"the teacher in {source} was made for other labels than these")
        if made_with != vectors.fingerprint():
            raise ModelError(f"the teacher in {source} was made with other word vectors")
        index: SimilarityIndex | WordIndex
        if config.similarity == "words":
            n_words = len(vectors.token_matrix())
            index = WordIndex.load(source, n_words=n_words, heaviest=config.heaviest)
        else:
            index = SimilarityIndex.load(source, kind=config.index, effort=config.effort)
        if len(index) != len(texts.ids):
            raise ModelError(
                f"the teacher in {source} is damaged: {len(index)} vectors, {len(texts.ids)} texts"
            )
        return cls(texts, index, known, config, vectors)


def _key(*parts: object) -> str:
    return hashlib.blake2b(json.dumps(parts).encode(), digest_size=16).hexdigest()


def _index_words(
    train: Corpus,
    rows: NDArray[np.int64],
    config: TeacherConfig,
    vectors: TextVectors,
    progress: Progress | None,
) -> WordIndex:
    """The words of the texts at some rows."""
    index = WordIndex.of_texts(
        train.iter_texts(BATCH_TEXTS),
        vectors,
        heaviest=config.heaviest,
        progress=None if progress is None else lambda done: progress(done, len(train)),
    )
    return index if len(rows) == len(index) else index.keep(rows)


def _index_vectors(
    train: Corpus,
    rows: NDArray[np.int64],
    config: TeacherConfig,
    vectors: TextVectors,
    progress: Progress | None,
) -> SimilarityIndex:
    """The vectors of the texts at some rows."""
    embedded = _embed_corpus(train, vectors, progress)
    return SimilarityIndex.of_embedded(
        embedded if len(rows) == len(embedded) else embedded[rows],
        centred=config.centre,
        kind=config.index,
        effort=config.effort,
    )


def _embed_corpus(
    corpus: Corpus, vectors: TextVectors, progress: Progress | None
) -> NDArray[np.float32]:
    """The vectors of all texts, computed once and memory-mapped."""

    def fill(arrays: Arrays) -> None:
        done = 0
        for texts in corpus.iter_texts(BATCH_TEXTS):
            arrays["vectors"][done : done + len(texts)] = vectors.embed(texts)
            done += len(texts)
            if progress is not None:
                progress(done, len(corpus))

    key = _key(FORMAT_VERSION, corpus.fingerprint(), vectors.fingerprint())
    spec = {"vectors": (np.float32, (len(corpus), vectors.dimensions))}
    return cached_arrays("text-vectors", key, spec, fill)["vectors"]
