"""Exported models: the same predictions as torch, without torch, in a directory like any other."""

import importlib
import json
import shutil
import signal
import subprocess
import sys
import time

import numpy as np
import pytest

from glocal import Predictor, Tagger, export_model, fit, load_recipe, rename_labels
from glocal.data.corpus import Corpus
from glocal.data.writers import write_corpus
from glocal.errors import ConfigError, MissingExtraError, ModelError
from glocal.export import export_model as exporting
from glocal.export.int8_check import DevCheck
from glocal.export.quantise import ROUNDS
from glocal.ranking.graph_ranker import GraphRanker
from glocal.storage.integrity import model_integrity
from glocal.storage.model_directory import load_model, read_history
from tests.tiny import tiny_corpus, tiny_recipe
from tests.without import glocal_without, run_without

SHORTLIST = ["candidates.mode=shortlist", "candidates.hard=4", "candidates.predict=5"]
LONG = ["encoder.max_length=8", "encoder.document_length=24", "encoder.overlap=2"]
CLUSTERS = [
    "candidates.mode=clusters",
    "candidates.cluster_size=2",
    "candidates.clusters_by=all",
    "candidates.levels=2",
    "candidates.branching=2",
    "candidates.picked=3",
]

# Together these have every kind of expert, every way of scoring labels, and several members.
CASES = {
    "glocalxml": ("glocalxml", 'experts=["D-last", "A-1", "T", "S"]', "labels.text=tied"),
    "me-xml": ("me-xml", *LONG),
    "aplc-xlnet": ("aplc",),
    "treaderxml": ("treaderxml",),
    "lightxml": ("lightxml", "candidates.cluster_size=4", "candidates.picked=2"),
    "levels": ("glocalxml", *CLUSTERS),
    "balanced": ("balanced", *SHORTLIST),
    "best": ("best", "train.members=2", "document.reads=chunks", *LONG),
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("GLOCAL_CACHE", str(tmp_path_factory.mktemp("cache")))
        yield tmp_path_factory.mktemp("export")


@pytest.fixture(scope="module")
def models(folder):
    """Trained models and their exports to ONNX, by the name of a case, made when asked for."""
    made = {}

    def make(case):
        if case not in made:
            name, *overrides = CASES[case]
            recipe = tiny_recipe(name, "train.epochs=1", *overrides)
            model = fit(recipe, tiny_corpus(60), dev=tiny_corpus(30, 1), out=folder / case).path
            made[case] = model, export_model(model, folder / f"{case}-onnx").path
        return made[case]

    return make


@pytest.fixture(scope="module")
def plain(models, folder):
    """The graph of `balanced` as it is traced for OpenVINO, in ONNX, made when asked for."""
    graph, trace = folder / "plain", exporting._write_graph

    def make():
        if not graph.exists():
            graph.mkdir()
            trace(load_model(models("balanced")[0]), graph, print, "openvino")
        return graph

    return make


@pytest.fixture
def traced(models, plain, monkeypatch):
    """Exports of `balanced` use graphs that were traced already."""
    facts = Predictor.load(models("balanced")[1]).system.facts

    def copy(model, folder, report, runtime):
        source = models("balanced")[1] / "graph" if runtime == "onnx" else plain()
        for file in source.iterdir():
            shutil.copy(file, folder)
        return facts

    monkeypatch.setattr(exporting, "_write_graph", copy)


def assert_same_predictions(found, expected):
    """The same labels up to ties closer than 1e-4, and scores to 1e-3."""
    np.testing.assert_allclose(found.scores, expected.scores, atol=1e-3)
    for ours, theirs, scores in zip(found.indices, expected.indices, expected.scores, strict=True):
        for place in np.flatnonzero(ours != theirs):
            (other,) = np.flatnonzero(theirs == ours[place])[:1] or [None]
            last = scores[-1] if other is None else scores[other]
            assert abs(scores[place] - last) < 1e-4


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES)
def test_predictions_are_those_of_torch(case, models):
    model, exported = (Predictor.load(path, device="cpu") for path in models(case))
    assert isinstance(exported.system, GraphRanker)
    texts = [*tiny_corpus(20, 2).texts(), "", "zzz", " ".join(["the red cat"] * 30)]
    rng = np.random.default_rng(0)
    n_labels = len(model.labels)
    candidates = np.stack([rng.permutation(n_labels)[:4] for _ in texts])
    candidates[0, 1:] = -1
    for options in (
        {"k": 10},
        {"k": n_labels},
        {"k": 10, "batch_size": 1, "calibrated": False},
        {"k": 3, "per_expert": True, "plain_mean": True},
        {"k": 3, "exclude": [model.labels.ids[0]]},
        {"k": 3, "only": list(model.labels.ids[2:4])},
        {"k": 4, "candidates": candidates},
    ):
        found, expected = (p.predict(texts, **options) for p in (exported, model))
        assert_same_predictions(found, expected)
        for name, part in expected.experts.items():
            assert_same_predictions(found.experts[name], part)
        if expected.mean is not None:
            assert_same_predictions(found.mean, expected.mean)


