"""The sparse linear model as a companion: the best labels of each text and their log-odds."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from glocal._version import __version__
from glocal.companions.companion import SPARSE, SPARSE_ODDS, Arrays, Companion, FitInputs
from glocal.companions.sparse.kept_clusters import KeptClusters
from glocal.companions.sparse.sparse_files import FORMAT
from glocal.companions.sparse.sparse_model import SparseModel
from glocal.companions.sparse.sparse_scoring import LabelSet
from glocal.data.cache import cached, entry_path, is_cached
from glocal.errors import ModelError
from glocal.log_odds import log_odds
from glocal.progress import Progress, StagedProgress, report, silent

if TYPE_CHECKING:
    from glocal.companions.sparse.word_weights import Contribution
    from glocal.data.corpus import Corpus
    from glocal.vocabulary.label_change import LabelChange
    from glocal.vocabulary.label_space import LabelSpace

_BEST = 200  # labels of each text whose log-odds are kept
_BEST_UNSEEN = 50  # labels without training texts kept as well: they are rarely among the best
_CHUNK = 4096  # texts scored at a time
_CLIP = (1e-7, 1.0 - 1e-7)


@dataclass(frozen=True)
class SparseCompanion(Companion):
    """The sparse model's best labels as features.

    Training reads none of them: on its own training texts the model is surer than on others.

    Args:
        model: Scores labels.
        counts: (L,) training texts of each label.
        n_documents: Number of training texts, for the prior of texts without a known word.
        n_added: Number of labels at the end that were added after training. They have a list of
            best ones of their own, so that they do not displace others from theirs.
    """

    folder: ClassVar[str] = "sparse"
    feeds_training: ClassVar[bool] = False
    fitted_together: ClassVar[bool] = True

    model: SparseModel
    counts: np.ndarray
    n_documents: int = 0
    n_added: int = 0

    @classmethod
    def fit(cls, inputs: FitInputs, *, progress: StagedProgress = silent) -> SparseCompanion:
        """Fit the model on the training texts.

        It does not depend on the encoder, so runs on the same texts share it through the cache.
        Where several processes fit it, all of them call this at the same time.
        """
        recipe, train, labels = inputs.recipe, inputs.train, inputs.labels
        seed = recipe.train.seed
        key: list[Any] = [__version__, FORMAT, asdict(recipe.sparse), seed, train.fingerprint()]
        key += [labels.ids, labels.names, labels.alt_names, labels.counts.tolist()]

        options: dict[str, Any] = {"seed": seed, "device": inputs.device, "progress": progress}
        fitted = partial(SparseModel.fit, train, labels, recipe.sparse, **options)
        solvers, model = inputs.solvers, None
        kept = KeptClusters(entry_path("sparse-parts", key, create=False))
        if solvers is not None and not solvers.agree(is_cached("sparse", key)):
            model = fitted(solvers=solvers)
        with contextlib.nullcontext() if solvers is None else solvers.in_turn():
            companion = cached(
                "sparse",
                key,
                write=lambda folder: (model or fitted(solvers=kept)).save(folder / "model"),
                read=lambda entry: cls.load(entry / "model", labels),
                about="linear model of words",
            )
        kept.remove()
        return companion

    def placed(self, device: str) -> SparseCompanion:
        """Return the companion with its weights on a GPU, where the device is one."""
        return replace(self, model=self.model.placed(device))

    @cached_property
    def prior(self) -> np.ndarray:
        """Return the log-odds (L,) of labels before a text is read, from their training texts."""
        counts = np.asarray(self.counts, dtype=np.float64)
        share = (counts + 0.5) / (max(self.n_documents, counts.max(initial=0)) + 1.0)
        return log_odds(share).astype(np.float32)

    @cached_property
    def unseen(self) -> np.ndarray:
        """(L,) bool: labels without a training text, other than those added later."""
        unseen: np.ndarray = (np.asarray(self.counts) == 0) & ~self.added
        return unseen

    @cached_property
    def added(self) -> np.ndarray:
        """(L,) bool: labels added after training."""
        return np.arange(len(self.counts)) >= len(self.counts) - self.n_added

    def features(
        self,
        corpus: Corpus,
        *,
        allowed: np.ndarray | None = None,
        progress: Progress | None = None,
    ) -> Arrays:
        """Return the best labels of a corpus's documents, among those allowed, with log-odds."""
        width = sum(some.k for some in self._sets)
        labels = np.full((len(corpus), width), -1, dtype=np.int32)
        odds = np.zeros((len(corpus), width), dtype=np.float32)
        for start in range(0, len(corpus), _CHUNK):
            texts = corpus.texts(start, start + _CHUNK)
            found = self.features_for_texts(texts, allowed=allowed)
            rows = slice(start, start + len(texts))
            labels[rows], odds[rows] = found[SPARSE], found[SPARSE_ODDS]
            report(progress, start + len(texts), len(corpus))
        return {SPARSE: labels, SPARSE_ODDS: odds}

    def features_for_texts(
        self, texts: Sequence[str], *, allowed: np.ndarray | None = None
    ) -> Arrays:
        """Return the best labels of texts, among those allowed, with log-odds."""
        sets = self._sets
        if allowed is not None:
            sets = [LabelSet(some.k, some.within(allowed)) for some in sets]
        found = self.model.topk_of_sets(texts, sets, prior=self.prior, threads=0)
        labels, probabilities = found[0]
        for rare, rare_probabilities in found[1:]:
            # Each label is listed once; the place of one that is there already is left empty.
            there = (rare[:, :, None] == labels[:, None, :]).any(axis=2) | (rare < 0)
            highest = probabilities.max(axis=1, keepdims=True)
            rare_probabilities = np.where(there, highest, rare_probabilities)
            labels = np.concatenate([np.where(there, -1, rare), labels], axis=1)
            probabilities = np.concatenate([rare_probabilities, probabilities], axis=1)
        odds = log_odds(probabilities, _CLIP).astype(np.float32)
        return {SPARSE: labels.astype(np.int32), SPARSE_ODDS: odds}

    @cached_property
    def _sets(self) -> list[LabelSet]:
        """The labels with a list of best ones of their own."""
        trained = ~self.added
        sets = [LabelSet(min(_BEST, int(trained.sum())), trained if self.n_added else None)]
        for some, most in ((self.unseen, _BEST_UNSEEN), (self.added, _BEST)):
            if some.any():
                sets.append(LabelSet(min(most, int(some.sum())), some))
        return sets

    def word_contributions(self, text: str, label: int) -> list[Contribution]:
        """Return the words and word pairs with a weight for a label, strongest first."""
        return self.model.explain(text, label)

    def with_labels(self, change: LabelChange) -> SparseCompanion:
        """Return the companion for other labels; new ones are fitted or scored by their names."""
        model = self.model.with_labels(change)
        after = change.after
        return SparseCompanion(model, after.counts, after.n_documents, after.n_added)

    def save(self, folder: Path) -> None:
        """Write the model."""
        self.model.save(folder)

    @classmethod
    def load(cls, folder: Path, labels: LabelSpace) -> SparseCompanion:
        """Read a model written by `save`; its weights stay on disk until they are used.

        Raises:
            ModelError: It is damaged, or was trained for other labels.
        """
        model = SparseModel.load(folder)
        if model.n_labels != len(labels):
            raise ModelError(
                f"the sparse model in {folder} has {model.n_labels} labels, but the label space "
                f"has {len(labels)}; copy the model directory again, or train the model again"
            )
        return cls(model, labels.counts, labels.n_documents, labels.n_added)
