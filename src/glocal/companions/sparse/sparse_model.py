"""A linear model on TF-IDF features: trained in minutes on a CPU, explained by its weights.

- Features: words and pairs of neighbouring words, of the text and of its first line (`vectoriser`).
- One linear scorer per label, trained with squared hinge on the texts a label could be confused on
  (`training`, `solver`); scores are log-odds, calibrated on texts held out.
- Labels without a training text are scored too: by their names (`names`) unless `name_weight` is 0,
  below every other label otherwise.
- The weights are sparse; they are the explanation (`explain`).
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from glocal.companions.sparse.platt import calibrate, held_out_texts
from glocal.companions.sparse.sparse_files import read_model, write_model
from glocal.companions.sparse.sparse_scoring import LinearScorer, scores_at, top_labels
from glocal.companions.sparse.sparse_training import LinearTrainer
from glocal.companions.sparse.threads import n_threads
from glocal.companions.sparse.unseen_labels import score_unseen
from glocal.companions.sparse.vectoriser import Vectoriser, settled
from glocal.companions.sparse.word_weights import Contribution, contributions
from glocal.config import SparseConfig
from glocal.data.corpus import Corpus
from glocal.errors import DataError
from glocal.progress import StagedProgress
from glocal.vocabulary.label_space import LabelSpace
from glocal.vocabulary.label_text import name_forms, telling_name

__all__ = ["SparseModel"]

_LARGEST_LOGIT = np.float32(16)


class SparseModel:
    """TF-IDF features and one linear scorer per label.

    Args:
        vectoriser: Turns texts into features.
        scorer: Gives log-odds of labels.
        config: The settings it was trained with.
    """

    def __init__(self, vectoriser: Vectoriser, scorer: LinearScorer, config: SparseConfig) -> None:
        self.vectoriser, self.scorer, self.config = vectoriser, scorer, config

    @classmethod
    def fit(
        cls,
        train: Corpus,
        labels: LabelSpace,
        config: SparseConfig | None = None,
        *,
        dev: Corpus | None = None,
        seed: int = 0,
        threads: int = 0,
        progress: StagedProgress | None = None,
    ) -> SparseModel:
        """Train a model.

        Args:
            train: The training texts with their labels.
            labels: The labels to score, in the order of the model's columns.
            config: The settings.
            dev: Texts to calibrate the probabilities on; without them some training texts are held
                out for it.
            seed: Of everything random.
            threads: How many to use, 0 for as many cores as there are; the result is the same.
            progress: Receives how much of each stage is done.

        Raises:
            DataError: No text has a word that is a feature.
        """
        config = config or SparseConfig()
        threads = n_threads(threads)
        vectoriser, features = Vectoriser.fit(train, config, threads=threads, progress=progress)
        if not features.nnz:
            fewest = settled(config, train).min_words
            shared = (
                f" that is in {fewest} of them; lower sparse.min_words or" if fewest > 1 else ";"
            )
            raise DataError(
                f"none of the {len(train)} texts has a word{shared} add texts", path=train.source
            )
        gold = train_gold = labels.encode(train)[:, : len(labels)]
        train_features = features
        held = held_out_texts(gold, seed=seed) if dev is None else np.empty(0, dtype=np.int64)
        kept = np.setdiff1d(np.arange(len(train)), held)
        scorer = LinearTrainer(
            features if not len(held) else features[kept],
            gold if not len(held) else gold[kept],
            config,
            names=_name_features(vectoriser, labels, config),
            seed=seed,
            threads=threads,
            progress=progress,
        ).fit()
        if dev is not None:
            features, gold = vectoriser.transform(dev.texts()), labels.encode(dev)
            held = np.arange(len(dev))
        scorer = calibrate(scorer, features[held], gold[held], threads=threads)
        if config.name_weight:
            names = name_forms(labels)
            scorer = score_unseen(scorer, vectoriser, names, train_features, train_gold, seed=seed)
        return cls(vectoriser, scorer, config)

    @property
    def n_labels(self) -> int:
        """How many labels are scored."""
        return self.scorer.n_labels

    def topk(
        self,
        texts: Sequence[str],
        k: int,
        *,
        allowed: NDArray[np.bool_] | None = None,
        threads: int = 1,
    ) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
        """The likeliest labels of each text.

        Args:
            texts: The texts.
            k: How many labels.
            allowed: (L,) or (n, L) which labels may come; all by default.
            threads: How many to use, 0 for as many cores as there are.

        Returns:
            Labels (n, k) int64, likeliest first, equal ones by index, -1 where fewer are allowed;
            their probabilities (n, k) float32, 0 there.
        """
        threads = n_threads(threads)
        features = self.vectoriser.transform(texts, threads=threads)
        indices, logits = top_labels(self.scorer, features, k, allowed=allowed, threads=threads)
        return indices, _probability(logits)

    def score(
        self, texts: Sequence[str], candidates: NDArray[np.int64], *, threads: int = 1
    ) -> NDArray[np.float32]:
        """The probabilities of given labels.

        Args:
            texts: The texts.
            candidates: (n, m) labels of each text, -1 for none.
            threads: How many to use, 0 for as many cores as there are.

        Returns:
            (n, m) float32, the same numbers as `topk` gives, 0 where there is no candidate.
        """
        threads = n_threads(threads)
        features = self.vectoriser.transform(texts, threads=threads)
        candidates = np.asarray(candidates, dtype=np.int64)
        return _probability(scores_at(self.scorer, features, candidates, threads=threads))

    def logit(self, text: str, label: int) -> float:
        """The log-odds of one label."""
        features = self.vectoriser.transform([text])
        return float(scores_at(self.scorer, features, np.array([[label]]))[0, 0])

    def explain(self, text: str, label: int) -> list[Contribution]:
        """What speaks for a label and against it.

        Args:
            text: The text.
            label: The label's index.

        Returns:
            The words and pairs with a weight, the strongest first. Their weights and `bias(label)`
            sum to `logit(text, label)`.
        """
        weights = self.scorer.weights[:, [label]].toarray().ravel()
        return contributions(self.vectoriser, weights, text)

    def bias(self, label: int) -> float:
        """The log-odds of a label in a text without any known word."""
        return float(self.scorer.biases[label])

    def save(self, folder: str | Path) -> None:
        """Write the model to a folder of its own, atomically."""
        write_model(folder, self.vectoriser, self.scorer, self.config)

    @classmethod
    def load(cls, folder: str | Path) -> SparseModel:
        """Read a model written by `save`; its weights stay on disk until they are used.

        Raises:
            ModelError: The folder is not such a model, or is damaged.
        """
        return cls(*read_model(folder))


def _name_features(vectoriser: Vectoriser, labels: LabelSpace, config: SparseConfig) -> Any:
    """(F, L) features of the labels' names, None where they do not count."""
    if not config.name_weight:
        return None
    # A label without a name is called by its id, and a number in a text is hardly that label.
    return vectoriser.transform([telling_name(name) for name in labels.names]).T.tocsc()


def _probability(logits: NDArray[np.float32]) -> NDArray[np.float32]:
    # Cut where float32 would round to one; −inf, the mark of an empty place, becomes 0.
    small = np.exp(-np.abs(np.minimum(logits, _LARGEST_LOGIT)))
    probability: NDArray[np.float32] = np.where(logits >= 0, 1 / (1 + small), small / (1 + small))
    return probability
