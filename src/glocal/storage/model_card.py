"""The model card: `card.md.txt` filled in with the facts of a model."""

from __future__ import annotations

from importlib import resources
from string import Template
from typing import TYPE_CHECKING

from glocal._version import __version__
from glocal.config.settings import NO_ENCODER
from glocal.ranking.graph_ranker import GraphRanker

if TYPE_CHECKING:
    from glocal.config.resolve import ResolvedRecipe
    from glocal.ranking.document_ranker import DocumentRanker
    from glocal.storage.model_directory import StoredModel


_HUB_FIELDS = (
    "library_name: glocal",
    "pipeline_tag: text-classification",
    "tags: [multi-label, extreme-classification]",
)


def model_card(model: StoredModel) -> str:
    """Return the card of a model; blocks of the template that have nothing to say are skipped."""
    recipe, labels = model.recipe, model.labels
    scores = model.metrics.get("dev", model.metrics.get("held_out", {}))
    values = {
        "system": recipe.system,
        "encoder": recipe.encoder.name,
        "n_labels": f"{len(labels):,}",
        "version": __version__,
        "n_texts": f"{labels.n_documents:,}",
        "experts": ", ".join(recipe.experts),
        "training": _training(recipe),
        "runtime": _runtime(model.system),
        "plan": "\n".join(f"- {line}" for line in model.metrics.get("plan", {}).get("lines", [])),
        "tuned_on": "dev" if "dev" in model.metrics else "held-out training texts",
        "calibrated": "on dev"
        if "dev" in model.metrics
        else "on held-out training texts" * bool(scores),
        "decision": f"a probability of at least {model.decision.threshold:.3f}, and "
        f"{model.decision.at_least} or more for each text",
        "scores": "\n".join(f"| {name} | {value:.4f} |" for name, value in scores.items()),
    }
    template = resources.files("glocal.storage").joinpath("card.md.txt").read_text("utf-8")
    blocks = [Template(block) for block in template.split("\n\n")]
    filled = [b for b in blocks if all(values[name] for name in b.get_identifiers())]
    return "\n\n".join(block.substitute(values) for block in filled)


def with_hub_fields(card: str, licence: str | None) -> str:
    """Return a card with the fields of the Hugging Face hub on top, in place of any it has.

    Args:
        card: The text of the card.
        licence: Identifier of the licence; by default the one the card has.
    """
    head, text = "", card
    if card.startswith("---\n") and "\n---\n" in card:
        head, _, text = card[4:].partition("\n---\n")
    stated = [line for line in head.splitlines() if line.startswith("license: ")]
    if licence is not None:
        stated = [f"license: {licence}"]
        text = text.replace("Licence: not stated.", f"Licence: {licence}.")
    return "\n".join(["---", *_HUB_FIELDS, *stated, "---", text.lstrip("\n")])


def _runtime(system: DocumentRanker) -> str:
    if not isinstance(system, GraphRanker):
        return ""
    extra = {"onnx": "runtime"}.get(system.facts.runtime, system.facts.runtime)
    return (
        f"Exported to {system.facts.runtime} in {system.facts.precision}; it runs on a CPU without "
        f"torch: `pip install 'glocal[{extra}]'`."
    )


def _training(recipe: ResolvedRecipe) -> str:
    train = recipe.train
    if recipe.encoder.name == NO_ENCODER:
        return f"- seed {train.seed}"
    seeds, each = f"seed {train.seed}", ""
    if train.members > 1:
        seeds = f"{train.members} members, seeds {train.seed} to {train.seed + train.members - 1}"
        each = " each"
    return (
        f"- reads the first {recipe.encoder.tokens_read} tokens of a text\n"
        f"- {seeds}, {train.epochs} epochs{each} of batches of {train.batch_size}"
    )
