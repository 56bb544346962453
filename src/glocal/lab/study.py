"""Training many variants on one data set and measuring each, so that nothing finished is lost.

    OUT/models/NAME/          the variant's model directory (NAME.run/ while it trains)
    OUT/results/NAME.json     what it was, where it stands, what was measured

- repeating the command goes on: finished variants are skipped, unfinished ones resume, failed ones
  are tried again; a test set that changed is measured anew without training;
- a variant that another study finished with the same settings and texts is taken over (`reuse`);
- a variant that fails is noted with its reason, and the others go on;
- with `parallel` several variants train side by side, each in a process of its own, so that one
  that runs out of memory takes no other with it.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from glocal.config import Recipe, recipe_to_mapping
from glocal.data.atomic import atomic_write
from glocal.errors import ConfigError, DataError
from glocal.lab.variant_tables import Variant
from glocal.train.listener import TrainListener

if TYPE_CHECKING:
    from glocal.data.corpus import Corpus
    from glocal.data.label_table import LabelTable

__all__ = ["DONE", "FAILED", "STARTED", "Job", "Outcome", "Study", "StudyData", "StudyView"]

DONE, FAILED, STARTED = "done", "failed", "started"


@dataclass(frozen=True)
class StudyData:
    """The texts of a study.

    Attributes:
        train: To learn from.
        dev: Chooses each variant's best weights.
        test: To measure on; without it dev is measured on, and the tables say so.
        label_table: Names and parents of labels, which a teacher reads.
    """

    train: Corpus
    dev: Corpus | None = None
    test: Corpus | None = None
    label_table: LabelTable | None = None

    def __post_init__(self) -> None:
        if self.dev is None and self.test is None:
            raise ConfigError("there is nothing to measure on: give --test, --dev or both")

    @property
    def split(self) -> str:
        """Which split the numbers are on."""
        return "dev" if self.test is None else "test"

    @property
    def measured(self) -> Corpus:
        """The texts the numbers are on."""
        corpus = self.dev if self.test is None else self.test
        assert corpus is not None, "checked when it was made"
        return corpus

    @cached_property
    def training_hash(self) -> str:
        """Of what the models depend on."""
        table = self.label_table
        known = [] if table is None else [table.ids, table.names, table.descriptions, table.parents]
        return _hash([corpus_hash(self.train), corpus_hash(self.dev), *known])

    @cached_property
    def measuring_hash(self) -> str:
        """Of what the numbers depend on besides."""
        return corpus_hash(self.measured)

    def describe(self) -> str:
        """On which split the numbers are, and what they were trained with."""
        chosen = "the last weights"
        if self.dev is not None:
            chosen = f"weights chosen on dev ({len(self.dev):,} texts of {self.dev.source})"
        split = f"{self.split} ({len(self.measured):,} texts of {self.measured.source})"
        same = ", the split the weights were chosen on" if self.test is None else ""
        return f"Numbers are on {split}{same}; {len(self.train):,} training texts; {chosen}."


@dataclass(frozen=True)
class Outcome:
    """What is known of one variant.

    Attributes:
        name: The variant's.
        title: The variant's.
        status: `done`, `failed` or `started`.
        trained_on: Hash of recipe and training data.
        measured_on: Hash of the texts that were measured on.
        recipe: All settings, as given (what was `auto` is decided in the model).
        split: Which split was measured on.
        error: Why it failed.
        seconds: Spent training.
        report: The evaluation report's mapping.
        divergence: Of its two experts, where it was asked for.
    """

    name: str
    title: str
    status: str
    trained_on: str
    measured_on: str = ""
    recipe: Mapping[str, Any] = field(default_factory=dict)
    split: str = ""
    error: str = ""
    seconds: float = 0.0
    report: Mapping[str, Any] = field(default_factory=dict)
    divergence: Mapping[str, Any] = field(default_factory=dict)

    def is_of(self, other: Outcome) -> bool:
        """Whether both were trained and measured on the same."""
        return (self.trained_on, self.measured_on) == (other.trained_on, other.measured_on)

    @property
    def parts(self) -> list[str]:
        """What it has besides `combined`: several experts; a `mean` beside weights."""
        return [name for name in self.report.get("scores", {}) if name != "combined"]

    def score(self, metric: str, part: str = "combined") -> float | None:
        """A metric of the combination or of a part; None where there is no such part."""
        scores = self.report.get("scores", {})
        value = scores.get(part, {}).get(metric)
        return None if value is None else float(value)

    def save(self, path: Path) -> None:
        """Write it, complete or not at all."""
        with atomic_write(path) as file:
            file.write((json.dumps(asdict(self), indent=2) + "\n").encode())

    @classmethod
    def load(cls, path: Path) -> Outcome | None:
        """Read it; None where there is none.

        Raises:
            DataError: When the file is not one that `save` wrote.
        """
        if not path.is_file():
            return None
        try:
            mapping = json.loads(path.read_text("utf-8"))
            return cls(**{f.name: mapping[f.name] for f in fields(cls)})
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise DataError(
                f"not readable as a variant's result ({type(error).__name__}: {error}); remove it "
                "to measure the variant again",
                path=path,
            ) from error


@dataclass(frozen=True)
class Job:
    """One variant to be trained and measured: all a process of its own needs."""

    variant: Variant
    recipe: Recipe
    data: StudyData
    out: Path
    divergence: bool = False
    device: str = "auto"
    batch_size: int = 64

    @property
    def model_path(self) -> Path:
        """Where its model goes."""
        return self.out / "models" / self.variant.name

    @property
    def result_path(self) -> Path:
        """Where its result goes."""
        return self.out / "results" / f"{self.variant.name}.json"

    def blank(self, status: str, **known: Any) -> Outcome:
        """An outcome without measurements."""
        recipe = recipe_to_mapping(self.recipe)
        return Outcome(
            self.variant.name,
            self.variant.title,
            status,
            trained_on=_hash([chosen_settings(self.recipe), self.data.training_hash]),
            measured_on=_hash([self.data.measuring_hash, self.divergence]),
            recipe=recipe,
            split=self.data.split,
            **known,
        )


class StudyView:
    """What a study tells while it runs; does nothing, subclasses show what they want to."""

    def on_variant(self, number: int, total: int, title: str) -> None:
        """A variant begins."""

    def on_outcome(self, outcome: Outcome, *, skipped: bool) -> None:
        """A variant has ended, or was found finished."""

    def on_taken_over(self, number: int, total: int) -> None:
        """So many variants were finished by other studies."""

    def training(self) -> contextlib.AbstractContextManager[TrainListener]:
        """The listener of a training run in this process."""
        return contextlib.nullcontext(TrainListener())


class Study:
    """Variants over one data set.

    Args:
        variants: In the order of the table.
        recipes: Of each variant, by name.
        data: The texts.
        out: The folder for models and results.
        divergence: Also measure how much the two experts differ.
        device: Where to compute.
        batch_size: Texts measured at a time.
        reuse: Folders of other studies, whose finished variants of the same settings and texts are
            taken over; their models stay where they are.
    """

    def __init__(
        self,
        variants: Sequence[Variant],
        recipes: Mapping[str, Recipe],
        data: StudyData,
        *,
        out: Path,
        divergence: bool = False,
        device: str = "auto",
        batch_size: int = 64,
        reuse: Sequence[Path] = (),
    ) -> None:
        self.out, self.data, self.reuse = out, data, reuse
        self.jobs = {
            variant.name: Job(
                variant, recipes[variant.name], data, out, divergence, device, batch_size
            )
            for variant in variants
        }
        if out.exists() and not out.is_dir():
            raise ConfigError(f"{out} is a file; a folder for models and results was expected")

    def run(
        self,
        names: Sequence[str] = (),
        *,
        parallel: int = 1,
        overwrite: bool = False,
        view: StudyView | None = None,
    ) -> list[Outcome]:
        """Train and measure what is not finished; gives every outcome known, in order.

        Args:
            names: Only these variants.
            parallel: Variants trained side by side.
            overwrite: Forget what was done before.
            view: Is told what happens.

        Raises:
            ConfigError: Before anything is trained: a variant cannot be built, or its earlier
                result was made with other settings or data.
            Interrupted: The user stopped; what was finished is kept, the rest resumes.
        """
        from glocal.lab.execute import run_jobs
        from glocal.lab.reuse import take_over

        view = view or StudyView()
        chosen = [job for name, job in self.jobs.items() if not names or name in names]
        check_experts(chosen)
        if overwrite:
            _forget(chosen)
        _check_earlier(chosen)
        if self.reuse:
            view.on_taken_over(take_over(chosen, self.reuse), len(chosen))
        run_jobs(chosen, parallel=parallel, view=view)
        return self.outcomes()

    def outcomes(self) -> list[Outcome]:
        """What is known of all variants, in order; without those never begun or made otherwise."""
        found = [(job.blank(STARTED), Outcome.load(job.result_path)) for job in self.jobs.values()]
        return [outcome for now, outcome in found if outcome and outcome.is_of(now)]


def check_experts(jobs: Sequence[Job]) -> None:
    """Refuse experts the encoder does not have, of all variants at once.

    Raises:
        ConfigError: With every problem and its variant.
    """
    from glocal.config.expert_names import parse_experts

    layers: dict[str, int] = {}
    problems = []
    for job in jobs:
        name = f"{job.recipe.reader.encode} {job.recipe.encoder.name}"
        if name not in layers:
            layers[name] = encoder_layers(job.recipe)
        try:
            parse_experts(job.recipe.experts, layers[name])
        except ConfigError as error:
            problems += [f"variant '{job.variant.name}': {problem}" for problem in error.problems]
    if problems:
        raise ConfigError(problems)


def encoder_layers(recipe: Recipe) -> int:
    """How many layers a recipe's encoder has."""
    from glocal.encoders.loading import load_pretrained, n_layers

    if recipe.reader.encode == "static":
        return 0
    model, _ = load_pretrained(recipe.encoder)
    return n_layers(model)


