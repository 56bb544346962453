"""Jobs: a method to train and measure on one data set, and the result.

A job has a folder of its own:

    FOLDER/result.json    state, settings and measurements
    FOLDER/model/         the model (model.run/ while it trains)
    FOLDER/job.json       what its child process was asked to do
    FOLDER/log.txt        output of that process
    FOLDER/*.parquet      predictions, label space and scores of each text (timed jobs)

Two fingerprints decide what counts as done: `trained_on` (settings, library version, training and
dev texts) and `measured_on` (the texts measured on).
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from enum import StrEnum
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from glocal.data.atomic import atomic_write, write_json
from glocal.errors import ConfigError, DataError
from glocal.lab.experiment.methods import Method
from glocal.train.listener import TrainListener

if TYPE_CHECKING:
    from glocal.data.corpus import Corpus
    from glocal.vocabulary.label_table import LabelTable

_SPLITS = ("train", "dev", "test")
_FORMAT = 1  # of result.json
_DIVERGENCE = "+divergence"


class JobState(StrEnum):
    """The state of a job."""

    STARTED = "started"
    DONE = "done"
    FAILED = "failed"


class JobListener(TrainListener):
    """Receives the events of a job; does nothing, subclasses show them."""

    def on_stage(self, stage: str) -> None:
        """Called in the job's process when a stage starts: training, timing, predicting."""

    def on_progress(self, stage: str, seconds: float, percent: float | None) -> None:
        """Called in the parent process while a child is at work."""


@dataclass(frozen=True)
class Splits:
    """The texts of an experiment.

    Attributes:
        train: Training texts.
        dev: Texts that choose each model's best weights.
        test: Texts to measure on; without them dev is measured on, and the tables say so.
        labels: Path of a label table: names, descriptions and parents.
    """

    train: Corpus
    dev: Corpus | None = None
    test: Corpus | None = None
    labels: str | None = None

    def __post_init__(self) -> None:
        if self.dev is None and self.test is None:
            raise ConfigError("nothing to measure on: give test texts, dev texts or both")

    @property
    def split(self) -> str:
        """Name of the split that is measured on."""
        return "dev" if self.test is None else "test"

    @property
    def measured(self) -> Corpus:
        """The texts that are measured on."""
        corpus = self.dev if self.test is None else self.test
        assert corpus is not None, "checked when it was made"
        return corpus

    @cached_property
    def label_table(self) -> LabelTable | None:
        """The label table, read once."""
        from glocal.vocabulary.label_table import read_label_table

        return read_label_table(self.labels) if self.labels else None

    @cached_property
    def training_hash(self) -> str:
        """Fingerprint of the texts and label table that models depend on."""
        table = self.label_table
        known = [] if table is None else [table.ids, table.names, table.descriptions, table.parents]
        return _hash([_corpus_hash(self.train), _corpus_hash(self.dev), *known])

    @cached_property
    def measuring_hash(self) -> str:
        """Fingerprint of the texts that are measured on."""
        return _corpus_hash(self.measured)

    def sources(self) -> dict[str, Any]:
        """Return size and source of each split, and a fingerprint of all."""
        found = {name: corpus for name in _SPLITS if (corpus := getattr(self, name)) is not None}
        sizes = {name: {"texts": len(c), "source": c.source} for name, c in found.items()}
        return {"hash": _hash([self.training_hash, self.measuring_hash]), "splits": sizes}

    def describe(self) -> str:
        """Say which split the numbers are on and what models were trained with."""
        chosen = "the last weights"
        if self.dev is not None:
            chosen = f"weights chosen on dev ({len(self.dev):,} texts of {self.dev.source})"
        split = f"{self.split} ({len(self.measured):,} texts of {self.measured.source})"
        same = ", the split the weights were chosen on" if self.test is None else ""
        return f"Numbers are on {split}{same}; {len(self.train):,} training texts; {chosen}."

    def write(self, folder: Path) -> dict[str, Any]:
        """Write the texts as Arrow files, which child processes map into memory.

        Reading the user's files is then no part of a job's time or memory.
        """
        import pyarrow as pa

        files = {}
        for name in _SPLITS:
            corpus: Corpus | None = getattr(self, name)
            if corpus is not None:
                path = folder / f"{name}.arrow"
                with atomic_write(path) as file, pa.ipc.new_file(file, corpus.table.schema) as out:
                    out.write_table(corpus.table)
                files[name] = [str(path), corpus.source]
        return {"files": files, "labels": self.labels}

    @classmethod
    def read(cls, written: Mapping[str, Any]) -> Splits:
        """Map what `write` wrote into memory."""
        import pyarrow as pa

        from glocal.data.corpus import Corpus

        corpora = {
            name: Corpus(pa.ipc.open_file(pa.memory_map(path)).read_all(), source=source)
            for name, (path, source) in written["files"].items()
        }
        return cls(**corpora, labels=written["labels"])


