"""A trained model, ready to tag, evaluate and explain."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from glocal.companions.companion_list import Companions
from glocal.config import Recipe
from glocal.data.corpus import Corpus
from glocal.errors import ConfigError
from glocal.predict.collate import collate
from glocal.predict.predict_options import allowed_labels, check_unicode, label_positions
from glocal.predict.topk_documents import score_documents
from glocal.progress import Progress
from glocal.ranking.calibration import calibrate
from glocal.ranking.graph_ranker import GraphRanker
from glocal.ranking.predictions import Predictions
from glocal.storage.model_directory import StoredModel, load_model
from glocal.vocabulary.label_space import LabelSpace

if TYPE_CHECKING:
    from glocal.companions.teacher.teacher_explanation import TeacherExplanation
    from glocal.predict.evaluation import EvaluationReport
    from glocal.predict.explain import TagExplanation
    from glocal.predict.text_reading import TextReading
    from glocal.vocabulary.bands import Bands

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
        self.system = model.system
        self.system.use_device(device)
        self.recipe: Recipe = model.recipe
        self.labels: LabelSpace = model.labels
        self.tokenizer = model.tokenizer
        self.calibration, self.decision = model.calibration, model.decision
        self.metrics = model.metrics
        companions = model.companions or Companions()
        self.companions = companions.placed(self.system.device_name)
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
        texts: Sequence[str] | Corpus,
        *,
        k: int = 5,
        candidates: np.ndarray | None = None,
        per_expert: bool = False,
        plain_mean: bool = False,
        only: Sequence[str] | None = None,
        exclude: Sequence[str] | None = None,
        calibrated: bool = True,
        batch_size: int | None = None,
        progress: Progress | None = None,
    ) -> Predictions:
        """Return the best labels of each text; may be called from several threads.

        Args:
            texts: The texts to tag; the tokens of a corpus are cached on disk.
            k: Labels per text; cut at the number of labels, with a warning.
            candidates: (texts, m) label indices to score, −1 for none; all of them come back.
            per_expert: Also return each expert's own best labels, in `experts`.
            plain_mean: Also return the best labels by the mean of the experts' probabilities, in
                `mean`.
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
        if k < 1:
            raise ConfigError(f"k must be at least 1, not {k}")
        if k > len(self.labels):
            logger.warning("k is %d, but the model has only %d labels", k, len(self.labels))
        allowed = allowed_labels(self.labels, only, exclude)
        found = score_documents(
            self.system,
            collate(self, texts, allowed=allowed),
            k=k if candidates is None else candidates.shape[1],
            batch_size=batch_size or self.batch_size,
            candidates=candidates,
            allowed=allowed,
            experts=self.expert_names if per_expert else (),
            mean=plain_mean,
            autocast=lambda: self.system.autocast(self.precision),
            progress=progress,
        ).with_labels(self.labels)
        return calibrate(found, self.calibration) if calibrated else found

    def predict_corpus(self, corpus: Corpus, **options: Any) -> Predictions:
        """Return the best labels of each text of a corpus; the options are those of `predict`.

        Example:
            >>> from glocal import Corpus
            >>> predictor.predict_corpus(Corpus.from_texts(["an apple"]), k=1).label_ids(0)
            ['fruit']
        """
        return self.predict(corpus, **options)

    def evaluate(
        self,
        corpus: Corpus,
        *,
        ks: Sequence[int] = (1, 3, 5),
        train: Corpus | None = None,
        bands: Bands | None = None,
        threshold: float | None = None,
        plain_mean: bool = False,
        progress: Progress | None = None,
    ) -> EvaluationReport:
        """Compute all metrics on a labelled corpus, for the model and each expert.

        Args:
            corpus: Texts with gold labels.
            ks: The cut-offs.
            train: The training texts; with them, scores without near-duplicates are given too.
            bands: Label frequency bands.
            threshold: Lowest probability of the tags that micro-F1 counts; by default the model's
                own decision chooses them.
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
        several = len(self.expert_names) > 1
        return self.predict(
            corpus,
            k=min(max(_EVALUATED, *ks), len(self.labels)),
            per_expert=several,
            plain_mean=plain_mean and (several or bool(self.system.combination.weights)),
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
        threshold: float | None = None,
    ) -> EvaluationReport:
        """Compare predictions with the gold labels of the corpus they were made for.

        Example:
            >>> from glocal import Corpus
            >>> corpus = Corpus.from_texts(texts, labels)
            >>> found = predictor.predict_for_report(corpus)
            >>> predictor.report(found, corpus, ks=(1,)).scores["P@1"]
            1.0
        """
        # Not before it is needed: `glocal predict` starts without it.
        from glocal.data.duplicates import near_duplicate_mask
        from glocal.predict.evaluation import evaluate_predictions
        from glocal.predict.label_sums import label_sums
        from glocal.vocabulary.bands import Bands

        report = evaluate_predictions(
            found,
            self.labels.encode(corpus),
            counts=self.labels.counts,
            n_train=self.labels.n_documents,
            bands=bands or Bands(),
            ks=tuple(ks),
            decision=self.decision if threshold is None else threshold,
            duplicates=None if train is None else near_duplicate_mask(corpus, train),
        )
        return replace(report, label_sums=label_sums(self, corpus))

    def explain(
        self,
        text: str,
        *,
        k: int = 5,
        words: int = 8,
        labels: Sequence[str] | None = None,
    ) -> list[TagExplanation]:
        """Return the best labels of a text, each expert's contribution and the words behind each.

        Args:
            text: The text to tag; it is encoded once, a short one also without each of its words.
            k: Number of labels.
            words: Words per label and expert at most; neighbouring words become one phrase.
            labels: Ids of the labels to explain, in place of the k best.

        Raises:
            ConfigError: When k labels cannot be predicted, or the model does not know a label.

        Example:
            >>> best = predictor.explain("an apple", k=1)[0]
            >>> best.id, best.spans_of()[0].text
            ('fruit', 'apple')
        """
        from glocal.predict.explain import TagExplanation, expert_parts, prior_log_odds, tag_spans

        self.check_k(k)
        check_unicode([text])
        wanted = None if labels is None else label_positions(self.labels, labels, "labels")
        if wanted == []:
            return []
        reading = self._read(text)
        chosen, scores = reading.scored_labels(k, wanted)
        if not chosen:  # weights that are not finite score no label
            return []
        logits = reading.logits(chosen)
        found = []
        for place, label in enumerate(chosen):
            own = {name: values[0, place] for name, values in logits.items()}
            parts = expert_parts(
                {name: reading.value(logit) for name, logit in own.items()},
                self.system.combination,
                prior_log_odds(self.labels, label),
            )
            evidence = {n: reading.evidence(n, value, label) for n, value in own.items()}
            spans = tag_spans(reading.places, evidence, parts, words)
            name = self.labels.names[label]
            found.append(TagExplanation(self.labels.ids[label], name, scores[place], parts, spans))
        return found

    def _read(self, text: str) -> TextReading:
        if self.recipe.reads_words_alone:
            from glocal.predict.text_reading import TextReading

            return TextReading(self, text)
        if isinstance(self.system, GraphRanker):
            from glocal.predict.graph_reading import GraphReading

            return GraphReading(self, text)
        from glocal.predict.word_evidence import TracedReading

        return TracedReading(self, text, autocast=lambda: self.system.autocast(self.precision))

    def explain_teacher(self, text: str) -> TeacherExplanation | None:
        """Return the similar training texts and the labels they vote for; None without a teacher.

        Example:
            >>> predictor.explain_teacher("an apple") is None  # this model has no teacher
            True
        """
        check_unicode([text])
        return self.companions.similar_texts(text)