@pytest.mark.slow
def test_openvino_agrees_too(models, folder, traced):
    model, _ = models("balanced")
    exported = export_model(model, folder / "openvino", to="openvino").path
    texts = tiny_corpus(20, 2).texts()
    found, expected = (
        Predictor.load(p, device="cpu").predict(texts, k=10) for p in (exported, model)
    )
    assert_same_predictions(found, expected)


# --- the directory is a model directory like any other ------------------------------------------


def test_everything_works_without_torch(models, folder):
    model, exported = models("balanced")
    write_corpus(tiny_corpus(20, 2), folder / "texts.jsonl")
    options = {"absent": ("torch", "transformers", "accelerate", "onnx", "onnxscript")}
    rows = glocal_without("predict", exported, folder / "texts.jsonl", "-k", 5, **options).stdout
    found = [[tag["id"] for tag in json.loads(row)["labels"]] for row in rows.splitlines()]
    expected = Predictor.load(model, device="cpu").predict(tiny_corpus(20, 2).texts(), k=5)
    assert found == [[tag.id for tag in tags] for tags in expected]
    scores = glocal_without("eval", exported, folder / "texts.jsonl", "--json", **options).stdout
    assert "P@1" in scores
    reasons = json.loads(
        glocal_without("explain", exported, "the red cat", "-k", 2, "--json", **options).stdout
    )
    assert {part["name"] for part in reasons["tags"][0]["experts"]} == {"D-last", "A-last", "S"}
    code = """
from glocal import Tagger
print(len(Tagger.load(sys.argv[1]).predict("the red cat", k=2)))
"""
    assert run_without(code, exported, **options).stdout == "2\n"


def test_evidence_is_what_the_log_odds_lose_without_a_word(models):
    model, exported = (Predictor.load(path, device="cpu") for path in models("balanced"))
    text = "the red cat"
    reading, label = exported._read(text), 3
    logits = reading.logits([label, 5])
    reference = {t: model._read(t).logits([label, 5]) for t in (text, "the  cat")}
    for name in ("D-last", "A-last"):
        evidence = reading.evidence(name, logits[name][0, 0], label)
        lost = reference[text][name][0, 0] - reference["the  cat"][name][0, 0]
        assert evidence[1] == pytest.approx(float(lost.detach()), abs=1e-4)


def test_a_missing_runtime_is_named(models):
    code = """
from glocal import Predictor
try:
    Predictor.load(sys.argv[1])
except ImportError as error:
    print(error)
"""
    said = run_without(code, models("balanced")[1], absent=("torch", "onnxruntime")).stdout
    assert said.endswith("run: pip install 'glocal[runtime]'\n")


