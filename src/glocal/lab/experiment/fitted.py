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
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from glocal.data.atomic import write_json
from glocal.data.cache_contents import folder_size
from glocal.lab.baselines.baseline_registry import build_baseline
from glocal.lab.experiment.jobs import Job
from glocal.lab.experiment.methods import BASELINE
from glocal.ranking.predictions import Predictions
from glocal.train.listener import TrainListener
from glocal.vocabulary.label_space import LabelSpace

if TYPE_CHECKING:
    from glocal.data.corpus import Corpus
    from glocal.predict.predictor import Predictor

_EVALUATED = 20  # labels per text of a baseline that are predicted, saved and evaluated
_NOTE_SECONDS = 10.0


@dataclass(frozen=True)
class Fitted:
    """A trained method.

    Attributes:
        labels: Its label space.
        predict: Returns the best labels of texts, given the texts and a number of labels.
        predict_all: Returns as many labels of a corpus as are evaluated, of each expert too.
        cost: Seconds of training and size of the model.
        predictor: The loaded model of a recipe.
        peak_elsewhere: Returns the most memory of another process that the method works in.
    """

    labels: LabelSpace
    predict: Callable[[Sequence[str], int], Predictions]
    predict_all: Callable[[Corpus], Predictions]
    cost: dict[str, float | None]
    predictor: Predictor | None = None
    peak_elsewhere: Callable[[], int] = int


def train_method(job: Job, listener: TrainListener) -> Fitted:
    """Train a job's method."""
    return (_fit_baseline if job.method.kind == BASELINE else _fit_recipe)(job, listener)


def _fit_baseline(job: Job, listener: TrainListener) -> Fitted:
    method, train = job.method, job.splits.train
    shutil.rmtree(job.model, ignore_errors=True)
    with _timed(job, {}) as spent:
        labels = LabelSpace.build(train)
        positives = labels.encode(train)[:, : len(labels)]
        threads = job.conditions.threads or 1
        baseline = build_baseline(method.source, method.settings, threads=threads, seed=method.seed)
        baseline.fit(train, positives, job.model, listener.on_message)
    cost = {**_cost(job, spent), "feature_seconds": baseline.feature_seconds}
    cost["cpu_seconds"] = spent["cpu"] + baseline.elsewhere.cpu_seconds
    shutil.rmtree(job.model)  # only its size counts; the fitted baseline is in memory

    def predict_all(corpus: Corpus) -> Predictions:
        blocks = corpus.iter_texts()
        return Predictions.concat([baseline.predict(texts, _EVALUATED) for texts in blocks])

    return Fitted(
        labels,
        baseline.predict,
        predict_all,
        cost,
        peak_elsewhere=lambda: baseline.elsewhere.peak_bytes,
    )


def _fit_recipe(job: Job, listener: TrainListener) -> Fitted:
    from glocal.config import recipe_from_mapping
    from glocal.predict.predictor import Predictor
    from glocal.train.checkpoint import RunFolder
    from glocal.train.run import fit

    spent = _earlier(job)
    if not (spent and (job.model / "glocal.toml").is_file()):
        resume = bool(spent) and RunFolder(job.model).unfinished
        with _timed(job, spent if resume else {}) as spent:
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
    batch_size = job.conditions.batch_size
    predictor = Predictor.load(job.model, device=job.conditions.device, batch_size=batch_size)
    return Fitted(
        predictor.labels,
        lambda texts, k: predictor.predict(texts, k=k),
        lambda corpus: predictor.predict_for_report(corpus, plain_mean=True),
        _cost(job, spent),
        predictor,
    )


def _cost(job: Job, spent: dict[str, Any]) -> dict[str, float | None]:
    seconds = {"train_seconds": spent["wall"], "cpu_seconds": spent["cpu"]}
    return {**seconds, "model_bytes": folder_size(job.model)}


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
