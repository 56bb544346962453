"""The rows of a benchmark: who takes part, what was measured, and where it lies.

    OUT/rows/STEM.json      a row: who, settings, status, costs, the evaluation report
    OUT/work/STEM/          its log, predictions (test.parquet, dev.parquet), label space
                            (labels.parquet), scores of each document, and a recipe's model

STEM is the name and a hash of the settings and the data, so that a row is found again exactly when
it would come out the same.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from glocal._version import __version__
from glocal.config import Recipe, load_recipe, recipe_to_mapping
from glocal.data.atomic import atomic_write
from glocal.errors import DataError
from glocal.lab.baselines.baseline_registry import baseline_spec
from glocal.lab.study import DONE, FAILED, chosen_settings

if TYPE_CHECKING:
    from glocal.data.corpus import Corpus
    from glocal.lab.study import StudyData

__all__ = [
    "BASELINE",
    "RECIPE",
    "STAGE",
    "Contender",
    "Job",
    "Row",
    "baseline_contender",
    "read_split",
    "recipe_contender",
    "save_json",
    "write_splits",
]

BASELINE, RECIPE = "baseline", "recipe"
TITLE_WIDTH = 40  # characters
STAGE = "== "  # begins a line of a log that says what comes next


@dataclass(frozen=True)
class Contender:
    """Who takes part.

    Attributes:
        name: Of its row; letters, digits, dots and dashes.
        title: In tables and plots.
        kind: `baseline` or `recipe`.
        source: The baseline's or recipe's name.
        library: With its version.
        settings: The library's settings that are not its own defaults, or the whole recipe.
        identity: The settings that make it another row when they change.
        seed: Of everything random.
        overrides: What was changed of a recipe, as `section.key=value`.
    """

    name: str
    title: str
    kind: str
    source: str
    library: str
    settings: Mapping[str, Any]
    identity: Mapping[str, Any]
    seed: int = 0
    overrides: Sequence[str] = field(default_factory=list)

    def key(self, data_hash: str) -> str:
        """A hash of all that the row depends on."""
        parts = [self.kind, self.source, self.identity, self.seed, data_hash]
        text = json.dumps(parts, sort_keys=True)
        return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()

    def stem(self, data_hash: str) -> str:
        """The name of its files."""
        return f"{self.name}-{self.key(data_hash)[:8]}"


def baseline_contender(name: str, *, matched: bool = False, seed: int = 0) -> Contender:
    """A baseline with its default or its matched setting.

    Raises:
        ConfigError: When there is no such baseline.
        MissingExtraError: When its library is not installed.
    """
    spec = baseline_spec(name)
    spec.check_installed()
    other = matched and spec.has_matched
    settings = spec.settings(matched=matched)
    return Contender(
        f"{name}-matched" if other else name,
        f"{spec.title}, matched" if other else spec.title,
        BASELINE,
        name,
        f"{spec.package} {spec.version}",
        settings,
        settings,
        seed,
    )


def recipe_contender(name: str, overrides: Sequence[str] = ()) -> Contender:
    """A recipe, by name or path.

    Raises:
        ConfigError: When it cannot be read.
    """
    recipe: Recipe = load_recipe(name, overrides)
    short = Path(name).name.removesuffix(".toml")
    return Contender(
        short,
        _recipe_title(short, overrides),
        RECIPE,
        name,
        f"glocal {__version__}",
        recipe_to_mapping(recipe),
        chosen_settings(recipe),
        recipe.train.seed,
        list(overrides),
    )


def _recipe_title(name: str, overrides: Sequence[str]) -> str:
    """The name and what was changed, within the width of a table's column."""
    changes = ", ".join(re.sub(r"^[^=]*\.", "", text) for text in overrides)  # epochs=4
    title = f"{name} ({changes})" if changes else name
    return title if len(title) <= TITLE_WIDTH else f"{title[: TITLE_WIDTH - 2]}…)"