def test_labels_of_an_exported_model_stay(models):
    with pytest.raises(ModelError, match="exported model, whose labels cannot be changed"):
        rename_labels(models("balanced")[1], {"cat": "tom"})


def test_changes_after_training_are_listed_in_the_exported_model_too(models, tmp_path, traced):
    changed = shutil.copytree(models("balanced")[0], tmp_path / "changed")
    rename_labels(changed, {"cat": "tom"})
    exported = export_model(changed, tmp_path / "out").path
    assert read_history(exported) == read_history(changed) != []


@pytest.mark.parametrize("checksums", [True, False], ids=["checksums", "no checksums"])
@pytest.mark.parametrize("file", ["graph/model.onnx", "graph/model.onnx.data", "tokenizer.json"])
def test_damaged_files_are_met_like_any_other_models(models, tmp_path, file, checksums):
    damaged = shutil.copytree(models("balanced")[1], tmp_path / "m")
    content = (damaged / file).read_bytes()
    (damaged / file).write_bytes(content[: len(content) // 2])
    if not checksums:
        (damaged / "checksums.json").unlink()
    with pytest.raises(ModelError) as caught:
        Predictor.load(damaged)
    assert len(str(caught.value).splitlines()) == 1


def test_a_graph_that_reads_other_inputs_is_refused(models, tmp_path):
    other = shutil.copytree(models("balanced")[1], tmp_path / "m")
    settings = (other / "glocal.toml").read_text("utf-8")
    (other / "glocal.toml").write_text(settings.replace("proposed = 5", "proposed = 0"), "utf-8")
    (other / "checksums.json").unlink()
    with pytest.raises(ModelError, match="export the model again"):
        Predictor.load(other).predict(["the red cat"])


@pytest.mark.parametrize("failure", [RuntimeError("indices out of bounds\nmore"), ValueError()])
def test_a_graph_that_fails_is_one_clear_error(models, monkeypatch, failure):
    exported = Predictor.load(models("balanced")[1])

    def fails(inputs):
        raise failure

    monkeypatch.setattr(exported.system.graph, "run", fails)
    with pytest.raises(ModelError, match="it is damaged: copy the model directory again") as caught:
        exported.predict(["the red cat"])
    assert len(str(caught.value).splitlines()) == 1


def test_label_parameters_are_read_from_the_mapped_file(models):
    """ONNX Runtime copies a constant on the right of a product, so labels must be on the left."""
    import onnx

    exported = models("balanced")[1]
    n_labels = len(Predictor.load(exported).labels)
    graph = onnx.load(exported / "graph" / "model.onnx", load_external_data=False).graph
    labels = {t.name for t in graph.initializer if len(t.dims) == 2 and n_labels in t.dims}
    products = [node.input for node in graph.node if node.op_type == "MatMul"]
    assert any(left in labels for left, _ in products)
    assert not any(right in labels for _, right in products)


# --- int8 ---------------------------------------------------------------------------------------


def test_int8_is_kept_where_dev_allows(models, folder, traced):
    model, _ = models("balanced")
    done = export_model(model, folder / "int8", int8=True, dev=tiny_corpus(30, 1))
    assert done.int8 == 100
    assert set(done.scores) == {"fp32", "int8"}
    texts = tiny_corpus(20, 2).texts()
    found, expected = (
        Predictor.load(p, device="cpu").predict(texts, k=3) for p in (done.path, model)
    )
    assert not np.array_equal(found.scores, expected.scores)
    np.testing.assert_allclose(found.scores, expected.scores, atol=0.1)
    stored = (done.path / "glocal.toml").read_text("utf-8")
    assert 'precision = "int8"' in stored


@pytest.mark.parametrize("bearable", [0, 7])
def test_layers_that_lose_too_much_stay_in_fp32(models, folder, traced, monkeypatch, bearable):
    """Scores fall as soon as more products than this are in int8."""
    import onnx

    def products(graph):
        nodes = onnx.load(graph / "model.onnx", load_external_data=False).graph.node
        return sum(node.op_type == "MatMulInteger" for node in nodes)

    judged = []

    def good_enough(self, model):
        judged.append(products(model.system.folder))
        return judged[-1] <= bearable

    monkeypatch.setattr(DevCheck, "good_enough", good_enough)
    done = export_model(
        models("balanced")[0], folder / f"bears-{bearable}", int8=True, dev=tiny_corpus(30, 1)
    )
    rounded = products(done.path / "graph")
    assert 2 <= len(judged) <= ROUNDS
    assert done.in_fp32
    assert rounded <= bearable
    assert (rounded > 0) == (bearable > 0) == (0 < done.int8 < 100)
    precision = "int8" if bearable else "fp32"
    assert f'precision = "{precision}"' in (done.path / "glocal.toml").read_text("utf-8")


# --- what cannot be done is said before anything is written -------------------------------------


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"to": "tflite"}, "there is no runtime 'tflite'"),
        ({"int8": True}, "so these are needed; pass dev=…"),
        ({"int8": True, "to": "openvino"}, "int8 is for the runtime onnx"),
    ],
)
def test_options_that_do_not_go_together(models, tmp_path, options, message):
    with pytest.raises(ConfigError, match=message):
        export_model(models("balanced")[0], tmp_path / "out", **options)
    assert not (tmp_path / "out").exists()