def corpus_hash(corpus: Corpus | None) -> str:
    """A hash of texts and labels."""
    if corpus is None:
        return ""
    labels = hashlib.blake2b(digest_size=16)
    for start in range(0, len(corpus), 4096):
        labels.update(json.dumps(corpus.labels(start, start + 4096)).encode())
    return f"{corpus.fingerprint()} {labels.hexdigest()}"


def _hash(parts: Any) -> str:
    text = json.dumps(parts, sort_keys=True)
    return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()


def chosen_settings(recipe: Recipe) -> dict[str, Any]:
    """The settings that are not at their defaults: an option added later changes nothing."""
    mapping = _without_defaults(recipe_to_mapping(recipe), recipe_to_mapping(Recipe()))
    mapping.pop("description", None)
    return mapping


def _without_defaults(mapping: Mapping[str, Any], defaults: Mapping[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, value in mapping.items():
        default = defaults.get(key)
        if isinstance(value, Mapping) and isinstance(default, Mapping):
            inner = _without_defaults(value, default)
            found |= {key: inner} if inner else {}
        elif value != default:
            found[key] = value
    return found


def _forget(jobs: Sequence[Job]) -> None:
    import shutil

    for job in jobs:
        job.result_path.unlink(missing_ok=True)
        for folder in (job.model_path, job.model_path.with_name(f"{job.model_path.name}.run")):
            shutil.rmtree(folder, ignore_errors=True)


def _check_earlier(jobs: Sequence[Job]) -> None:
    problems = []
    for job in jobs:
        earlier, now = Outcome.load(job.result_path), job.blank(STARTED)
        if earlier is None or earlier.trained_on == now.trained_on:
            continue
        changed = _differences(earlier.recipe, now.recipe) or ["other training or dev texts"]
        problems.append(
            f"'{job.variant.name}' in {job.out} was trained with {', '.join(changed)}; repeat the "
            "command as it was, choose another --out, or start anew with --overwrite"
        )
    if problems:
        raise ConfigError(problems)


def _differences(before: Mapping[str, Any], now: Mapping[str, Any], where: str = "") -> list[str]:
    found: list[str] = []
    for key, value in now.items():
        old = before.get(key)
        if isinstance(value, Mapping) and isinstance(old, Mapping):
            found += _differences(old, value, f"{where}{key}.")
        elif old != value and f"{where}{key}" != "description":
            found.append(f"{where}{key}={old} (now {value})")
    return found
