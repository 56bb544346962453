"""The model directory: written whole or not at all, read without executing anything.

glocal.toml         format and library version, calibration, combination of the experts, the recipe
labels.parquet      the label space
tokenizer.json      encoder/config.json
model.safetensors   all weights; of several members, members/0/model.safetensors and so on; a model
                    of words alone has neither these nor an encoder
graph/              in place of weights and encoder in an exported model: model.onnx and its data,
                    or OpenVINO's model.xml and model.bin
teacher/  sparse/   the texts a teacher looks similar ones up in, the sparse expert's weights
metrics.json        train_log.jsonl        README.md (a model card)
history.jsonl       changes made after training, one for each line
checksums.json      of every file that prediction reads, checked when a model is loaded
"""

from __future__ import annotations

import contextlib
import json
import shutil
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from glocal._version import __version__
from glocal.config import recipe_to_mapping, to_toml
from glocal.config.resolve import ResolvedRecipe, resolved_from_mapping
from glocal.data.atomic import replace_dir, temporary_dir, write_text
from glocal.errors import (
    ConfigError,
    MissingExtraError,
    ModelError,
    NewerFormatError,
    first_line,
    require_training_packages,
)
from glocal.ranking.calibration import Calibration
from glocal.ranking.decision import Decision
from glocal.ranking.graph_ranker import GraphFacts, GraphRanker
from glocal.storage.integrity import check_model, edit_model, update_checksums, writing_model
from glocal.storage.model_card import model_card
from glocal.vocabulary.label_space import LabelSpace

if TYPE_CHECKING:
    from glocal.companions.companion_list import Companions
    from glocal.encoders.tokenizer import TextTokenizer
    from glocal.ranking.document_ranker import DocumentRanker

FORMAT_VERSION, _EXPORTED_FORMAT = 3, 4  # of models with weights, and of exported ones
GRAPH = "graph"
HISTORY = "history.jsonl"
# Everything `_write` writes, except for the companions' folders.
_WRITTEN = (
    "glocal.toml",
    "labels.parquet",
    "tokenizer.json",
    "encoder",
    "model.safetensors",
    "members",
    GRAPH,
    "metrics.json",
    "README.md",
)


@dataclass
class StoredModel:
    """A system with everything needed to use it."""

    system: DocumentRanker
    recipe: ResolvedRecipe
    labels: LabelSpace
    tokenizer: TextTokenizer
    calibration: Calibration = field(default_factory=Calibration)  # of the combined scores
    decision: Decision = field(default_factory=Decision)  # which labels become tags
    metrics: Mapping[str, Any] = field(default_factory=dict)
    companions: Companions | None = None


def save_model(
    path: str | Path,
    model: StoredModel,
    *,
    log: Path | None = None,
) -> None:
    """Write a model directory; an existing one is replaced once the new one is complete.

    Args:
        path: The directory.
        model: The model to write.
        log: The training log to copy into the directory.
    """
    target = Path(path)
    with writing_model(target), temporary_dir(target) as folder:
        _write(folder, model)
        if log is not None and log.is_file():
            shutil.copyfile(log, folder / "train_log.jsonl")
        update_checksums(folder)
        replace_dir(folder, target)


def rewrite_model(
    path: str | Path,
    model: StoredModel,
    *,
    change: Mapping[str, Any] | None = None,
    out: str | Path | None = None,
) -> None:
    """Replace a stored model by a changed one, all at once, and keep its other files.

    Args:
        path: The model directory.
        model: The changed model.
        change: What was changed, for the model's history; None leaves that as it is.
        out: Where the changed model goes, with the other files; by default it replaces the old one.

    Raises:
        ModelError: Another process writes to the model, or it cannot be written; the old model
            stays.
    """
    # What is written again must not be written into the files of the old model.
    again = {*_WRITTEN, *(companion.folder for companion in model.companions or ())}
    with edit_model(path, out=out, without=again) as folder:
        _write(folder, model)
        if change is None:
            return
        line = json.dumps({"time": _now(), "version": __version__, **change}, ensure_ascii=False)
        write_text(folder / HISTORY, "".join([*_history_lines(Path(path)), f"{line}\n"]))