def test_an_existing_directory_is_kept(models, tmp_path):
    model, exported = models("balanced")
    (tmp_path / "out").mkdir()
    with pytest.raises(ConfigError, match="exists already; pass overwrite=True to replace it"):
        export_model(model, tmp_path / "out")
    with pytest.raises(ConfigError, match="is the model itself"):
        export_model(model, model, overwrite=True)
    with pytest.raises(ModelError, match="nothing to export"):
        export_model(exported, tmp_path / "twice")


def test_a_model_of_words_needs_no_export(tmp_path):
    model = fit(load_recipe("fast"), tiny_corpus(40), out=tmp_path / "m").path
    with pytest.raises(ModelError, match="runs without torch as it is; there is nothing to export"):
        export_model(model, tmp_path / "out")


def test_a_system_that_cannot_be_traced_says_so_in_one_line(models, tmp_path, monkeypatch):
    from glocal.export.scoring_graph import ScoringGraph

    def depends_on_data(self, inputs):
        return (inputs["input_ids"] if inputs["input_ids"].max() > 5 else inputs["candidates"],)

    monkeypatch.setattr(ScoringGraph, "forward", depends_on_data)
    with pytest.raises(ModelError, match="this model cannot be exported: ") as caught:
        export_model(models("balanced")[0], tmp_path / "out")
    assert len(str(caught.value).splitlines()) == 1
    assert list(tmp_path.iterdir()) == []


def test_a_full_disk_leaves_nothing_behind(models, tmp_path, traced, monkeypatch):
    def full(*_, **_options):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(shutil, "copytree", full)
    with pytest.raises(ModelError, match="No space left on device; nothing there was changed"):
        export_model(models("balanced")[0], tmp_path / "out")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("written_by", "options"),
    [
        ("write_graph.write_openvino", {"to": "openvino"}),
        ("quantise._write", {"int8": True, "dev": tiny_corpus(30, 1)}),
        pytest.param("write_graph.write_onnx", {}, marks=pytest.mark.slow),
    ],
)
@pytest.mark.parametrize("limit", [300, 30_000])
def test_a_graph_that_the_system_cuts_short_is_one_clear_error(
    models, tmp_path, monkeypatch, request, written_by, options, limit
):
    # Every file may grow to so many bytes only: what a full disk does, whoever writes.
    resource = pytest.importorskip("resource")
    model, _ = models("balanced")
    if options:
        request.getfixturevalue("traced")
    module, _, name = f"glocal.export.{written_by}".rpartition(".")
    write = getattr(importlib.import_module(module), name)

    def limited(*args, **kwargs):
        old = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, old[1]))
        try:
            return write(*args, **kwargs)
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, old)

    monkeypatch.setattr(f"{module}.{name}", limited)
    with pytest.raises(ModelError, match="nothing there was changed") as caught:
        export_model(model, tmp_path / "out", **options)
    assert len(str(caught.value).splitlines()) == 1
    assert list(tmp_path.iterdir()) == []


