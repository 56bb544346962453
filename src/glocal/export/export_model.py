"""Export: a trained model becomes a model directory that runs without torch.

    model → ScoringGraph → ONNX → int8, if asked and good enough; or OpenVINO → model directory

The exported directory has the labels, tokenizer, companions, calibration, card, log and history of
the model, and a graph in place of its weights. It is written under a temporary name and renamed
when complete.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from glocal.companions.companion_list import Companions
from glocal.data.atomic import temporary_dir
from glocal.data.corpus import Corpus
from glocal.errors import ConfigError, ModelError, Remedy, no_such, require_training_packages
from glocal.export.int8_check import DevCheck
from glocal.progress import Progress
from glocal.ranking.graph_ranker import GraphFacts, GraphRanker
from glocal.ranking.graph_session import RUNTIMES, OnnxGraph, OpenvinoGraph
from glocal.storage.integrity import writing_model
from glocal.storage.model_directory import StoredModel, load_model, open_graph, rewrite_model

MOST_LOST = 0.002  # of P@k, that a graph in int8 may lose on dev


@dataclass(frozen=True)
class Exported:
    """A model that was exported.

    Attributes:
        path: The new model directory.
        runtime: `onnx` or `openvino`.
        int8: Share of the encoder's products that are computed in int8, in percent.
        in_fp32: The kinds of products that lost too much in int8.
        scores: P@k on dev in fp32 and as exported, where int8 was tried.
    """

    path: Path
    runtime: str
    int8: int = 0
    in_fp32: tuple[str, ...] = ()
    scores: dict[str, dict[str, float]] | None = None


def export_model(
    path: str | Path,
    out: str | Path,
    *,
    to: str = "onnx",
    int8: bool = False,
    dev: Corpus | None = None,
    overwrite: bool = False,
    report: Callable[[str], None] = lambda stage: None,
    progress: Progress | None = None,
) -> Exported:
    """Write a trained model as a graph that runs without torch.

    Args:
        path: The model directory.
        out: The directory to write; it is a model directory like any other.
        to: Runtime of the graph: `onnx` (ONNX Runtime) or `openvino`.
        int8: Compute the encoder in int8, in those layers where P@1, P@3 and P@5 on dev stay within
            0.2 points of fp32; only for `onnx`.
        dev: Labelled texts that int8 is checked on; the first 1,000 are used.
        overwrite: Replace an existing directory.
        report: Receives what is being done.
        progress: Called with the dev texts scored and the most that may have to be.

    Raises:
        ConfigError: The options do not go together.
        ModelError: The model cannot be exported, or cannot be read or written.

    Example:
        >>> from glocal import Predictor, export_model
        >>> exported = export_model("model/", "exported/")  # doctest: +SKIP
        >>> Predictor.load(exported.path).predict(["an apple"], k=1)[0][0].id  # doctest: +SKIP
        'fruit'
    """
    target = Path(out)
    _check(Path(path), target, to=to, int8=int8, dev=dev, overwrite=overwrite)
    model = load_model(path)
    from glocal.ranking.ranker import Ranker

    if not isinstance(model.system, Ranker):
        raise ModelError(f"{path} runs without torch as it is; there is nothing to export")
    with writing_model(target), temporary_dir(target) as graph, temporary_dir(target) as other:
        facts = _write_graph(model, graph, report, to)
        done = Exported(target, to)
        if to == OpenvinoGraph.runtime:
            from glocal.export.write_graph import write_openvino

            report("converting the graph")
            write_openvino(graph, other)
            graph, facts = other, replace(facts, runtime=to)
        elif int8:
            assert dev is not None, "checked before"
            traced = with_graph(model, graph, facts)
            done = _quantised(done, traced, dev, other, report=report, progress=progress)
            if done.int8:
                graph, facts = other, replace(facts, precision="int8")
        exported = with_graph(model, graph, facts)
        if done.scores is not None:
            exported.metrics = {**exported.metrics, "export": done.scores}
        report("writing the model directory")
        rewrite_model(path, exported, out=target)
    return done


def _write_graph(
    model: StoredModel, folder: Path, report: Callable[[str], None], runtime: str
) -> GraphFacts:
    """Write the graph in ONNX, for the runtime it will be for in the end."""
    from glocal.export.scoring_graph import ScoringGraph
    from glocal.export.write_graph import write_onnx
    from glocal.ranking.ranker import Ranker

    report("tracing the model")
    assert isinstance(model.system, Ranker), "checked before"
    scoring = ScoringGraph(model.system, runtime=runtime)
    companions = model.companions or Companions()
    write_onnx(scoring, companions.features_for_texts(["a", "b"]), folder)
    return scoring.facts()


def _check(
    path: Path, target: Path, *, to: str, int8: bool, dev: Corpus | None, overwrite: bool
) -> None:
    if to not in RUNTIMES:
        raise ConfigError(no_such("runtime", to, RUNTIMES))
    if int8 and to != OnnxGraph.runtime:
        raise ConfigError(f"int8 is for the runtime {OnnxGraph.runtime}, not for {to}")
    if int8 and dev is None:
        raise ConfigError(
            "int8 is kept only where scores on dev texts stay the same, so these are needed",
            remedies=[Remedy("dev", "give them", "…")],
        )
    if target.exists() and target.resolve() == path.resolve():
        raise ConfigError(f"{target} is the model itself; export it to another directory")
    if target.exists() and not overwrite:
        raise ConfigError(f"{target} exists already", remedies=[Remedy("overwrite", "replace it")])
    require_training_packages("exporting a model")


def with_graph(model: StoredModel, folder: Path, facts: GraphFacts) -> StoredModel:
    """Return a model whose labels are scored by a graph."""
    system = open_graph(folder, facts, model.recipe, model.labels, model.tokenizer)
    system.combination = model.system.combination
    return replace(model, system=system)


def _quantised(
    done: Exported,
    model: StoredModel,
    dev: Corpus,
    folder: Path,
    *,
    report: Callable[[str], None],
    progress: Progress | None,
) -> Exported:
    """Write the graph in int8 into a folder, as far as dev allows."""
    from glocal.export.quantise import ROUNDS, quantise

    assert isinstance(model.system, GraphRanker)
    facts = replace(model.system.facts, precision="int8")
    report("scoring dev in fp32")
    check = DevCheck(model, dev, most_lost=MOST_LOST, rounds=ROUNDS, progress=progress)

    def good_enough(graph: Path) -> bool:
        good = check.good_enough(with_graph(model, graph, facts))
        report(f"dev: {check.summary()}")
        return good

    rounded = quantise(
        model.system.folder,
        folder,
        harm=lambda graph: check.harm(with_graph(model, graph, facts)),
        good_enough=good_enough,
        report=report,
    )
    kept = tuple(group.kind for group in rounded.fp32)
    return replace(done, int8=rounded.share, in_fp32=kept, scores=check.scores(bool(rounded.int8)))