def store_decision(path: str | Path, decision: Decision) -> None:
    """Replace the decision of a stored model; nothing else in it changes.

    Raises:
        ModelError: It is not a model directory, another process writes to it, or it cannot be
            written.
    """
    settings = read_settings(Path(path))
    settings.pop("decision", None)
    with edit_model(path) as folder:
        stored = {**settings, "decision": decision.to_mapping()}
        write_text(folder / "glocal.toml", to_toml(stored))


def read_history(path: str | Path) -> list[dict[str, Any]]:
    """Return the changes made to a model after its training, oldest first."""
    with _damaged(Path(path)):
        return [json.loads(line) for line in _history_lines(Path(path))]


def _history_lines(folder: Path) -> list[str]:
    file = folder / HISTORY
    return file.read_text("utf-8").splitlines(keepends=True) if file.is_file() else []


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")


def load_model(path: str | Path) -> StoredModel:
    """Read a model directory onto the CPU, ready to predict.

    Raises:
        ModelError: When it is not a model directory, is damaged, or is of a newer format.
    """
    from glocal.companions.companion_list import Companions
    from glocal.encoders.word_tokenizer import load_tokenizer
    from glocal.ranking.combination import Combination

    folder = Path(path)
    settings = read_settings(folder)
    check_model(folder)
    with _damaged(folder):
        recipe = resolved_from_mapping(settings["recipe"], source=str(folder / "glocal.toml"))
    labels = read_labels(folder)
    if not recipe.reads_words_alone and GRAPH not in settings:
        require_training_packages("a model with an encoder that was not exported")
    with _damaged(folder):
        tokenizer = load_tokenizer(folder, settings["tokenizer"])
        companions = Companions.load(folder, recipe, labels)
        if GRAPH in settings:
            facts = GraphFacts.from_mapping(settings[GRAPH])
            system: DocumentRanker = open_graph(folder / GRAPH, facts, recipe, labels, tokenizer)
        else:
            system = _load_system(folder, recipe, labels, tokenizer, companions)
        system.combination = Combination.from_mapping(settings["combination"])
        calibration = _stored_calibration(settings)
        # Models before format 3 have no decision.
        old = settings["format_version"] < 3
        decision = Decision() if old else Decision.from_mapping(settings["decision"])
    return StoredModel(
        system, recipe, labels, tokenizer, calibration, decision, read_metrics(folder), companions
    )


def open_graph(
    folder: Path,
    facts: GraphFacts,
    recipe: ResolvedRecipe,
    labels: LabelSpace,
    tokenizer: TextTokenizer,
) -> GraphRanker:
    """Open the graph in a folder, to score a model's labels by it."""
    return GraphRanker(
        folder,
        facts,
        labels.counts,
        chunking=tokenizer.chunking(recipe.encoder),
        suggested=recipe.candidates.predict,
    )


def _load_system(
    folder: Path,
    recipe: ResolvedRecipe,
    labels: LabelSpace,
    tokenizer: TextTokenizer,
    companions: Companions,
) -> DocumentRanker:
    """Build the system of a model; only one with an encoder needs torch."""
    if recipe.reads_words_alone:
        from glocal.ranking.words_ranker import WordsRanker

        return WordsRanker(labels.counts)
    from glocal.storage.weights import load_weights
    from glocal.systems.system import LabelStatistics

    vectors = companions.label_vectors(blank=True)
    statistics = LabelStatistics(labels.counts, labels.n_documents, vectors, n_added=labels.n_added)
    return load_weights(folder, recipe, statistics, tokenizer)


