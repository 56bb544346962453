"""From a recipe as written to one with nothing left open, in two stages.

    Recipe ──check──► CheckedRecipe ──resolve──► ResolvedRecipe

1. `check` knows the settings and the encoder's configuration. It runs before any text is read and
   reports every problem at once.
2. `resolve` also knows the number of labels, the device and the outcome of planning. Nothing
   changes its result afterwards: it is what is trained, stored with the model and loaded again.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, cast

from glocal.config.durations import parse_duration
from glocal.config.encoder_facts import EncoderFacts
from glocal.config.expert_names import OPEN_EXPERTS, SPARSE_EXPERT, TEACHER, expert_kinds
from glocal.config.recipe_files import load_recipe, recipe_from_mapping
from glocal.config.rules import label_text_problems, lean_label_problems, recipe_problems
from glocal.config.settings import NO_ENCODER, Recipe
from glocal.errors import ConfigError, GlocalError, MissingExtraError, Remedy

SHORTLIST_FROM = 4000  # labels; fewer are scored in full even on a CPU
BF16_LABELS_FROM = 200_000  # labels; fewer are trained in fp32


@dataclass(frozen=True)
class CheckedRecipe:
    """A recipe that follows every rule; made by `check`.

    Attributes:
        written: The recipe as the user wrote it; experts, epochs and members may be open.
        draft: The same with the values of the preset `balanced` in place of open ones: companions
            are fitted and the speed is measured by it.
        missing_encoder: The reason why there is no encoder, where the recipe can do without one.
    """

    written: Recipe
    draft: Recipe
    missing_encoder: str = ""

    @property
    def budget(self) -> float | None:
        """Seconds the run may take; None for no limit."""
        return parse_duration(self.written.train.budget)

    @property
    def is_open(self) -> bool:
        """Whether something depends on how fast the machine trains."""
        recipe, train = self.written, self.written.train
        open_settings = not train.epochs or not train.members or bool(train.budget)
        return recipe.experts == OPEN_EXPERTS or open_settings

    @property
    def may_drop_encoder(self) -> bool:
        """Whether the plan may leave the encoder out: experts are open, no encoder is named."""
        usual = {load_recipe("auto").encoder.name, NO_ENCODER}
        return self.written.experts == OPEN_EXPERTS and self.written.encoder.name in usual


@dataclass(frozen=True)
class ResolvedRecipe(Recipe):
    """A recipe in which nothing is open; made by `resolve`, never changed."""

    def member(self, number: int) -> ResolvedRecipe:
        """Return the recipe of one member: a single model with a seed of its own."""
        train = replace(self.train, members=1, seed=self.train.seed + number)
        return replace(self, train=train)


def check(
    recipe: Recipe,
    read_facts: Callable[[Recipe], EncoderFacts],
    *,
    has_label_table: bool = True,
    has_label_names: bool = False,
) -> CheckedRecipe:
    """Hold a recipe against every rule that needs no texts.

    Args:
        recipe: The settings as written.
        read_facts: Reads the configuration of the recipe's encoder.
        has_label_table: Whether a label table is given.
        has_label_names: Whether it names labels.

    Raises:
        ConfigError: With every problem.
        GlocalError: The encoder is missing or unreadable, and nothing else is wrong.
    """
    checked = CheckedRecipe(recipe, _fill_open(recipe, has_label_names=has_label_names))
    facts, failure = None, cast(GlocalError | None, None)
    try:
        facts = read_facts(checked.draft)
    except MissingExtraError as error:
        if checked.may_drop_encoder:
            checked = replace(checked, missing_encoder=str(error))
        else:
            failure = error
    except GlocalError as error:
        failure = error
    problems, remedies = recipe_problems(checked.draft, facts), []
    if recipe.labels.score_unseen and not has_label_table:
        problems.append("'labels.score_unseen' = true needs a label table, and none is given")
        remedies = [Remedy("label_table", "name the labels", "…")]
    if failure is not None and not problems:
        raise failure
    if problems:
        found = [] if failure is None else [failure.message]
        raise ConfigError([*found, *problems], remedies=remedies)
    return checked


def resolve(
    checked: CheckedRecipe,
    *,
    n_labels: int,
    device_type: str,
    processes: int = 1,
    epochs: int = 0,
    members: int = 0,
    drop_encoder: bool = False,
) -> ResolvedRecipe:
    """Settle what depends on data and machine.

    Args:
        checked: The recipe.
        n_labels: Labels in the label space.
        device_type: `cuda` or `cpu`, where it will be trained.
        processes: Processes that share a batch.
        epochs: Passes over the texts that were planned; the draft's by default.
        members: Models that were planned; the draft's by default.
        drop_encoder: Whether the plan is to train the sparse expert alone.
    """
    labels = replace(checked.draft.labels, text=_label_text(checked, n_labels))
    recipe = replace(checked.draft, labels=labels)
    if drop_encoder:
        fast = load_recipe("fast")
        encoder = replace(recipe.encoder, name=fast.encoder.name)
        recipe = replace(recipe, experts=fast.experts, encoder=encoder)
    train = replace(
        recipe.train,
        epochs=epochs or recipe.train.epochs,
        members=members or recipe.train.members,
        budget="",
    )
    if train.label_precision == "auto":
        alone = device_type == "cuda" and processes * train.accumulation == 1
        rounded = alone and n_labels >= BF16_LABELS_FROM and not [*lean_label_problems(recipe)]
        train = replace(train, label_precision="bf16" if rounded else "fp32")
    mode = recipe.candidates.mode
    if mode == "auto":
        mode = "shortlist" if _shortlists(recipe, n_labels, device_type) else "full"
    candidates = replace(recipe.candidates, mode=mode)
    if mode == "clusters":
        candidates = replace(candidates, clusters=candidates.clusters_for(n_labels))
    return ResolvedRecipe(**{**vars(recipe), "train": train, "candidates": candidates})


def resolved_from_mapping(mapping: Mapping[str, Any], *, source: str) -> ResolvedRecipe:
    """Read a resolved recipe that was stored with a model or a run."""
    return ResolvedRecipe(**vars(recipe_from_mapping(mapping, source=source)))


def _label_text(checked: CheckedRecipe, n_labels: int) -> str:
    """Return the use of label text; `auto` leaves it out where label matrices must be small."""
    many = checked.written.labels.text == "auto" and n_labels >= BF16_LABELS_FROM
    return "off" if many else checked.draft.labels.text


def _fill_open(recipe: Recipe, *, has_label_names: bool) -> Recipe:
    """Return the recipe with a preset's value for everything it leaves open."""
    if recipe.labels.text == "auto":
        tied = replace(recipe, labels=replace(recipe.labels, text="tied"))
        usable = has_label_names and not [*label_text_problems(tied)]
        recipe = tied if usable else replace(recipe, labels=replace(recipe.labels, text="off"))
    usual, train, experts = load_recipe("balanced"), recipe.train, recipe.experts
    if experts == OPEN_EXPERTS:
        without = recipe.encoder.name == NO_ENCODER
        experts = load_recipe("fast").experts if without else usual.experts
    return replace(
        recipe,
        experts=experts,
        train=replace(train, epochs=train.epochs or usual.train.epochs, members=train.members or 1),
    )


def _shortlists(recipe: Recipe, n_labels: int, device_type: str) -> bool:
    """Whether `auto` means a shortlist: on a CPU, for many labels, where it can be had."""
    trained = set(recipe.experts) - {TEACHER, SPARSE_EXPERT}  # these cost nothing
    possible = recipe.loss.kind == "individual" and len(trained) > 1
    proposers = expert_kinds(recipe.experts) & {"D", "R"}
    return device_type == "cpu" and n_labels >= SHORTLIST_FROM and possible and bool(proposers)
