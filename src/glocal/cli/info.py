"""`glocal info`: what a model directory holds, without loading the model."""

from __future__ import annotations

from typing import TYPE_CHECKING

import typer

from glocal.cli import console, options
from glocal.cli.cache import format_bytes

if TYPE_CHECKING:
    from glocal.storage.model_info import ModelInfo

app = typer.Typer()

# Kinds of changes in a model's history, as they are shown.
_PAST = {"add": "added", "remove": "removed", "rename": "renamed", "merge": "merged"}


@app.command()
def info(model: options.Model) -> None:
    """Show the recipe, labels, size and scores of a model."""
    from glocal.storage.model_info import model_info

    found = model_info(model)
    if console.settings.as_json:
        console.print_json(found.to_dict())
        return
    rows = _facts(found)
    width = max(map(len, rows))
    console.stdout().print(found.path, style="bold")
    for name, value in rows.items():
        console.stdout().print(f"  {name:<{width}}  {value}", soft_wrap=True)
    console.note(f"The model card is {model / 'README.md'}; --json prints every setting.")


def _facts(found: ModelInfo) -> dict[str, str]:
    recipe, unseen = found.recipe, found.n_unseen_labels
    experts = recipe.get("experts", [])
    members = recipe.get("train", {}).get("members", 1)
    rows = {
        "recipe": recipe.get("description", ""),
        "system": recipe.get("system", "") + (f", {members} members" if members > 1 else ""),
        "encoder": recipe.get("encoder", {}).get("name", ""),
        "experts": " + ".join(experts),
        "labels": f"{found.n_labels:,}" + (f" ({unseen:,} without training texts)" * bool(unseen)),
        "changes": _changes(found),
        "exported to": " in ".join(str(found.graph.get(x, "")) for x in ("runtime", "precision"))
        * bool(found.graph),
        "training texts": f"{found.n_documents:,}",
        "size": format_bytes(found.n_bytes),
        "scores": _scores(found),
        "calibration": f"fitted {place}" if (place := _tuned_on(found)) else "",
        "default tags": _default_tags(found),
        "integrity": _integrity(found),
        "written": f"{found.created} by glocal {found.library_version}, "
        f"format {found.format_version}",
    }
    return {name: value for name, value in rows.items() if value}


def _changes(found: ModelInfo) -> str:
    """Return how many labels each kind of change was about, in the order they were made first."""
    counts: dict[str, int] = {}
    for entry in found.history:
        kind = str(entry["change"])
        counts[kind] = counts.get(kind, 0) + len(entry.get("labels", ()))
    return ", ".join(f"{_PAST.get(kind, kind)} {count:,}" for kind, count in counts.items())


def _scores(found: ModelInfo) -> str:
    from glocal.cli.training_progress import format_scores

    metrics = found.metrics
    scores = format_scores(metrics.get("dev") or metrics.get("held_out") or {})
    return f"{_tuned_on(found)}: {scores}" if scores else "none; it was trained without dev texts"


def _tuned_on(found: ModelInfo) -> str:
    """Return the texts that weights, calibration and decision were tuned on, in words."""
    if found.metrics.get("dev"):
        return "on dev"
    held_out = found.metrics.get("held_out_texts")
    return f"on {held_out:,} held-out training texts" if held_out else ""


def _integrity(found: ModelInfo) -> str:
    checked, changed = found.integrity.checked, found.integrity.changed
    if not checked:
        return "not known: no checksums are stored"
    if changed:
        return f"DAMAGED: {', '.join(changed)} changed since the model was saved, or is missing"
    return f"intact: all {len(checked)} checksums match"


def _default_tags(found: ModelInfo) -> str:
    if "threshold" not in found.decision:
        return "the best k; no threshold is stored"
    decision = found.decision
    own = len(decision.get("own", ()))
    parts = [
        f"probability of at least {decision['threshold']:.3f}",
        f"{own:,} labels with a threshold of their own" * bool(own),
        f"{decision.get('at_least', 0)} or more per text",
        _tuned_for(found),
    ]
    return ", ".join(part for part in parts if part)


def _tuned_for(found: ModelInfo) -> str:
    """Return what the threshold was tuned for and on which texts, in words."""
    decision = found.decision
    if "goal" in decision:
        return f"tuned for {decision['goal']} on {decision['n_texts']:,} texts"
    place = _tuned_on(found) if "micro_f1" in decision else ""
    return f"tuned {place}" if place else ""
