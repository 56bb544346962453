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
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from glocal.companions.sparse.sparse_files import read_model, write_model
from glocal.companions.sparse.sparse_rows import as_csr, joined_rows
from glocal.companions.sparse.sparse_scoring import LinearScorer, top_labels
from glocal.companions.sparse.threads import n_threads
from glocal.companions.sparse.training_memory import LabelledTexts, Scaling, TrainingMemory
from glocal.companions.sparse.vectoriser import Vectoriser, settled
from glocal.config import SparseConfig
from glocal.data.corpus import Corpus
from glocal.errors import DataError, ModelError, Remedy
from glocal.log_odds import sigmoid
from glocal.progress import StagedProgress

if TYPE_CHECKING:
    from glocal.companions.sparse.cluster_solvers import ClusterSolvers
    from glocal.companions.sparse.device_scorer import DeviceScorer
    from glocal.companions.sparse.word_weights import Contribution
    from glocal.vocabulary.label_change import LabelChange
    from glocal.vocabulary.label_space import LabelSpace

_GIVE_TEXTS = "; give the texts it was trained on as well"
_LARGEST_LOGIT = np.float32(16)
_GIVEN_TEXTS = 4000  # most training texts that new labels are fitted against; some have them


class SparseModel:
    """TF-IDF features and one linear scorer per label.

    Args:
        vectoriser: Turns texts into features.
        scorer: Gives log-odds of labels.
        config: The settings it was trained with.
        memory: What it keeps of its training for labels added later; older models have none.
    """

    def __init__(
        self,
        vectoriser: Vectoriser,
        scorer: LinearScorer,
        config: SparseConfig,
        memory: TrainingMemory | None = None,
    ) -> None:
        self.vectoriser, self.scorer, self.config = vectoriser, scorer, config
        self.memory = memory
        self._device_scorer: DeviceScorer | None = None

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
        progress: StagedProgress | None = None,
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
        from glocal.companions.sparse.label_profiles import label_profiles
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
        held_out = features[held], gold[held]
        if len(held):
            features = features[kept]  # from here on the matrix of all texts is not held twice
        own = gold[kept]
        scorer = LinearTrainer(
            features,
            own,
            config,
            names=_name_features(vectoriser, labels, config),
            held_out=held_out,
            seed=seed,
            threads=threads,
            device=found_device.result(),
            solvers=solvers,
            progress=progress,
        ).fit()
        if progress is not None:
            progress("calibrating")
        evidence = None
        if scorer.groups is not None:
            profiles = label_profiles(features, own, threshold=config.threshold, threads=threads)
            counts = np.bincount(own.indices, minlength=own.shape[1])
            votes = TextVotes.of(features, own, vectoriser.n_words)
            evidence = LabelEvidence(profiles, counts, votes)
        scorer, margins = calibrate(scorer, *held_out, evidence=evidence, threads=threads)
        remembered = sample_rows(features.shape[0], config.memory, seed=seed)
        sample = LabelledTexts(features[remembered], own[remembered])
        names = Scaling(0.0, float(scorer.biases.min()))
        if config.name_weight:
            if (np.diff(gold.tocsc().indptr) == 0).any():
                features, own = joined_rows(features, held_out[0], kept, held), gold
            vectoriser, scorer, names = score_by_names(
                scorer, vectoriser, labels, features, own, seed=seed, threads=threads
            )
        memory = TrainingMemory(margins, names, len(train), sample)
        size = vectoriser.n_features
        return cls(vectoriser, scorer, config, spread_memory(memory, np.arange(size), size))

    @property
    def n_labels(self) -> int:
        """Number of labels."""
        return self.scorer.n_labels

    def placed(self, device: str) -> SparseModel:
        """Return the model as it scores labels on a device: `cpu`, `cuda` or `cuda:N`."""
        from glocal.companions.sparse.torch_device import scorer_on

        model = SparseModel(self.vectoriser, self.scorer, self.config, self.memory)
        model._device_scorer = scorer_on(device, self.scorer)
        return model

    def topk(
        self,
        texts: Sequence[str],
        k: int,
        *,
        allowed: NDArray[np.bool_] | None = None,
        prior: NDArray[np.float32] | None = None,
        threads: int = 1,
    ) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
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
        threads = n_threads(threads, texts=len(texts))
        features = self.vectoriser.rows(texts, threads=threads)
        if self._device_scorer is None:
            indices, logits = top_labels(self.scorer, features, k, allowed=allowed, threads=threads)
        else:
            indices, logits = self._device_scorer.top(features, k, allowed=allowed)
        if prior is not None:
            for row in self._without_words(features):
                permitted = allowed if allowed is None or allowed.ndim == 1 else allowed[row]
                odds = self._before_reading(prior, features[row : row + 1])
                odds = odds if permitted is None else np.where(permitted, odds, -np.inf)
                best = np.argsort(-odds, kind="stable")[: indices.shape[1]]
                indices[row] = np.where(np.isfinite(odds[best]), best, -1)
                logits[row] = odds[best]
        return indices, _probability(logits)

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
        return self._wider(change)._changed(change)

    def _wider(self, change: LabelChange) -> SparseModel:
        """Return the model with the words that a change brings as features; it scores none."""
        if self.memory is None or not (change.n_new or change.continues):
            return self
        from glocal.companions.sparse.new_words import spread_memory, spread_scorer, with_change

        vectoriser, places = with_change(self.vectoriser, change, n_texts=self.memory.n_texts)
        size = vectoriser.n_features
        return SparseModel(
            vectoriser,
            spread_scorer(self.scorer, places, size, n_words=vectoriser.n_words),
            self.config,
            spread_memory(self.memory, places, size),
        )

    def _changed(self, change: LabelChange) -> SparseModel:
        """Return the model for other labels, with the features it has."""
        columns, memory = change.columns, self.memory
        groups = self.scorer.groups
        if groups is not None:
            kept = columns.argmax(axis=0)  # the label with the largest share
            groups = replace(groups, of=groups.of[np.asarray(kept).ravel()])
        votes, names = self.scorer.votes, self.scorer.names
        scorer = LinearScorer(
            (as_csr(self.scorer.weights) @ columns).tocsr(),
            np.asarray(self.scorer.biases @ columns, dtype=np.float32),
            groups,
            votes and votes.with_labels(columns),
            names and names.with_labels(columns),
        )
        if memory is not None:
            memory = memory.as_csr().with_labels(columns, change.n_new)
        if change.n_new or change.continues:
            known = self._known(memory, change)
            examples = LabelledTexts(
                self._features(change.examples), change.known_labels(change.examples)
            )
            if change.continues:
                scorer = self._learn(scorer, change, examples, known)
                kept = memory if memory is not None and memory.has_labels else known
                memory = kept.with_texts(examples, size=self.config.memory)
            if change.n_new:
                scorer = scorer.joined(self._fit_new(change, examples.features, known))
        scorer.weights.sort_indices()
        return SparseModel(self.vectoriser, scorer, self.config, memory)

    def _known(self, memory: TrainingMemory | None, change: LabelChange) -> TrainingMemory:
        """Return what is known of the training: what the model keeps, with texts given instead.

        Raises:
            ModelError: It is too little for the change.
        """
        if memory is None:
            raise ModelError(
                "the model was written by an earlier version and lacks what changes need; train it "
                "again"
            )
        from glocal.companions.sparse.further_texts import REPLAYED
        from glocal.companions.sparse.new_labels import sample_rows

        most = max(REPLAYED, change.n_examples) if change.continues else _GIVEN_TEXTS
        if change.train is not None:
            given = change.train.take(sample_rows(len(change.train), most, seed=0))
            texts = LabelledTexts(self._features(given), change.known_labels(given))
            return replace(memory, sample=texts, has_labels=True)
        if change.n_examples and not len(memory.sample):
            raise ModelError(
                "the model was trained with sparse.memory=0 and keeps no training texts to fit "
                f"labels against{_GIVE_TEXTS if change.continues else ''}",
                remedies=[Remedy("train", "give the training texts", value="…")],
            )
        if change.continues and not memory.has_labels:
            raise ModelError(
                "the model was written by an earlier version and does not keep the labels of its "
                f"training texts{_GIVE_TEXTS}"
            )
        rows = sample_rows(len(memory.sample), most, seed=1)
        return replace(memory, sample=memory.sample.take(rows))

    def _learn(
        self,
        scorer: LinearScorer,
        change: LabelChange,
        examples: LabelledTexts,
        known: TrainingMemory,
    ) -> LinearScorer:
        """Return the scorer of the labels that stay after they have learnt the examples."""
        from glocal.companions.sparse.further_texts import learn_texts

        n_old = scorer.n_labels
        return learn_texts(
            scorer,
            known.margins,
            self.config,
            texts=examples.of_labels(n_old),
            replay=known.sample.of_labels(n_old),
            counts=(change.before.counts, change.after.counts[:n_old]),
            threads=n_threads(0),
        )

    def _features(self, corpus: Corpus | None) -> Any:
        texts = [] if corpus is None else list(corpus.texts())
        return self.vectoriser.transform(texts, threads=n_threads(0))

    def _fit_new(self, change: LabelChange, examples: Any, memory: TrainingMemory) -> LinearScorer:
        from glocal.companions.sparse.new_labels import fit_new_labels
        from glocal.vocabulary.label_text import all_names, telling_name

        new = range(len(change.after) - change.n_new, len(change.after))
        return fit_new_labels(
            self.vectoriser,
            memory,
            self.config,
            names=[telling_name(change.after.names[label]) for label in new],
            all_names=all_names(change.after)[new.start :],
            examples=examples,
            gold=change.example_labels,
        )

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
