"""A trained model, ready to tag, evaluate and explain."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch

from glocal.companions.companion_list import Companions
from glocal.config import Recipe
from glocal.data.batches import Collator
from glocal.data.corpus import Corpus, surrogate_in
from glocal.data.duplicates import near_duplicate_mask
from glocal.data.tokens import TokenStore, tokenise
from glocal.errors import ConfigError, DataError, Remedy
from glocal.predict.evaluation import EvaluationReport, evaluate_predictions
from glocal.predict.explain import TagExplanation, attention_spans, weighed_spans
from glocal.predict.topk_documents import score_documents
from glocal.progress import Progress
from glocal.ranking.calibration import calibrate
from glocal.ranking.predictions import Predictions
from glocal.storage.model_directory import StoredModel, load_model
from glocal.vocabulary.bands import Bands
from glocal.vocabulary.label_space import LabelSpace

if TYPE_CHECKING:
    from glocal.companions.teacher.teacher_explanation import TeacherExplanation

__all__ = ["Predictor", "collate_corpus"]

logger = logging.getLogger(__name__)

_EVALUATED = 100  # labels per document looked at by `evaluate`


class Predictor:
    """Wraps a stored model on a device.

    Args:
        model: What `load_model` gave.
        device: `auto`, `cpu` or `cuda`.
        batch_size: Documents at a time.
        precision: `fp32`, or `bf16` for speed on a GPU.
    """

    def __init__(
        self,
        model: StoredModel,
        *,
        device: str = "auto",
        batch_size: int = 64,
        precision: str = "fp32",
    ) -> None:
        self.device = _choose_device(device)
        self.system = model.system.to(self.device).eval()
        self.recipe: Recipe = model.recipe
        self.labels: LabelSpace = model.labels
        self.tokenizer = model.tokenizer
        self.calibration = model.calibration
        self.metrics = model.metrics
        self.companions = model.companions or Companions()
        self.batch_size = batch_size
        self.precision = precision

    @classmethod
    def load(
        cls,
        path: str | Path,
        *,
        device: str = "auto",
        batch_size: int = 64,
        precision: str = "fp32",
    ) -> Predictor:
        """Read a model directory."""
        return cls(load_model(path), device=device, batch_size=batch_size, precision=precision)

    @property
    def expert_names(self) -> list[str]:
        """The parts whose predictions can be reported apart."""
        return self.system.expert_names

    def check_k(self, k: int) -> None:
        """Refuse a k that cannot be met.

        Raises:
            ConfigError: When k is below 1 or above the number of labels.
        """
        if not 1 <= k <= len(self.labels):
            raise ConfigError(
                f"k must be between 1 and the model's {len(self.labels)} labels, not {k}"
            )

    def predict(
        self,
        texts: Sequence[str],
        *,
        k: int = 5,
        candidates: np.ndarray | None = None,
        per_expert: bool = False,
        only: Sequence[str] | None = None,
        exclude: Sequence[str] | None = None,
        calibrated: bool = True,
        progress: Progress | None = None,
    ) -> Predictions:
        """Return the best labels of each text.

        Args:
            texts: The texts to tag.
            k: Labels per text; cut at the number of labels, with a warning.
            candidates: (texts, m) label indices to score, −1 for none; all of them come back.
            per_expert: Also return each expert's own best labels, in `experts`.
            only: Label ids that may be predicted.
            exclude: Label ids that may not be predicted.
            calibrated: Apply the calibration fitted on dev to the model's probabilities.
            progress: Called with (done, total).

        Raises:
            DataError: When a text is not valid Unicode.
        """
        _check_unicode(texts)
        length = self.recipe.encoder.tokens_read
        tokens = TokenStore.in_memory(self.tokenizer.encode_batch(list(texts), length))
        allowed = self._allowed(only, exclude)
        features = self.companions.features_for_texts(texts, allowed=allowed)
        return self._rank(
            _collator(self, tokens, features),
            k=k,
            candidates=candidates,
            experts=self.expert_names if per_expert else (),
            allowed=allowed,
            calibrated=calibrated,
            progress=progress,
        )

    def predict_corpus(
        self,
        corpus: Corpus,
        *,
        k: int = 5,
        candidates: np.ndarray | None = None,
        per_expert: bool = False,
        only: Sequence[str] | None = None,
        exclude: Sequence[str] | None = None,
        calibrated: bool = True,
        progress: Progress | None = None,
    ) -> Predictions:
        """Like `predict`, with the tokens cached on disk."""
        allowed = self._allowed(only, exclude)
        return self._rank(
            collate_corpus(self, corpus, allowed=allowed),
            k=k,
            candidates=candidates,
            experts=self.expert_names if per_expert else (),
            allowed=allowed,
            calibrated=calibrated,
            progress=progress,
        )

    def _rank(
        self,
        documents: Collator,
        *,
        k: int,
        candidates: np.ndarray | None = None,
        experts: Sequence[str] = (),
        mean: bool = False,
        allowed: np.ndarray | None = None,
        calibrated: bool = True,
        progress: Progress | None = None,
    ) -> Predictions:
        if k < 1:
            raise ConfigError(f"k must be at least 1, not {k}")
        if k > len(self.labels):
            logger.warning("k is %d, but the model has only %d labels", k, len(self.labels))
        found = score_documents(
            self.system,
            documents,
            k=k if candidates is None else candidates.shape[1],
            batch_size=self.batch_size,
            candidates=candidates,
            allowed=allowed,
            experts=experts,
            mean=mean,
            autocast=self._autocast,
            progress=progress,
        ).with_labels(self.labels)
        return calibrate(found, self.calibration) if calibrated else found

    def _allowed(
        self, only: Sequence[str] | None, exclude: Sequence[str] | None
    ) -> np.ndarray | None:
        if only is None and exclude is None:
            return None
        allowed = np.full(len(self.labels), only is None)
        allowed[self._label_positions(only or (), "only")] = True
        allowed[self._label_positions(exclude or (), "exclude")] = False
        if not allowed.any():
            raise ConfigError(
                "no label is left to predict: none was chosen that is not also excluded",
                remedies=[Remedy("only", "choose others", value="…")],
            )
        return allowed

    def _label_positions(self, ids: Sequence[str], argument: str) -> list[int]:
        unknown = [i for i in ids if i not in self.labels.index]
        if unknown:
            shown = ", ".join(unknown[:5]) + (", …" if len(unknown) > 5 else "")
            raise ConfigError(
                f"the model does not know {len(unknown)} of the labels given: {shown}",
                remedies=[Remedy(argument, "give labels it knows", value="…")],
            )
        return [self.labels.index[i] for i in ids]

    def _autocast(self) -> contextlib.AbstractContextManager[None]:
        if self.precision == "fp32":
            return contextlib.nullcontext()
        context: contextlib.AbstractContextManager[None] = torch.autocast(
            self.device.type, dtype=torch.bfloat16
        )
        return context

    def evaluate(
        self,
        corpus: Corpus,
        *,
        ks: Sequence[int] = (1, 3, 5),
        train: Corpus | None = None,
        bands: Bands | None = None,
        threshold: float = 0.5,
        plain_mean: bool = False,
        progress: Progress | None = None,
    ) -> EvaluationReport:
        """Compute all metrics on a labelled corpus, for the model and each expert.

        Args:
            corpus: Texts with gold labels.
            ks: The cut-offs.
            train: The training texts; with them, scores without near-duplicates are given too.
            bands: Label frequency bands.
            threshold: Lowest score that counts for micro-F1.
            plain_mean: Also evaluate the mean of the experts' probabilities, as `report.mean`; a
                single expert without a learnt weight has none.
            progress: Called with (done, total).
        """
        found = self.predict_for_report(corpus, ks=ks, plain_mean=plain_mean, progress=progress)
        return self.report(found, corpus, ks=ks, train=train, bands=bands, threshold=threshold)

    def predict_for_report(
        self,
        corpus: Corpus,
        *,
        ks: Sequence[int] = (1, 3, 5),
        plain_mean: bool = False,
        progress: Progress | None = None,
    ) -> Predictions:
        """Return as many labels per text as `report` looks at, of the model and each expert."""
        experts = self.expert_names if len(self.expert_names) > 1 else []
        return self._rank(
            collate_corpus(self, corpus),
            k=min(max(_EVALUATED, *ks), len(self.labels)),
            experts=experts,
            mean=plain_mean and bool(experts or self.system.combination.weights),
            progress=progress,
        )

    def report(
        self,
        found: Predictions,
        corpus: Corpus,
        *,
        ks: Sequence[int] = (1, 3, 5),
        train: Corpus | None = None,
        bands: Bands | None = None,
        threshold: float = 0.5,
    ) -> EvaluationReport:
        """Compare predictions with the gold labels of the corpus they were made for."""
        return evaluate_predictions(
            found,
            self.labels.encode(corpus),
            counts=self.labels.counts,
            n_train=self.labels.n_documents,
            bands=bands or Bands(),
            ks=tuple(ks),
            threshold=threshold,
            duplicates=None if train is None else near_duplicate_mask(corpus, train),
        )

    def explain(self, text: str, *, k: int = 5, words: int = 8) -> list[TagExplanation]:
        """The best labels of a text with the words behind each and what each expert gave it.

        Args:
            text: What to tag.
            k: Labels.
            words: Words per label at most.
        """
        self.check_k(k)
        best = self.predict([text], k=k)
        labels = best.indices[0]
        parts = self.predict([text], k=k, candidates=labels[None], per_expert=True)
        ids, offsets, word_ids = self.tokenizer.encode_with_offsets(
            text, self.recipe.encoder.tokens_read
        )
        features, chunking = self.companions.features_for_texts([text]), self.system.chunking
        documents = _collator(self, TokenStore.in_memory([ids]), features)
        batch = documents(np.zeros(1, np.int64)).to(self.device)
        order = range(len(ids)) if chunking is None else chunking.order(len(ids)).tolist()
        spans = attention_spans(
            self.system,
            batch,
            labels,
            text=text,
            offsets=[offsets[place] for place in order],
            word_ids=[word_ids[place] for place in order],
            words=words,
        )
        return [
            TagExplanation(
                self.labels.ids[label],
                self.labels.names[label],
                float(best.scores[0, place]),
                {name: _score_of(part, label) for name, part in parts.experts.items()},
                spans[place],
                weighed_spans(self.companions.word_contributions(text, label), text, words),
            )
            for place, label in enumerate(labels.tolist())
        ]

    def explain_teacher(self, text: str) -> TeacherExplanation | None:
        """The similar training texts and the labels they vote for; None without a teacher."""
        _check_unicode([text])
        return self.companions.similar_texts(text)


def collate_corpus(
    predictor: Predictor, corpus: Corpus, *, allowed: np.ndarray | None = None
) -> Collator:
    """Return what makes batches of a corpus; its tokens are cached on disk.

    Args:
        predictor: The model.
        corpus: The texts.
        allowed: (L,) bool, the only labels that will be asked for; by default all.
    """
    length = predictor.recipe.encoder.tokens_read
    tokens = tokenise(corpus, predictor.tokenizer, max_length=length)
    return _collator(predictor, tokens, predictor.companions.features(corpus, allowed=allowed))


def _collator(
    predictor: Predictor, tokens: TokenStore, features: Mapping[str, np.ndarray]
) -> Collator:
    return Collator(
        tokens,
        predictor.tokenizer.facts,
        n_labels=len(predictor.labels),
        companion_features=features,
        chunking=predictor.system.chunking,
    )


def _check_unicode(texts: Sequence[str]) -> None:
    for number, text in enumerate(texts, 1):
        if problem := surrogate_in(text):
            raise DataError(f"text {number}: {problem}")


def _score_of(predictions: Predictions, label: int) -> float:
    place = int(np.flatnonzero(predictions.indices[0] == label)[0])
    return float(predictions.scores[0, place])


def _choose_device(device: str) -> torch.device:
    if device == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        chosen = torch.device(device)
    except RuntimeError as error:
        raise ConfigError(
            f"the device must be auto, cpu, cuda or cuda:N, not '{device}'"
        ) from error
    if chosen.type == "cuda" and not torch.cuda.is_available():
        raise ConfigError("the device cuda was asked for, but PyTorch sees no GPU")
    return chosen
