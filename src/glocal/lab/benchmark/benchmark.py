"""Recipes and baselines on one data set, one at a time, each in a process of its own.

    OUT/benchmark.json      the data and the conditions; rows of others do not get in
    OUT/rows/, OUT/work/    see `benchmark_rows`
    OUT/results.json, .md, .html

Repeating the command goes on: finished rows are kept, a stopped training run resumes, failed rows
are tried again. A row that fails is noted with its reason, and the rest goes on.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import shutil
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from glocal.config import recipe_names
from glocal.errors import ConfigError, DataError, did_you_mean
from glocal.lab.baselines.baseline_registry import BASELINES
from glocal.lab.benchmark.benchmark_process import run_job
from glocal.lab.benchmark.benchmark_rows import (
    Contender,
    Job,
    Row,
    baseline_contender,
    recipe_contender,
    save_json,
    write_splits,
)
from glocal.lab.study import StudyData

__all__ = [
    "Benchmark",
    "BenchmarkView",
    "Conditions",
    "all_rows",
    "choose_contenders",
    "default_recipes",
    "measure_alone",
    "read_manifest",
    "usable_cores",
]

KS = (1, 3, 5)


def usable_cores() -> int:
    """Cores this process may use."""
    affinity = getattr(os, "sched_getaffinity", None)  # Linux
    return len(affinity(0)) if affinity else os.cpu_count() or 1


def default_recipes() -> list[str]:
    """The built-in recipes that fit any data set: not those of a paper's data, nor the demo's.

    Nor `auto`, which is one of the others.
    """
    left_out = {"demo", "auto"}
    return [name for name in recipe_names() if "-paper-" not in name and name not in left_out]


def choose_contenders(
    recipes: Sequence[str] | None = None,
    baselines: Sequence[str] | None = None,
    *,
    overrides: Sequence[str] = (),
    only: Sequence[str] = (),
    seed: int = 0,
) -> list[Contender]:
    """Who takes part: the default and the matched setting of every baseline, then the recipes.

    Args:
        recipes: By name or path; every built-in one that fits any data when not given.
        baselines: By name; every one whose library is installed when not given.
        overrides: `section.key=value` for every recipe.
        only: Names of rows; all when empty.
        seed: Of the baselines.

    Raises:
        ConfigError: With everything that is wrong with the names.
        MissingExtraError: When a baseline that was asked for is not installed.
    """
    if baselines is None:
        baselines = [name for name, spec in BASELINES.items() if spec.version]
    found = {
        contender.name: contender
        for name in baselines
        for matched in (False, True)
        for contender in [baseline_contender(name, matched=matched, seed=seed)]
    }
    problems = []
    for name in default_recipes() if recipes is None else recipes:
        try:
            contender = recipe_contender(name, overrides)
            found[contender.name] = contender
        except ConfigError as error:
            problems += [problem for problem in error.problems if problem not in problems]
    problems += [
        f"there is no row '{name}'{did_you_mean(name, found)}; there are {', '.join(found)}"
        for name in only
        if name not in found and not problems
    ]
    if problems:
        raise ConfigError(problems)
    return [contender for name, contender in found.items() if not only or name in only]


@dataclass(frozen=True)
class Conditions:
    """What all rows of a results folder have in common.

    Attributes:
        threads: Each may use.
        device: Where recipes compute.
        batch_size: Texts a recipe predicts at a time.
        labels: A label table's path.
    """

    threads: int
    device: str = "auto"
    batch_size: int = 64
    labels: str | None = None


class BenchmarkView:
    """What a benchmark tells while it runs; does nothing, subclasses show what they want to."""

    def on_row(self, number: int, total: int, contender: Contender) -> contextlib.ExitStack:
        """A row begins; what is given back is closed when it ends."""
        return contextlib.ExitStack()

    def on_tick(self, stage: str, seconds: float, percent: float | None) -> None:
        """It is still at work."""

    def on_result(self, row: Row, *, kept: bool) -> None:
        """A row has ended, or was found finished."""


class Benchmark:
    """Contenders on one data set.

    Args:
        contenders: In the order to run them.
        data: The texts; test is measured on.
        conditions: The same for all.
        out: The results folder.
    """

    def __init__(
        self,
        contenders: Sequence[Contender],
        data: StudyData,
        conditions: Conditions,
        *,
        out: Path,
    ) -> None:
        self.contenders, self.data, self.conditions, self.out = contenders, data, conditions, out
        self.data_hash = _data_hash(data)

    def run(self, *, overwrite: bool = False, view: BenchmarkView | None = None) -> list[Row]:
        """Measure what is not finished; gives the rows of the contenders, in order.

        Args:
            overwrite: Forget what these contenders had before.
            view: Is told what happens.

        Raises:
            ConfigError: When the folder holds rows of other data or conditions.
            Interrupted: The user stopped; what was finished is kept.
        """
        view = view or BenchmarkView()
        self.check_folder()
        if overwrite:
            self._forget()
        rows: dict[str, Row] = {}
        for contender in self.contenders:
            row = self._finished(contender)
            if row is not None:
                rows[contender.name] = row
                view.on_result(row, kept=True)
        waiting = [c for c in self.contenders if c.name not in rows]
        if waiting:
            rows |= self._measure(waiting, view)
        return [rows[contender.name] for contender in self.contenders]

    def _measure(self, contenders: Sequence[Contender], view: BenchmarkView) -> dict[str, Row]:
        splits = self.out / "work" / "splits"
        rows = {}
        try:
            paths = write_splits(self.data, splits)
            for number, contender in enumerate(contenders, 1):
                with view.on_row(number, len(contenders), contender):
                    row = run_job(self._job(contender, paths), view.on_tick)
                rows[contender.name] = row
                view.on_result(row, kept=False)
        finally:
            shutil.rmtree(splits, ignore_errors=True)
        return rows

    def _job(self, contender: Contender, paths: Mapping[str, str]) -> Job:
        return _make_job(
            contender,
            self.data,
            self.conditions,
            data_hash=self.data_hash,
            paths=paths,
            folder=self.out / "work" / contender.stem(self.data_hash),
            row_path=self._row_path(contender),
        )

    def _row_path(self, contender: Contender) -> Path:
        return self.out / "rows" / f"{contender.stem(self.data_hash)}.json"

    def _finished(self, contender: Contender) -> Row | None:
        path = self._row_path(contender)
        row = Row.load(path) if path.is_file() else None
        return row if row is not None and row.is_done else None

    def _forget(self) -> None:
        for contender in self.contenders:
            self._row_path(contender).unlink(missing_ok=True)
            work = self.out / "work" / contender.stem(self.data_hash)
            shutil.rmtree(work, ignore_errors=True)

    def check_folder(self) -> None:
        """Refuse a folder of other rows; `run` does this too.

        Raises:
            ConfigError: When it holds rows of other data or conditions.
        """
        path = self.out / "benchmark.json"
        now = self._manifest()
        if not path.is_file():
            save_json(path, now)
            return
        before = read_manifest(self.out)
        changed = [key for key in ("data", "threads", "device") if before.get(key) != now[key]]
        if changed:
            was = ", ".join(
                "other texts or labels" if key == "data" else f"{key} = {before.get(key)}"
                for key in changed
            )
            raise ConfigError(
                f"{self.out} holds rows that were measured with {was}; rows side by side must be "
                "of the same data and conditions: choose another --out"
            )

    def _manifest(self) -> dict[str, Any]:
        sizes = {
            split: {"texts": len(corpus), "source": corpus.source}
            for split in ("train", "dev", "test")
            for corpus in [getattr(self.data, split)]
            if corpus is not None
        }
        return {
            "data": self.data_hash,
            "splits": sizes,
            "threads": self.conditions.threads,
            "device": self.conditions.device,
            "labels": self.conditions.labels,
        }


def measure_alone(
    contender: Contender,
    data: StudyData,
    conditions: Conditions,
    *,
    folder: Path,
    view: BenchmarkView,
) -> Row:
    """Measure one contender, with everything of it in one folder and its row in `row.json`."""
    with tempfile.TemporaryDirectory(dir=folder, prefix="splits-") as splits:
        job = _make_job(
            contender,
            data,
            conditions,
            data_hash=_data_hash(data),
            paths=write_splits(data, Path(splits)),
            folder=folder,
            row_path=folder / "row.json",
        )
        with view.on_row(1, 1, contender):
            return run_job(job, view.on_tick)


def _make_job(
    contender: Contender,
    data: StudyData,
    conditions: Conditions,
    *,
    data_hash: str,
    paths: Mapping[str, str],
    folder: Path,
    row_path: Path,
) -> Job:
    corpora = {split: getattr(data, split) for split in paths}
    return Job(
        contender,
        contender.key(data_hash),
        measured_on=data.measuring_hash,
        data=paths,
        sources={split: corpus.source for split, corpus in corpora.items()},
        folder=str(folder),
        row_path=str(row_path),
        labels=conditions.labels,
        device=conditions.device,
        threads=conditions.threads,
        batch_size=conditions.batch_size,
        ks=KS,
    )


def _data_hash(data: StudyData) -> str:
    hashes = [data.training_hash, data.measuring_hash]
    return hashlib.blake2b(" ".join(hashes).encode(), digest_size=16).hexdigest()


def read_manifest(out: Path) -> dict[str, Any]:
    """What the rows of a results folder have in common.

    Raises:
        DataError: When it is not a results folder.
    """
    path = out / "benchmark.json"
    try:
        manifest: dict[str, Any] = json.loads(path.read_text("utf-8"))
    except (OSError, ValueError) as error:
        raise DataError(
            f"not a benchmark's results ({error}); run `glocal benchmark TRAIN DEV TEST --out "
            f"{out}` first",
            path=path,
        ) from error
    return manifest


def all_rows(out: Path) -> list[Row]:
    """Every row of a results folder."""
    return [Row.load(path) for path in sorted((out / "rows").glob("*.json"))]
