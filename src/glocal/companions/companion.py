"""What goes along with a system: models of raw texts whose word travels with the batches.

A teacher looks up similar training texts; the sparse linear model weighs words. Each is fitted on
the training texts, gives rows of fixed width for any text, and lies in the model directory in a
folder of its own.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from glocal._version import __version__
from glocal.companions.feature_names import SPARSE, SPARSE_ODDS
from glocal.companions.teacher.teaching import Teaching, uses_teacher
from glocal.config import Recipe
from glocal.config.expert_names import SPARSE_EXPERT
from glocal.data.atomic import replace_dir, temporary_dir
from glocal.data.cache import cache_dir
from glocal.progress import Progress, StagedProgress

if TYPE_CHECKING:
    from glocal.companions.sparse.sparse_model import SparseModel
    from glocal.data.corpus import Corpus
    from glocal.vocabulary.label_space import LabelSpace

__all__ = ["Companions", "SparseCompanion", "fit_sparse"]


_BEST = 200  # labels of each text whose log-odds go along
_BEST_UNSEEN = 50  # labels without training texts, besides: they are rarely among the best
_CHUNK = 4096  # texts weighed at a time
_CLIP = (1e-7, 1.0 - 1e-7)


@dataclass(frozen=True)
class SparseCompanion:
    """The sparse model as a source of rows.

    Args:
        model: Scores labels.
        counts: (L,) training texts of each label.
    """

    model: SparseModel
    counts: np.ndarray

    @property
    def unseen(self) -> np.ndarray:
        """(L,) bool: labels without a training text."""
        unseen: np.ndarray = np.asarray(self.counts) == 0
        return unseen

    def rows(
        self,
        corpus: Corpus,
        *,
        allowed: np.ndarray | None = None,
        progress: Progress | None = None,
    ) -> dict[str, np.ndarray]:
        """The best labels of a corpus's documents, among those allowed, and their log-odds."""
        width = min(_BEST, self.model.n_labels) + min(_BEST_UNSEEN, int(self.unseen.sum()))
        labels = np.full((len(corpus), width), -1, dtype=np.int32)
        odds = np.zeros((len(corpus), width), dtype=np.float32)
        for start in range(0, len(corpus), _CHUNK):
            texts = corpus.texts(start, start + _CHUNK)
            found = self.rows_of(texts, allowed=allowed, threads=0)
            rows = slice(start, start + len(texts))
            labels[rows], odds[rows] = found[SPARSE], found[SPARSE_ODDS]
            if progress is not None:
                progress(start + len(texts), len(corpus))
        return {SPARSE: labels, SPARSE_ODDS: odds}

    def rows_of(
        self, texts: Sequence[str], *, allowed: np.ndarray | None = None, threads: int = 1
    ) -> dict[str, np.ndarray]:
        """The same of texts."""
        width = min(_BEST, self.model.n_labels)
        labels, probabilities = self.model.topk(texts, width, allowed=allowed, threads=threads)
        if (unseen := self.unseen).any():
            some = unseen if allowed is None else unseen & allowed
            rare, rare_probabilities = self.model.topk(
                texts, min(_BEST_UNSEEN, int(unseen.sum())), allowed=some, threads=threads
            )
            # A label comes once; the place of one that is there already says nothing.
            there = (rare[:, :, None] == labels[:, None, :]).any(axis=2)
            rare_probabilities = np.where(there, probabilities[:, :1], rare_probabilities)
            labels = np.concatenate([np.where(there, -1, rare), labels], axis=1)
            probabilities = np.concatenate([rare_probabilities, probabilities], axis=1)
        p = np.clip(probabilities.astype(np.float64), *_CLIP)
        odds = (np.log(p) - np.log1p(-p)).astype(np.float32)
        return {SPARSE: labels.astype(np.int32), SPARSE_ODDS: odds}


def fit_sparse(
    recipe: Recipe,
    train: Corpus,
    labels: LabelSpace,
    *,
    progress: StagedProgress | None = None,
) -> SparseCompanion | None:
    """The sparse model of the training texts, where the recipe has the expert `S`.

    It does not depend on the encoder, so runs on the same texts share it through the cache.
    """
    if SPARSE_EXPERT not in recipe.experts:
        return None
    from glocal.companions.sparse.sparse_model import SparseModel

    key: list[Any] = [__version__, asdict(recipe.sparse), recipe.train.seed, train.fingerprint()]
    key += [labels.ids, labels.names, labels.alt_names, labels.counts.tolist()]
    digest = hashlib.blake2b(json.dumps(key).encode(), digest_size=16).hexdigest()
    kept = cache_dir("sparse") / digest
    if not kept.is_dir():
        model = SparseModel.fit(
            train, labels, recipe.sparse, seed=recipe.train.seed, progress=progress
        )
        with temporary_dir(kept) as folder:
            model.save(folder / "model")
            replace_dir(folder, kept)
    return SparseCompanion(SparseModel.load(kept / "model"), labels.counts)


@dataclass(frozen=True)
class Companions:
    """Those of one model."""

    teaching: Teaching | None = None
    sparse: SparseCompanion | None = None

    def rows(
        self,
        corpus: Corpus,
        *,
        allowed: np.ndarray | None = None,
        progress: Progress | None = None,
    ) -> dict[str, np.ndarray]:
        """What goes into batches of a corpus's documents.

        Args:
            corpus: The documents.
            allowed: (L,) bool, the only labels that will be asked for.
            progress: Called with (done, total).
        """
        rows = {} if self.teaching is None else self.teaching.rows(corpus, progress=progress)
        if self.sparse is not None:
            rows |= self.sparse.rows(corpus, allowed=allowed, progress=progress)
        return rows

    def training_rows(
        self, train: Corpus, *, progress: Progress | None = None
    ) -> dict[str, np.ndarray]:
        """What goes into batches in training: the sparse model's own texts teach nothing of it."""
        if self.teaching is None:
            return {}
        return self.teaching.training_rows(train, progress=progress)

    def rows_of(
        self, texts: Sequence[str], *, allowed: np.ndarray | None = None
    ) -> dict[str, np.ndarray]:
        """What goes into batches of texts."""
        rows = {} if self.teaching is None else self.teaching.rows_of(texts)
        if self.sparse is not None:
            rows |= self.sparse.rows_of(texts, allowed=allowed)
        return rows

    def fingerprints(self) -> list[str]:
        """Of what training depends on."""
        return [] if self.teaching is None else [self.teaching.teacher.fingerprint]

    def save(self, folder: Path) -> None:
        """Write each into its place in a model directory."""
        if self.teaching is not None:
            self.teaching.save(folder / "teacher")
        if self.sparse is not None:
            self.sparse.model.save(folder / "sparse")

    @classmethod
    def load(cls, folder: Path, recipe: Recipe, labels: LabelSpace) -> Companions:
        """Read those a recipe needs."""
        teaching = Teaching.load(folder / "teacher", labels) if uses_teacher(recipe) else None
        if SPARSE_EXPERT not in recipe.experts:
            return cls(teaching)
        from glocal.companions.sparse.sparse_model import SparseModel

        sparse = SparseCompanion(SparseModel.load(folder / "sparse"), labels.counts)
        return cls(teaching, sparse)
