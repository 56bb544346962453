"""A linear model of TF-IDF features, trained in minutes on a CPU and explained by its weights.

- Features: words and pairs of neighbouring words, of the text and of its first line (`vectoriser`).
- One linear scorer per label, trained with squared hinge on the texts a label could be confused on
  (`sparse_training`, `solver`); scores are log-odds, calibrated on held-out texts (`platt`).
- Labels without a training text are scored by their names (`unseen_labels`); with `name_weight` 0
  they rank below every other label.
- The weights are sparse; explanations are read off them (`explain`).
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from glocal.companions.sparse.sparse_files import read_model, write_model
from glocal.companions.sparse.sparse_rows import move_last
from glocal.companions.sparse.sparse_scoring import Best, LabelSet, LinearScorer, top_of_sets
from glocal.companions.sparse.threads import n_threads
from glocal.companions.sparse.training_memory import LabelledTexts, Scaling, TrainingMemory
from glocal.companions.sparse.vectoriser import Vectoriser, settled
from glocal.config import SparseConfig
from glocal.data.corpus import Corpus
from glocal.errors import DataError
from glocal.log_odds import sigmoid
from glocal.progress import StagedProgress, silent

if TYPE_CHECKING:
    from glocal.companions.sparse.cluster_solvers import ClusterSolvers
    from glocal.companions.sparse.device_scorer import DeviceScorer
    from glocal.companions.sparse.word_weights import Contribution
    from glocal.vocabulary.label_change import LabelChange
    from glocal.vocabulary.label_space import LabelSpace

_LARGEST_LOGIT = np.float32(16)


@dataclass(frozen=True, eq=False)
class SparseModel:
    """TF-IDF features and one linear scorer per label.

    Args:
        vectoriser: Turns texts into features.
        scorer: Gives log-odds of labels.
        config: The settings it was trained with.
        memory: What it keeps of its training for labels added later; older models have none.
        device_scorer: The scorer on a GPU; None to score on the CPU.
    """

    vectoriser: Vectoriser
    scorer: LinearScorer
    config: SparseConfig
    memory: TrainingMemory | None = None
    device_scorer: DeviceScorer | None = None

    @classmethod
    def fit(
        cls,
        train: Corpus,
        labels: LabelSpace,
        config: SparseConfig | None = None,
        *,
        seed: int = 0,
        threads: int = 0,
        device: str = "cpu",
        solvers: ClusterSolvers | None = None,
        progress: StagedProgress = silent,
    ) -> SparseModel:
        """Train a model.

        Args:
            train: The training texts with their labels.
            labels: The labels to score, in the order of the model's columns.
            config: The settings.
            seed: Random seed.
            threads: Number of threads, 0 for all cores; the result does not depend on it.
            device: Where labels are trained: `cpu`, `cuda` or `cuda:N`, or `auto` for a GPU if
                there is one. Weights differ by rounding.
            solvers: Workers that train groups of labels together; the result is the same.
            progress: Receives the progress of each stage.

        Raises:
            DataError: No text has a word that is a feature.
        """
        # Imported here, like all that only training needs: prediction starts sooner without it.
        from glocal.companions.sparse.found_names import found_names
        from glocal.companions.sparse.label_profiles import label_profiles
        from glocal.companions.sparse.names_trial import helpful_names
        from glocal.companions.sparse.new_labels import sample_rows
        from glocal.companions.sparse.new_words import spread_memory
        from glocal.companions.sparse.pieces_trial import with_decided_pieces
        from glocal.companions.sparse.platt import LabelEvidence, calibrate, held_out_texts
        from glocal.companions.sparse.sparse_training import LinearTrainer
        from glocal.companions.sparse.text_votes import TextVotes
        from glocal.companions.sparse.torch_device import torch_device, warm_up
        from glocal.companions.sparse.unseen_labels import score_by_names

        config = config or SparseConfig()
        threads = n_threads(threads)
        gold = labels.encode(train)[:, : len(labels)]
        config = with_decided_pieces(config, train, gold, seed=seed)
        with ThreadPoolExecutor(1) as pool:  # torch and a GPU take seconds to start
            found_device = pool.submit(lambda: warm_up(torch_device(device)))
            vectoriser, features = Vectoriser.fit(train, config, threads=threads, progress=progress)
        if not features.nnz:
            fewest = settled(config, train).min_words
            shared = (
                f" that is in {fewest} of them; lower sparse.min_words or" if fewest > 1 else ";"
            )
            raise DataError(
                f"none of the {len(train)} texts has a word{shared} add texts", path=train.source
            )
        held = held_out_texts(gold, seed=seed)
        kept = np.setdiff1d(np.arange(len(train)), held)
        every = move_last(features, held), gold[np.append(kept, held)]
        features, own = (matrix[: len(kept)] for matrix in every)
        held_out = tuple(matrix[len(kept) :] for matrix in every)
        # Computed twice where there are names: meanwhile they would take memory.
        mean_texts = partial(
            label_profiles, features, own, threshold=config.threshold, threads=threads
        )
        names = _name_features(vectoriser, labels, config)
        names = helpful_names(names, mean_texts, *held_out, threads=threads)
        scorer = LinearTrainer(
            features,
            own,
            config,
            names=names,
            held_out=held_out,
            seed=seed,
            threads=threads,
            device=found_device.result(),
            solvers=solvers,
            progress=progress,
        ).fit()
        progress("calibrating")
        counts = np.bincount(own.indices, minlength=own.shape[1])
        grouped = scorer.groups is not None
        votes = TextVotes.of(features, own, vectoriser.n_words) if grouped else None
        found = None
        if names is not None:
            found = found_names(vectoriser, labels, features, counts, threads=threads)
        evidence = LabelEvidence(mean_texts(), counts, votes, found, on_trial=not grouped)
        scorer, margins = calibrate(scorer, *held_out, evidence=evidence, threads=threads)
        del evidence, votes, found  # their memory is free from here on
        remembered = sample_rows(features.shape[0], config.memory, seed=seed)
        sample = LabelledTexts(features[remembered], own[remembered])
        of_names = Scaling(0.0, float(scorer.biases.min()))
        if config.name_weight:
            vectoriser, scorer, of_names = score_by_names(
                scorer, vectoriser, labels, *every, seed=seed, threads=threads
            )
        del features, own, every, held_out, mean_texts
        scorer = scorer.rounded(in_place=True)
        memory = TrainingMemory(margins, of_names, len(train), sample)
        size = vectoriser.n_features
        return cls(vectoriser, scorer, config, spread_memory(memory, np.arange(size), size))

    @property
    def n_labels(self) -> int:
        """Number of labels."""
        return self.scorer.n_labels

    def placed(self, device: str) -> SparseModel:
        """Return the model as it scores labels on a device: `cpu`, `cuda` or `cuda:N`."""
        from glocal.companions.sparse.torch_device import scorer_on

        return replace(self, device_scorer=scorer_on(device, self.scorer))

    def topk(
        self,
        texts: Sequence[str],
        k: int,
        *,
        allowed: NDArray[np.bool_] | None = None,
        prior: NDArray[np.float32] | None = None,
        threads: int = 1,
    ) -> Best:
        """Return the most probable labels of each text.

        Args:
            texts: The texts.
            k: Labels per text.
            allowed: (L,) or (n, L) bool, labels that may be returned; all by default.
            prior: (L,) log-odds of labels for texts without a known word; by default the biases.
            threads: Number of threads, 0 for all cores where the texts are many.

        Returns:
            Labels (n, k) int64, most probable first, ties by index, -1 where fewer are allowed;
            their probabilities (n, k) float32, 0 there.
        """
        (found,) = self.topk_of_sets(texts, [LabelSet(k, allowed)], prior=prior, threads=threads)
        return found

    def topk_of_sets(
        self,
        texts: Sequence[str],
        sets: Sequence[LabelSet],
        *,
        prior: NDArray[np.float32] | None = None,
        threads: int = 1,
    ) -> list[Best]:
        """Return the most probable labels of each text out of several sets; see `topk`.

        The prior is that of the first set. Each text is read and scored once.
        """
        threads = n_threads(threads, texts=len(texts))
        features = self.vectoriser.rows(texts, threads=threads)
        if self.device_scorer is None:
            found = top_of_sets(self.scorer, features, sets, threads=threads)
        else:
            top = self.device_scorer.top
            found = [top(features, some.k, allowed=some.allowed) for some in sets]
        if prior is not None:
            self._use_prior(found[0], sets[0].allowed, features, prior)
        return [(indices, _probability(logits)) for indices, logits in found]

    def _use_prior(
        self,
        found: Best,
        allowed: NDArray[np.bool_] | None,
        features: Any,
        prior: NDArray[np.float32],
    ) -> None:
        """Overwrite the best labels of texts without a known word by those of a prior."""
        indices, logits = found
        for row in self._without_words(features):
            permitted = allowed if allowed is None or allowed.ndim == 1 else allowed[row]
            odds = self._before_reading(prior, features[row : row + 1])
            odds = odds if permitted is None else np.where(permitted, odds, -np.inf)
            best = np.argsort(-odds, kind="stable")[: indices.shape[1]]
            indices[row] = np.where(np.isfinite(odds[best]), best, -1)
            logits[row] = odds[best]

    def _without_words(self, features: Any) -> NDArray[np.int64]:
        """Return the texts without a word that a training text has."""
        rows = np.repeat(np.arange(features.shape[0]), np.diff(features.indptr))
        known = rows[features.indices < self.vectoriser.n_trained]
        return np.flatnonzero(np.bincount(known, minlength=features.shape[0]) == 0)

    def _before_reading(self, prior: NDArray[np.float32], text: Any) -> NDArray[np.float32]:
        """Return log-odds (L,) by the labels' frequencies, and by the names that the text has."""
        names = self.scorer.names
        if names is None:
            return prior
        odds = prior.copy()
        odds[names.labels] += names.scores(text)[0]
        return odds

    def with_labels(self, change: LabelChange) -> SparseModel:
        """Return the model for other labels.

        The scores of those that stay are the same, unless they learn from the examples.

        Raises:
            ModelError: No training texts are at hand to fit labels against.
        """
        from glocal.companions.sparse.changed_model import changed_model

        return changed_model(self, change)

    def explain(self, text: str, label: int) -> list[Contribution]:
        """Return the words that speak for a label or against it.

        Args:
            text: The text.
            label: Index of the label.

        Returns:
            Words and word pairs with a weight, strongest first. Their weights and the label's bias
            add up to its log-odds.
        """
        from glocal.companions.sparse.word_weights import contributions

        return contributions(self.vectoriser, partial(self.scorer.parts, label), text)

    def save(self, folder: str | Path) -> None:
        """Write the model into a folder of its own, atomically."""
        write_model(folder, self.vectoriser, self.scorer, self.config, self.memory)

    @classmethod
    def load(cls, folder: str | Path) -> SparseModel:
        """Read a model written by `save`; its weights stay on disk until they are used.

        Raises:
            ModelError: The folder is not such a model, or is damaged.
        """
        return cls(*read_model(folder))


def _name_features(vectoriser: Vectoriser, labels: LabelSpace, config: SparseConfig) -> Any:
    """Return (F, L) features of the labels' names; None where names do not count."""
    if not config.name_weight:
        return None
    from glocal.vocabulary.label_text import telling_name

    # The name of a label without one is its id; a number in a text hardly means that label.
    return vectoriser.transform([telling_name(name) for name in labels.names]).T.tocsc()


def _probability(logits: NDArray[np.float32]) -> NDArray[np.float32]:
    # Clipped where float32 would round to one; −inf, the mark of an empty place, becomes 0.
    return sigmoid(np.minimum(logits, _LARGEST_LOGIT))
