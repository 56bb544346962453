"""Further training of a stored model: corrections and new texts, with replay.

- The model continues from its weights. Training texts take part as well (replay), so that old
  labels do not suffer: those given, or the sample of features that the words model keeps.
- Labels that the model does not know yet are added with the texts as their examples.
- With dev texts the experts' weights, the calibration and the decision are fitted again; without
  them they stay.
- The result replaces the old model, or is written elsewhere, all at once when it is complete. What
  was done is kept in the model's history.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from glocal.companions.companion_list import Companions
from glocal.data.corpus import Corpus
from glocal.errors import Interrupted, ModelError
from glocal.predict.predictor import Predictor
from glocal.ranking.predictions import Tag
from glocal.storage.model_directory import StoredModel, load_model, rewrite_model
from glocal.train.context import throttled_progress
from glocal.train.listener import TrainListener
from glocal.train.run import check_target
from glocal.train.single import stored_evaluator
from glocal.update.label_update import changed_model
from glocal.vocabulary import label_change
from glocal.vocabulary.bands import Bands
from glocal.vocabulary.label_change import LabelChange
from glocal.vocabulary.label_table import LabelTable

_SHOWN = 500  # texts of each set that the report looks at
_K = 5
NEW = "new"  # the band of labels without training texts before


@dataclass(frozen=True)
class BandChange:
    """Recall of the labels of one band, before and after.

    Attributes:
        texts: Which texts: `added`, `dev` or `train`.
        band: The band of the labels by their training texts before; `new` for none.
        n_labels: Number of (text, label) pairs.
        before: Share of them among the five best labels of the old model.
        after: The same of the new model.
    """

    texts: str
    band: str
    n_labels: int
    before: float
    after: float


@dataclass(frozen=True)
class FurtherTraining:
    """A finished further training.

    Attributes:
        path: The model directory that was written.
        n_texts: Number of texts learnt.
        new_labels: Labels that the model did not know.
        seconds: Time it took.
        changes: What changed, by texts and band.
    """

    path: Path
    n_texts: int
    new_labels: tuple[str, ...]
    seconds: float
    changes: tuple[BandChange, ...]

    def to_dict(self) -> dict[str, Any]:
        """Return it as plain values."""
        return {**asdict(self), "path": str(self.path)}


def continue_training(
    path: str | Path,
    texts: Corpus,
    *,
    out: str | Path | None = None,
    train: Corpus | None = None,
    dev: Corpus | None = None,
    label_table: LabelTable | None = None,
    overwrite: bool = False,
    device: str = "auto",
    listener: TrainListener | None = None,
) -> FurtherTraining:
    """Continue the training of a stored model on corrections and new texts.

    Args:
        path: The model directory.
        texts: The texts to learn, with labels.
        out: The model directory to write; by default the model itself is replaced.
        train: Texts the model was trained on, or some of them. A model with an encoder needs them;
            a model of words alone keeps a sample of its own.
        dev: Texts that the experts' weights and the calibration are fitted on again.
        label_table: Names, descriptions and parents of labels that are new.
        overwrite: Replace a model at `out`.
        device: Where an encoder is trained: `auto`, `cpu` or `cuda`.
        listener: Receives progress events.

    Raises:
        DataError: No text has labels.
        Interrupted: It was stopped; the model stays as it is.
        ModelError: The model cannot be trained further, or cannot be written; it stays as it is.

    Example:
        >>> from glocal import Corpus, continue_training
        >>> corrections = Corpus.from_texts(["a ripe apple"], [["fruit"]])
        >>> continue_training("model/", corrections).n_texts
        1
    """
    started = time.monotonic()
    target, listener = Path(path if out is None else out), listener or TrainListener()
    elsewhere = target.resolve() != Path(path).resolve()
    if elsewhere:
        check_target(target, resume=False, overwrite=overwrite)
    model = load_model(path)
    change = label_change.continued(model.labels, texts, table=label_table, train=train)
    new = tuple(change.after.ids[len(model.labels) :])
    listener.on_message(f"{len(texts):,} texts to learn, {len(new):,} new labels")
    report = _Report(model, change, {"added": texts, "dev": dev, "train": change.train}, device)
    try:
        changed = _continued(Path(path), model, change, device=device, listener=listener)
        if dev is not None:
            changed = _fitted(changed, dev, device)
        changes = report.changes(changed)
    except KeyboardInterrupt as error:
        raise Interrupted(
            "stopped; the model is as it was, and nothing of the texts is learnt"
        ) from error
    entry = {
        "change": "train",
        "texts": len(texts),
        "labels": list(new),
        "n_labels": len(change.after),
        "changes": [asdict(found) for found in changes],
    }
    rewrite_model(path, changed, change=entry, out=target if elsewhere else None)
    seconds = time.monotonic() - started
    return FurtherTraining(target, len(texts), new, seconds, tuple(changes))


def _continued(
    folder: Path,
    model: StoredModel,
    change: LabelChange,
    *,
    device: str,
    listener: TrainListener,
) -> StoredModel:
    """Return the model after its companions and its network have learnt the texts."""
    words_alone = model.recipe.reads_words_alone
    if not words_alone and (change.train is None or not len(change.train)):
        raise ModelError(
            "a model with an encoder keeps no training texts, and without them it would forget "
            "what it knows; give the texts it was trained on as well, or some of them"
        )
    progress = throttled_progress(listener)("texts read")
    return changed_model(folder, model, change, device=device, progress=progress)


def _fitted(model: StoredModel, dev: Corpus, device: str) -> StoredModel:
    """Return the model with weights, calibration and decision fitted on dev."""
    features = (model.companions or Companions()).features(dev)
    outcome = stored_evaluator(model, dev, features, device).final()
    metrics = {**model.metrics, **outcome.metrics}
    return replace(
        model, calibration=outcome.calibration, decision=outcome.decision, metrics=metrics
    )


class _Report:
    """Compares two models band by band, on several sets of texts."""

    def __init__(
        self,
        model: StoredModel,
        change: LabelChange,
        sets: dict[str, Corpus | None],
        device: str,
    ) -> None:
        rng, bands = np.random.default_rng(0), Bands()
        self._device = device
        self._sets = {
            name: corpus.take(np.sort(rng.permutation(len(corpus))[:_SHOWN]))
            for name, corpus in sets.items()
            if corpus is not None and len(corpus)
        }
        counts = np.zeros(len(change.after), dtype=np.int64)
        counts[: len(change.before)] = change.before.counts
        self._bands = [NEW, *bands.names]
        self._band_of = dict(zip(change.after.ids, bands.assign(counts) + 1, strict=True))
        self._before = self._recall(model)

    def changes(self, model: StoredModel) -> list[BandChange]:
        """Return how a model differs from the one before."""
        after = self._recall(model)
        return [
            BandChange(name, band, total, before / total, now / total)
            for name in self._sets
            for band, (total, before), (_, now) in zip(
                self._bands, self._before[name], after[name], strict=True
            )
            if total
        ]

    def _recall(self, model: StoredModel) -> dict[str, list[tuple[int, int]]]:
        """Return for each set the labels of each band, and how many are among the best."""
        predictor = Predictor(model, device=self._device)
        texts = [text for corpus in self._sets.values() for text in corpus.texts()]
        best = iter(predictor.predict(texts, k=min(_K, len(predictor.labels))))
        return {name: self._hits(corpus, best) for name, corpus in self._sets.items()}

    def _hits(self, corpus: Corpus, best: Iterator[list[Tag]]) -> list[tuple[int, int]]:
        totals = np.zeros((len(self._bands), 2), dtype=np.int64)
        for labels in corpus.labels():
            found = {tag.id for tag in next(best)}
            for label in set(labels):
                if (band := self._band_of.get(label)) is not None:
                    totals[band] += (1, label in found)
        return [(int(total), int(hits)) for total, hits in totals]