@dataclass(frozen=True)
class Conditions:
    """The conditions that jobs are run under.

    Attributes:
        device: Where recipes compute.
        batch_size: Texts a recipe predicts at a time.
        threads: Threads a child process may use; by default its share of the cores.
        timed: Also measure speed, memory and near-duplicates, and keep the predictions.
        divergence: Also measure how much the two experts of a model differ.
    """

    device: str = "auto"
    batch_size: int = 64
    threads: int | None = None
    timed: bool = False
    divergence: bool = False


@dataclass(frozen=True)
class Result:
    """A job's state and measurements.

    Attributes:
        method: The trained method.
        status: The state of the job, as in `JobState`.
        trained_on: Fingerprint of method and training data.
        measured_on: Fingerprint of the texts measured on.
        split: Name of the split measured on.
        data: Size and source of each split, and their fingerprint.
        conditions: The conditions it was run under.
        error: Why it failed.
        cost: Seconds, bytes and speeds; see `measure`.
        report: The evaluation report.
        dev: Ranking metrics on dev (timed jobs).
        divergence: Divergence of the two experts, if it was measured.
        machine: Where it ran.
        finished: Date.
    """

    method: Method
    status: str
    trained_on: str
    measured_on: str
    split: str = ""
    data: Mapping[str, Any] = field(default_factory=dict)
    conditions: Conditions = field(default_factory=Conditions)
    error: str = ""
    cost: Mapping[str, Any] = field(default_factory=dict)
    report: Mapping[str, Any] = field(default_factory=dict)
    dev: Mapping[str, Any] = field(default_factory=dict)
    divergence: Mapping[str, Any] = field(default_factory=dict)
    machine: Mapping[str, Any] = field(default_factory=dict)
    finished: str = ""

    @property
    def name(self) -> str:
        """Name of the method."""
        return self.method.name

    @property
    def title(self) -> str:
        """Title of the method."""
        return self.method.title

    @property
    def is_done(self) -> bool:
        """Whether everything was measured."""
        return self.status == JobState.DONE

    @property
    def has_failed(self) -> bool:
        """Whether an error ended it."""
        return self.status == JobState.FAILED

    @property
    def parts(self) -> list[str]:
        """Parts of the model with scores of their own: experts, and `mean`."""
        return [name for name in self.report.get("scores", {}) if name != "combined"]

    def score(
        self, metric: str, part: str = "combined", *, deduplicated: bool = False
    ) -> float | None:
        """Return a metric of a part; None where there is none."""
        scores = self.report.get("deduplicated" if deduplicated else "scores") or {}
        value = scores.get(part, {}).get(metric)
        return None if value is None else float(value)

    def serves(self, other: Result) -> bool:
        """Whether its measurements are all that the other one needs."""
        measured = (other.measured_on, f"{other.measured_on}{_DIVERGENCE}")
        return self.is_done and self.trained_on == other.trained_on and self.measured_on in measured

    def to_dict(self) -> dict[str, Any]:
        """Return plain values for JSON, the method's among them."""
        plain = asdict(self)
        return {**plain.pop("method"), **plain}

    def save(self, folder: Path) -> None:
        """Write it into the job's folder."""
        write_json(folder / "result.json", {"format": _FORMAT, **self.to_dict()})

    @classmethod
    def load(cls, folder: Path) -> Result | None:
        """Read a job's result; None where there is none.

        Raises:
            DataError: If the file is not one that `save` wrote.
        """
        path = folder / "result.json"
        if not path.is_file():
            return None
        try:
            plain = json.loads(path.read_text("utf-8"))
            if plain["format"] != _FORMAT:
                raise ValueError(f"format {plain['format']}, expected {_FORMAT}")
            return cls.from_dict(plain)
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise DataError(
                f"not readable as the result of a job ({type(error).__name__}: {error}); remove "
                "the file to measure again",
                path=path,
            ) from error

    @classmethod
    def from_dict(cls, plain: Mapping[str, Any]) -> Result:
        """Make a result from what `to_dict` returned."""
        method = Method(**{f.name: plain[f.name] for f in fields(Method)})
        known = {f.name: plain[f.name] for f in fields(cls) if f.name != "method"}
        return cls(method, **{**known, "conditions": Conditions(**plain["conditions"])})


