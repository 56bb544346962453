"""Trained methods: a recipe's model directory or a fitted baseline, behind one interface.

FOLDER/spent.json keeps the seconds spent on training and what was trained, so that a run that was
stopped resumes, and its seconds are those of all its runs.
"""

from __future__ import annotations

import contextlib
import json
import shutil
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from glocal.lab.baselines.baseline_registry import build_baseline
from glocal.lab.experiment.jobs import Job
from glocal.lab.experiment.methods import BASELINE
from glocal.lab.output import write_json
from glocal.ranking.predictions import Predictions
from glocal.train.listener import TrainListener
from glocal.vocabulary.label_space import LabelSpace

if TYPE_CHECKING:
    from glocal.data.corpus import Corpus
    from glocal.lab.baselines.baseline import Baseline
    from glocal.predict.predictor import Predictor

__all__ = ["Fitted", "train_method"]

_EVALUATED = 20  # labels per text of a baseline that are predicted, saved and evaluated
_NOTE_SECONDS = 10.0


class Fitted(Protocol):
    """A trained method.

    Attributes:
        labels: Its label space.
        feature_seconds: Part of the training time that was spent on TF-IDF.
    """

    labels: LabelSpace
    feature_seconds: float | None

    def predict(self, texts: Sequence[str], k: int) -> Predictions:
        """Return the k best labels of each text."""

    def predict_all(self, corpus: Corpus) -> Predictions:
        """Return as many labels as are evaluated, by the model and each of its experts."""


class FittedBaseline:
    """A baseline and the label space it was fitted over."""

    def __init__(self, baseline: Baseline, labels: LabelSpace) -> None:
        self.baseline, self.labels = baseline, labels
        self.feature_seconds = baseline.feature_seconds

    def predict(self, texts: Sequence[str], k: int) -> Predictions:
        """Return the k best labels of each text."""
        return self.baseline.predict(texts, k)

    def predict_all(self, corpus: Corpus) -> Predictions:
        """Predict block by block."""
        blocks = [self.predict(texts, _EVALUATED) for texts in corpus.iter_texts()]
        return Predictions.concat(blocks)


class FittedRecipe:
    """A loaded model directory."""

    feature_seconds: float | None = None

    def __init__(self, predictor: Predictor) -> None:
        self.predictor, self.labels = predictor, predictor.labels

    def predict(self, texts: Sequence[str], k: int) -> Predictions:
        """Return the k best labels of each text."""
        return self.predictor.predict(texts, k=k)

    def predict_all(self, corpus: Corpus) -> Predictions:
        """Predict with the model, each expert, and the mean of the experts."""
        return self.predictor.predict_for_report(corpus, plain_mean=True)


def train_method(job: Job, listener: TrainListener) -> tuple[Fitted, dict[str, Any]]:
    """Train a job's method; return it and its training cost."""
    train = _train_baseline if job.method.kind == BASELINE else _train_recipe
    fitted, spent, model_bytes = train(job, listener)
    cost = {
        "train_seconds": spent["wall"],
        "cpu_seconds": spent["cpu"],
        "feature_seconds": fitted.feature_seconds,
        "model_bytes": model_bytes,
    }
    return fitted, cost


def _train_baseline(job: Job, listener: TrainListener) -> tuple[Fitted, dict[str, float], int]:
    method, train = job.method, job.splits.train
    shutil.rmtree(job.model, ignore_errors=True)
    with _timed(job, {}) as spent:
        labels = LabelSpace.build(train)
        positives = labels.encode(train)[:, : len(labels)]
        baseline = build_baseline(
            method.source, method.settings, threads=job.conditions.threads or 1, seed=method.seed
        )
        baseline.fit(train, positives, job.model, listener.on_message)
    size = _folder_bytes(job.model)
    shutil.rmtree(job.model)  # only its size is asked for; the fitted baseline is in memory
    return FittedBaseline(baseline, labels), spent, size


def _train_recipe(job: Job, listener: TrainListener) -> tuple[Fitted, dict[str, float], int]:
    from glocal.config import recipe_from_mapping
    from glocal.predict.predictor import Predictor
    from glocal.train.checkpoint import RunFolder
    from glocal.train.run import fit

    earlier, run = _earlier(job), RunFolder(job.model)
    trained = bool(earlier) and (job.model / "glocal.toml").is_file()
    if not trained:
        resume = bool(earlier) and run.unfinished
        with _timed(job, earlier if resume else {}) as spent:
            fit(
                recipe_from_mapping(job.method.settings),
                job.splits.train,
                out=job.model,
                dev=job.splits.dev,
                label_table=job.splits.label_table,
                resume=resume,
                overwrite=not resume,
                device=job.conditions.device,
                listener=listener,
            )
        earlier = spent
    conditions = job.conditions
    predictor = Predictor.load(
        job.model, device=conditions.device, batch_size=conditions.batch_size
    )
    return FittedRecipe(predictor), earlier, _folder_bytes(job.model)


def _earlier(job: Job) -> dict[str, Any]:
    """Return the seconds that earlier runs of the same training took; empty without any."""
    path = job.folder / "spent.json"
    spent: dict[str, Any] = json.loads(path.read_text("utf-8")) if path.is_file() else {}
    return spent if spent.get("trained_on") == job.blank.trained_on else {}


@contextlib.contextmanager
def _timed(job: Job, earlier: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Add up wall and processor seconds, and write them down now and then and at the end."""
    spent = {"trained_on": job.blank.trained_on, "wall": 0.0, "cpu": 0.0, **earlier}
    before, wall, cpu = dict(spent), time.monotonic(), time.process_time()
    done = threading.Event()

    def note() -> None:
        spent["wall"] = before["wall"] + time.monotonic() - wall
        spent["cpu"] = before["cpu"] + time.process_time() - cpu
        write_json(job.folder / "spent.json", spent)

    def keep_notes() -> None:
        while not done.wait(_NOTE_SECONDS):
            note()

    note()
    thread = threading.Thread(target=keep_notes, daemon=True)
    thread.start()
    try:
        yield spent
    finally:
        done.set()
        thread.join()
        note()


def _folder_bytes(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
