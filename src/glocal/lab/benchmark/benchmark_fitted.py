"""The two kinds of contenders, trained: what is asked of each is the same.

- a baseline is fitted over the label space a recipe would have, in a folder of its own;
- a recipe is trained by `glocal.train.fit`; a run that was stopped goes on from its checkpoint, and
  what it had spent before is kept in `spent.json`, so that the row's seconds are those of all runs.
"""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from glocal.data.corpus import Corpus
from glocal.lab.baselines.baseline import Baseline, Say
from glocal.lab.baselines.baseline_registry import build_baseline
from glocal.lab.benchmark.benchmark_rows import BASELINE, Job, save_json
from glocal.ranking.predictions import Predictions
from glocal.train.listener import TrainListener
from glocal.vocabulary.label_space import LabelSpace

if TYPE_CHECKING:
    from glocal.predict.predictor import Predictor

__all__ = ["Fitted", "Spent", "train_contender"]

EVALUATED = 20  # labels per text of a baseline that are predicted, saved and evaluated
TEXTS_AT_A_TIME = 4096
SECONDS_BETWEEN_NOTES = 10.0


class Fitted(Protocol):
    """A trained contender.

    Attributes:
        labels: Its label space.
        model_bytes: Its size on disk.
        feature_seconds: Of the training time, spent on TF-IDF.
    """

    labels: LabelSpace
    model_bytes: int
    feature_seconds: float | None

    def predict(self, texts: Sequence[str], k: int) -> Predictions:
        """The best k labels of each text."""

    def predict_all(self, corpus: Corpus) -> Predictions:
        """Return as many labels as the evaluation looks at, by the model and its experts."""


class Spent:
    """Wall and processor seconds of training, over all the runs it took.

    Args:
        path: Where they are noted, so that a killed run's are not lost.
        resume: Whether what is noted there already counts.
    """

    def __init__(self, path: Path, *, resume: bool) -> None:
        self.path = path
        self.before = {"wall": 0.0, "cpu": 0.0}
        if resume and path.is_file():
            self.before = json.loads(path.read_text("utf-8"))
        self._wall, self._cpu = time.monotonic(), time.process_time()
        self._noted = self._wall

    def total(self) -> dict[str, float]:
        """So far."""
        return {
            "wall": self.before["wall"] + time.monotonic() - self._wall,
            "cpu": self.before["cpu"] + time.process_time() - self._cpu,
        }

    def note(self) -> None:
        """Write it down, if the last time is long ago."""
        if time.monotonic() - self._noted >= SECONDS_BETWEEN_NOTES:
            self._noted = time.monotonic()
            save_json(self.path, self.total())

    def finish(self) -> dict[str, float]:
        """Write it down for the last time."""
        total = self.total()
        save_json(self.path, total)
        return total


def train_contender(
    job: Job, splits: Mapping[str, Corpus], say: Say
) -> tuple[Fitted, dict[str, float]]:
    """Train what the job names; gives it and the seconds spent on that, `wall` and `cpu`."""
    folder = Path(job.folder)
    if job.contender.kind == BASELINE:
        return _train_baseline(job, splits["train"], folder, say)
    return _train_recipe(job, splits, folder, say)


# --- baselines -------------------------------------------------------------------------------


class FittedBaseline:
    """A baseline and the label space it was fitted over."""

    def __init__(self, baseline: Baseline, labels: LabelSpace, model_bytes: int) -> None:
        self.baseline, self.labels, self.model_bytes = baseline, labels, model_bytes
        self.feature_seconds = baseline.feature_seconds

    def predict(self, texts: Sequence[str], k: int) -> Predictions:
        """The best k labels of each text."""
        return self.baseline.predict(texts, k)

    def predict_all(self, corpus: Corpus) -> Predictions:
        """Return the best labels of every text, computed a block of texts at a time."""
        parts = [self.predict(texts, EVALUATED) for texts in corpus.iter_texts(TEXTS_AT_A_TIME)]
        return Predictions.concat(parts)


def _train_baseline(
    job: Job, train: Corpus, folder: Path, say: Say
) -> tuple[Fitted, dict[str, float]]:
    contender = job.contender
    spent = Spent(folder / "spent.json", resume=False)
    labels = LabelSpace.build(train)
    positives = labels.encode(train)[:, : len(labels)]
    baseline = build_baseline(
        contender.source, contender.settings, threads=job.threads, seed=contender.seed
    )
    model = folder / "model"
    shutil.rmtree(model, ignore_errors=True)
    baseline.fit(train, positives, model, say)
    total = spent.finish()
    size = _folder_bytes(model)
    shutil.rmtree(model)  # only its size is asked for; the fitted baseline is in memory
    return FittedBaseline(baseline, labels, size), total


# --- recipes ---------------------------------------------------------------------------------


class FittedRecipe:
    """A model directory, loaded."""

    def __init__(self, predictor: Predictor, model_bytes: int) -> None:
        self.feature_seconds: float | None = None
        self.predictor, self.labels, self.model_bytes = predictor, predictor.labels, model_bytes

    def predict(self, texts: Sequence[str], k: int) -> Predictions:
        """The best k labels of each text."""
        return self.predictor.predict(texts, k=k)

    def predict_all(self, corpus: Corpus) -> Predictions:
        """Return the best labels of every text, by the model and by each expert."""
        return self.predictor.predict_for_report(corpus)


class _Told(TrainListener):
    """Tells a percentage, and notes the time spent."""

    def __init__(self, say: Say, spent: Spent) -> None:
        self.say, self.spent = say, spent

    def on_step(self, info: Mapping[str, Any]) -> None:
        """How far it is."""
        share = 100 * info["step"] / max(1, info["steps"])
        member = f"{info['member']}, " if "member" in info else ""
        self.say(f"{member}{share:.1f} % (step {info['step']:,} of {info['steps']:,})")
        self.spent.note()

    def on_message(self, text: str) -> None:
        """Pass it on."""
        self.say(text)


def _train_recipe(
    job: Job, splits: Mapping[str, Corpus], folder: Path, say: Say
) -> tuple[Fitted, dict[str, float]]:
    import torch

    from glocal.config import recipe_from_mapping
    from glocal.data.label_table import read_label_table
    from glocal.predict.predictor import Predictor
    from glocal.train.checkpoint import RunFolder
    from glocal.train.run import fit

    torch.set_num_threads(job.threads)
    model = folder / "model"
    trained, resume = (model / "glocal.toml").is_file(), RunFolder(model).unfinished
    spent = Spent(folder / "spent.json", resume=trained or resume)
    total = spent.before
    if not trained:
        try:
            fit(
                recipe_from_mapping(job.contender.settings),
                splits["train"],
                out=model,
                dev=splits.get("dev"),
                label_table=None if job.labels is None else read_label_table(job.labels),
                resume=resume,
                device=job.device,
                listener=_Told(say, spent),
            )
        finally:
            total = spent.finish()
    predictor = Predictor.load(model, device=job.device, batch_size=job.batch_size)
    return FittedRecipe(predictor, _folder_bytes(model)), total


def _folder_bytes(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