@dataclass(frozen=True)
class Row:
    """What is known of a contender on a data set.

    Attributes:
        contender: Who.
        key: Of settings and data.
        status: `done` or `failed`.
        error: Why it failed.
        cost: Seconds, bytes and speeds; see `benchmark_measure`.
        report: The evaluation report on test.
        dev: The ranking metrics on dev.
        machine: Where it ran.
        finished: The day.
    """

    contender: Contender
    key: str
    status: str
    error: str = ""
    cost: Mapping[str, Any] = field(default_factory=dict)
    report: Mapping[str, Any] = field(default_factory=dict)
    dev: Mapping[str, Any] = field(default_factory=dict)
    machine: Mapping[str, Any] = field(default_factory=dict)
    finished: str = ""

    @property
    def is_done(self) -> bool:
        """Whether it was measured."""
        return self.status == DONE

    @property
    def stem(self) -> str:
        """The name of its files."""
        return f"{self.contender.name}-{self.key[:8]}"

    def score(self, metric: str, *, deduplicated: bool = False) -> float | None:
        """A metric of what it answers with."""
        part = self.report.get("deduplicated" if deduplicated else "scores") or {}
        value = part.get("combined", {}).get(metric)
        return None if value is None else float(value)

    def save(self, path: Path) -> None:
        """Write it, complete or not at all."""
        save_json(path, asdict(self))

    @classmethod
    def load(cls, path: Path) -> Row:
        """Read it.

        Raises:
            DataError: When the file is not one that `save` wrote.
        """
        try:
            mapping = json.loads(path.read_text("utf-8"))
            known = {f.name: mapping[f.name] for f in fields(cls)}
            return cls(**{**known, "contender": Contender(**mapping["contender"])})
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise DataError(
                f"not readable as a row of a benchmark ({type(error).__name__}: {error}); remove "
                "it to measure the row again",
                path=path,
            ) from error


@dataclass(frozen=True)
class Job:
    """One row to be measured: all a process of its own needs, as plain values.

    Attributes:
        contender: Who.
        key: Of settings and data.
        measured_on: Hash of the test texts and their labels.
        data: Paths of Arrow files by split, as `write_splits` made them.
        sources: Where the splits came from, for messages.
        folder: For logs, predictions and models.
        row_path: For the row.
        labels: A label table's path.
        device: Where a recipe computes.
        threads: It may use.
        batch_size: Texts a recipe predicts at a time.
        ks: Of the metrics.
    """

    contender: Contender
    key: str
    measured_on: str
    data: Mapping[str, str]
    sources: Mapping[str, str]
    folder: str
    row_path: str
    labels: str | None = None
    device: str = "auto"
    threads: int = 1
    batch_size: int = 64
    ks: Sequence[int] = (1, 3, 5)

    def save(self) -> Path:
        """Write it for its process."""
        return save_json(Path(self.folder) / "job.json", asdict(self))

    @classmethod
    def load(cls, path: Path) -> Job:
        """Read what `save` wrote."""
        mapping = json.loads(path.read_text("utf-8"))
        return cls(**{**mapping, "contender": Contender(**mapping["contender"])})

    def failed(self, reason: str) -> Row:
        """The row of a job that came to nothing."""
        return Row(self.contender, self.key, FAILED, error=reason)


def write_splits(data: StudyData, folder: Path) -> dict[str, str]:
    """Write the texts as Arrow files, which every row's process maps into its memory.

    So that rows differ neither in the time nor in the memory that reading the user's files takes.
    """
    import pyarrow as pa

    paths = {}
    for split in ("train", "dev", "test"):
        corpus: Corpus | None = getattr(data, split)
        if corpus is None:
            continue
        paths[split] = str(folder / f"{split}.arrow")
        with atomic_write(paths[split]) as file, pa.ipc.new_file(file, corpus.table.schema) as out:
            out.write_table(corpus.table)
    return paths


def read_split(job: Job, split: str) -> Corpus | None:
    """A split of the job's data; None where there is none."""
    import pyarrow as pa

    from glocal.data.corpus import Corpus

    if split not in job.data:
        return None
    table = pa.ipc.open_file(pa.memory_map(job.data[split])).read_all()
    return Corpus(table, source=job.sources[split])


def save_json(path: Path, mapping: Mapping[str, Any]) -> Path:
    """Write a mapping, complete or not at all."""
    with atomic_write(path) as file:
        file.write((json.dumps(mapping, indent=2, ensure_ascii=False) + "\n").encode())
    return path