def read_metrics(folder: Path) -> dict[str, Any]:
    """Read what training measured; older files keep the scores of all parts in one table."""
    with _damaged(folder):
        metrics: dict[str, Any] = json.loads((folder / "metrics.json").read_text("utf-8"))
        scores = {**metrics.get("dev", {}), **metrics.get("held_out", {})}
        if "combined" in scores:
            metrics["dev_experts"] = metrics["dev"]
            metrics["dev"] = metrics["dev_experts"].pop("combined")
    return metrics


def _stored_calibration(settings: Mapping[str, Any]) -> Calibration:
    """Read the calibration; older models have a temperature."""
    if "temperature" in settings:
        scale = 1.0 / float(settings["temperature"])
        return Calibration(scale, scale)
    return Calibration.from_mapping(settings["calibration"])


def read_labels(path: str | Path) -> LabelSpace:
    """Read the label space of a model directory, without loading the model.

    Raises:
        ModelError: The folder is not a model directory, is damaged, or has a newer format.
    """
    read_settings(Path(path))
    with _damaged(Path(path)):
        return LabelSpace.load(Path(path) / "labels.parquet")


def _write(folder: Path, model: StoredModel) -> None:
    graph = model.system if isinstance(model.system, GraphRanker) else None
    settings = {
        "format_version": FORMAT_VERSION if graph is None else _EXPORTED_FORMAT,
        "library_version": __version__,
        "created": _now(),
        "calibration": model.calibration.to_mapping(),
        "combination": model.system.combination.to_mapping(),
        "tokenizer": model.tokenizer.facts_mapping(),
        "recipe": recipe_to_mapping(model.recipe),
        **({} if graph is None else {GRAPH: graph.facts.to_mapping()}),
        # Comes last, so that a file that was cut off is noticed.
        "decision": model.decision.to_mapping(),
    }
    (folder / "glocal.toml").write_text(to_toml(settings), encoding="utf-8")
    model.labels.save(folder / "labels.parquet")
    model.tokenizer.save(folder / "tokenizer.json")
    if graph is not None:
        shutil.copytree(graph.folder, folder / GRAPH)
    elif not model.recipe.reads_words_alone:
        from glocal.storage.weights import save_weights

        save_weights(folder, model.system)
    if model.companions is not None:
        model.companions.save(folder)
    metrics = json.dumps(model.metrics, indent=2, default=str) + "\n"
    (folder / "metrics.json").write_text(metrics, encoding="utf-8")
    (folder / "README.md").write_text(model_card(model), encoding="utf-8")


def read_settings(folder: Path) -> dict[str, Any]:
    """Read the `glocal.toml` of a model directory.

    Raises:
        ModelError: The folder is not a model directory, is damaged, or has a newer format.
    """
    path = folder / "glocal.toml"
    if not folder.is_dir():
        raise ModelError(f"there is no model directory {folder}")
    if not path.is_file():
        raise ModelError(
            f"{folder} is not a model directory: it has no glocal.toml "
            "(a run under way keeps its state beside it, in a folder that ends in .run)"
        )
    with _damaged(folder):
        settings = tomllib.loads(path.read_text("utf-8"))
        version = int(settings["format_version"])
    if version > _EXPORTED_FORMAT:
        raise NewerFormatError(
            f"{folder} has model format {version}, written by glocal "
            f"{settings.get('library_version', '?')}; this is glocal {__version__}, which reads "
            f"up to format {_EXPORTED_FORMAT}; upgrade it: pip install -U glocal"
        )
    return settings


@contextlib.contextmanager
def _damaged(folder: Path) -> Iterator[None]:
    """Report whatever goes wrong while reading as a damaged directory, with the reason."""
    try:
        yield
    except (ModelError, ConfigError, MissingExtraError):
        raise
    except Exception as error:
        raise ModelError(
            f"the model directory {folder} is damaged or incomplete: {first_line(error)}"
        ) from error