@pytest.mark.skipif(sys.platform == "win32", reason="Windows ends processes in one way only")
@pytest.mark.parametrize("name", ["SIGKILL", "SIGTERM"])
def test_a_kill_leaves_no_half_written_directory(models, tmp_path, name):
    command = [
        sys.executable,
        "-m",
        "glocal",
        "export",
        models("balanced")[0],
        "-o",
        tmp_path / "m",
    ]
    process = subprocess.Popen([*map(str, command)], stderr=subprocess.DEVNULL)
    started = time.monotonic()
    while not list(tmp_path.glob(".m.*")) and time.monotonic() - started < 60:
        time.sleep(0.05)
    time.sleep(0.5)
    kill = getattr(signal, name)
    process.send_signal(kill)
    process.wait()
    assert not (tmp_path / "m").exists()
    if name == "SIGTERM":
        assert process.returncode == 128 + kill
        assert list(tmp_path.iterdir()) == []


def test_log_history_and_tagger_go_along(models, tmp_path, traced):
    copy = Tagger.load(models("balanced")[0], device="cpu").set_params(k=2).save(tmp_path / "copy")
    rename_labels(copy, {"fox": "vixen"})
    out = export_model(copy, tmp_path / "out").path
    assert [entry["change"] for entry in read_history(out)] == ["rename"]
    for name in ("history.jsonl", "train_log.jsonl", "tagger.json"):
        assert (out / name).read_bytes() == (copy / name).read_bytes()
    assert not (out / "model.safetensors").exists()
    assert Tagger.load(out).k == 2
    assert not model_integrity(out).changed


def test_texts_in_other_lengths_and_numbers_than_traced(models):
    """A graph with a fixed axis would fail here, or repeat the first text."""
    exported = Predictor.load(models("balanced")[1], device="cpu")
    texts = [" ".join(["the red cat"] * n) for n in range(1, 8)]
    together = exported.predict(texts, k=5, batch_size=7)
    for number, text in enumerate(texts):
        alone = exported.predict([text], k=5)
        np.testing.assert_allclose(alone.scores[0], together.scores[number], atol=1e-5)
    assert len(exported.predict(Corpus.from_texts([]), k=5)) == 0


def test_parts_of_a_batch_side_by_side_change_nothing(models, monkeypatch):
    exported = Predictor.load(models("balanced")[1])
    texts = tiny_corpus(20, 2).texts()
    monkeypatch.setattr("glocal.ranking.graph_ranker.n_threads", lambda _: 1)
    alone = exported.predict(texts, k=5)
    monkeypatch.setattr("glocal.ranking.graph_ranker.n_threads", lambda _: 3)
    beside = exported.predict(texts, k=5)
    assert exported.system._worker is not None
    np.testing.assert_array_equal(beside.indices, alone.indices)
    np.testing.assert_allclose(beside.scores, alone.scores, atol=1e-5)


def test_export_names_its_extra(models, tmp_path):
    code = """
from glocal import export_model
try:
    export_model(sys.argv[1], sys.argv[2])
except ImportError as error:
    print(error)
"""
    out = tmp_path / "out"
    said = run_without(code, models("balanced")[0], out, absent=("onnxscript",)).stdout
    assert said.endswith("run: pip install 'glocal[export]'\n")
    assert issubclass(MissingExtraError, ImportError)