@dataclass(frozen=True)
class Job:
    """A method to train and measure.

    Attributes:
        blank: Its result before anything is measured.
        splits: The texts.
        folder: The job's folder.
    """

    blank: Result
    splits: Splits
    folder: Path

    @classmethod
    def make(
        cls,
        method: Method,
        splits: Splits,
        conditions: Conditions,
        folder: Path,
        *,
        keyed: bool = False,
    ) -> Job:
        """Make a job with its fingerprints.

        Args:
            method: The method to train.
            splits: The texts.
            conditions: The conditions to run it under.
            folder: The job's folder.
            keyed: Append digits of the fingerprints to the folder's name, so that jobs of other
                settings or texts have other folders.
        """
        trained_on = _hash([method.identity, splits.training_hash])
        measured_on = splits.measuring_hash + (_DIVERGENCE if conditions.divergence else "")
        if keyed:
            key = _hash([trained_on, measured_on])[:8]
            folder = folder.with_name(f"{folder.name}-{key}")
        blank = Result(
            method,
            JobState.STARTED,
            trained_on,
            measured_on,
            split=splits.split,
            data=splits.sources(),
            conditions=conditions,
        )
        return cls(blank, splits, folder)

    @property
    def method(self) -> Method:
        """The method to train."""
        return self.blank.method

    @property
    def conditions(self) -> Conditions:
        """The conditions to run it under."""
        return self.blank.conditions

    @property
    def model(self) -> Path:
        """Folder of the model."""
        return self.folder / "model"

    def save(self, written: Mapping[str, Any]) -> None:
        """Write it for its child process; `written` comes from `Splits.write`."""
        plain = {"result": self.blank.to_dict(), "splits": written}
        write_json(self.folder / "job.json", plain)

    @classmethod
    def load(cls, folder: Path) -> Job:
        """Read what `save` wrote."""
        plain = json.loads((folder / "job.json").read_text("utf-8"))
        return cls(Result.from_dict(plain["result"]), Splits.read(plain["splits"]), folder)


def _corpus_hash(corpus: Corpus | None) -> str:
    if corpus is None:
        return ""
    labels = hashlib.blake2b(digest_size=16)
    for start in range(0, len(corpus), 4096):
        labels.update(json.dumps(corpus.labels(start, start + 4096)).encode())
    return f"{corpus.fingerprint()} {labels.hexdigest()}"


def _hash(parts: Any) -> str:
    text = json.dumps(parts, sort_keys=True)
    return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()
