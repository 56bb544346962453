"""A trained model, ready to tag, evaluate and explain."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch

from glocal.companions.companion_list import Companions
from glocal.config import Recipe
from glocal.data.batches import Collator
from glocal.data.corpus import Corpus
from glocal.data.duplicates import near_duplicate_mask
from glocal.data.tokens import TokenStore
from glocal.errors import ConfigError
from glocal.predict.collate import collate_corpus, collator
from glocal.predict.evaluation import EvaluationReport, evaluate_predictions
from glocal.predict.explain import TagExplanation, attention_spans, attention_weights, weighed_spans
from glocal.predict.predict_options import allowed_labels, check_unicode, choose_device
from glocal.predict.topk_documents import score_documents
from glocal.progress import Progress
from glocal.ranking.calibration import calibrate
from glocal.ranking.predictions import Predictions
from glocal.ranking.topk import TopK
from glocal.storage.model_directory import StoredModel, load_model
from glocal.vocabulary.bands import Bands
from glocal.vocabulary.label_space import LabelSpace

if TYPE_CHECKING:
    from glocal.companions.teacher.teacher_explanation import TeacherExplanation

logger = logging.getLogger(__name__)

_EVALUATED = 100  # labels per document looked at by `evaluate`


class Predictor:
    """A trained model on a device, made by `Predictor.load`.

    Attributes:
        labels: The label space.
        recipe: The settings the model was trained with.
        metrics: What training measured.
        decision: Decides which labels become tags by default.

    Example:
        >>> from glocal import Predictor
        >>> predictor = Predictor.load("model/")
        >>> predictor.predict(["an apple"], k=1)[0]
        [Tag(id='fruit', name='fruit', score=...)]
    """

    def __init__(
        self,
        model: StoredModel,
        *,
        device: str = "auto",
        batch_size: int = 64,
        precision: str = "fp32",
    ) -> None:
        self.device = choose_device(device)
        self.system = model.system.to(self.device).eval()
        self.recipe: Recipe = model.recipe
        self.labels: LabelSpace = model.labels
        self.tokenizer = model.tokenizer
        self.calibration, self.decision = model.calibration, model.decision
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
        """Read a model directory.

        Args:
            path: The directory.
            device: The device to compute on: `auto`, `cpu`, `cuda` or `cuda:N`.
            batch_size: Texts per batch.
            precision: `fp32`, or `bf16` for speed on a GPU.

        Example:
            >>> from glocal import Predictor
            >>> predictor = Predictor.load("model/")
        """
        return cls(load_model(path), device=device, batch_size=batch_size, precision=precision)

    @property
    def expert_names(self) -> list[str]:
        """Names of the experts."""
        return self.system.expert_names

    def check_k(self, k: int) -> None:
        """Check that k labels can be predicted.

        Raises:
            ConfigError: When k is below 1 or above the number of labels.

        Example:
            >>> predictor.check_k(2)
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
        batch_size: int | None = None,
        progress: Progress | None = None,
    ) -> Predictions:
        """Return the best labels of each text; may be called from several threads.

        Args:
            texts: The texts to tag.
            k: Labels per text; cut at the number of labels, with a warning.
            candidates: (texts, m) label indices to score, −1 for none; all of them come back.
            per_expert: Also return each expert's own best labels, in `experts`.
            only: Label ids that may be predicted.
            exclude: Label ids that may not be predicted.
            calibrated: Apply the calibration fitted on dev to the model's probabilities.
            batch_size: Texts per batch; the predictor's own by default.
            progress: Called with (done, total).

        Raises:
            DataError: When a text is not valid Unicode.

        Example:
            >>> predictions = predictor.predict(["an apple", "a whale"], k=1)
            >>> [tags[0].id for tags in predictions]
            ['fruit', 'animal']
        """
        check_unicode(texts)
        length = self.recipe.encoder.tokens_read
        tokens = TokenStore.in_memory(self.tokenizer.encode_batch(list(texts), length))
        allowed = allowed_labels(self.labels, only, exclude)
        features = self.companions.features_for_texts(texts, allowed=allowed)
        return self._rank(
            collator(self, tokens, features),
            k=k,
            candidates=candidates,
            experts=self.expert_names if per_expert else (),
            allowed=allowed,
            calibrated=calibrated,
            batch_size=batch_size,
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
        batch_size: int | None = None,
        progress: Progress | None = None,
    ) -> Predictions:
        """Return the best labels of each text of a corpus; its tokens are cached on disk.

        The arguments are those of `predict`.

        Example:
            >>> from glocal import Corpus
            >>> predictor.predict_corpus(Corpus.from_texts(["an apple"]), k=1).label_ids(0)
            ['fruit']
        """
        allowed = allowed_labels(self.labels, only, exclude)
        return self._rank(
            collate_corpus(self, corpus, allowed=allowed),
            k=k,
            candidates=candidates,
            experts=self.expert_names if per_expert else (),
            allowed=allowed,
            calibrated=calibrated,
            batch_size=batch_size,
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
        batch_size: int | None = None,
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
            batch_size=batch_size or self.batch_size,
            candidates=candidates,
            allowed=allowed,
            experts=experts,
            mean=mean,
            autocast=self._autocast,
            progress=progress,
        ).with_labels(self.labels)
        return calibrate(found, self.calibration) if calibrated else found

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

        Example:
            >>> from glocal import Corpus
            >>> report = predictor.evaluate(Corpus.from_texts(texts, labels), ks=(1,))
            >>> report.scores["P@1"]
            1.0
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
        """Return as many labels per text as `report` looks at, of the model and each expert.

        Example:
            >>> from glocal import Corpus
            >>> predictor.predict_for_report(Corpus.from_texts(["an apple"])).label_ids(0)
            ['fruit', 'animal']
        """
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
        """Compare predictions with the gold labels of the corpus they were made for.

        Example:
            >>> from glocal import Corpus
            >>> corpus = Corpus.from_texts(texts, labels)
            >>> found = predictor.predict_for_report(corpus)
            >>> predictor.report(found, corpus, ks=(1,)).scores["P@1"]
            1.0
        """
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
        """Return the best labels of a text, the words behind each and each expert's score.

        Args:
            text: The text to tag; it is encoded once.
            k: Number of labels.
            words: Words per label at most.

        Example:
            >>> best = predictor.explain("an apple", k=1)[0]
            >>> best.label_id, best.weighed[0].text
            ('fruit', 'apple')
        """
        self.check_k(k)
        check_unicode([text])
        read = self.tokenizer.encode_with_offsets(text, self.recipe.encoder.tokens_read)
        features = self.companions.features_for_texts([text])
        documents = collator(self, TokenStore.in_memory([read[0]]), features)
        batch = documents(np.zeros(1, np.int64)).to(self.device)
        with torch.inference_mode(), self._autocast():
            states = self.system.prepare(batch)
            best = self.system.rank(batch, states, k).combined
            best = TopK(*(part[:, best.indices[0] >= 0] for part in best))
            alone = self.system.rank(
                batch, states, k, candidates=best.indices, experts=self.expert_names
            ).experts
            attention = attention_weights(self.system, states, best.indices)
        order = None if self.system.chunking is None else self.system.chunking.order(len(read[0]))
        spans = attention_spans(attention, text, read[1:], order=order, words=words)
        scores = self.calibration(best.scores.cpu().numpy())[0].tolist()
        experts = {
            name: dict(zip(*(part[0].tolist() for part in a), strict=True))
            for name, a in alone.items()
        }
        return [
            TagExplanation(
                self.labels.ids[label],
                self.labels.names[label],
                scores[place],
                {name: by_label[label] for name, by_label in experts.items()},
                spans[place] if spans else [],
                weighed_spans(self.companions.word_contributions(text, label), text, words),
            )
            for place, label in enumerate(best.indices[0].tolist())
        ]

    def explain_teacher(self, text: str) -> TeacherExplanation | None:
        """Return the similar training texts and the labels they vote for; None without a teacher.

        Example:
            >>> predictor.explain_teacher("an apple") is None  # this model has no teacher
            True
        """
        check_unicode([text])
        return self.companions.similar_texts(text)
