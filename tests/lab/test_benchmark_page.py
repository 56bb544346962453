import json
from dataclasses import replace

import numpy as np
import pytest

from glocal.errors import ConfigError, DataError
from glocal.lab.benchmark_page import ResultsPage
from glocal.lab.experiment.document_scores import (
    compare_folders,
    load_document_scores,
    save_document_scores,
)
from glocal.lab.experiment.jobs import Conditions, JobState, Result
from glocal.lab.experiment.methods import Method, choose_methods
from glocal.metrics.documents import DocumentScores

DATA = {
    "hash": "0",
    "splits": {
        "train": {"texts": 100, "source": "a<b>.jsonl"},
        "test": {"texts": 4, "source": "t"},
    },
}
MACRO = {
    band: {group: {"f1": 0.25} for group in ("all_labels", "with_gold")}
    for band in ("few", "many", "overall")
}
METRICS = ("P@1", "P@3", "P@5", "nDCG@3", "nDCG@5", "R@5", "RP@5", "PSP@1", "PSP@3", "PSP@5")


def row(out, name, quality, *, kind="baseline", seconds=10.0, overrides=(), **changes):
    """Write a row of a results folder."""
    method = Method(
        name, f"{name} <x>", kind, name, "library 1.0", {"C": 1}, overrides=list(overrides)
    )
    scores = dict.fromkeys(METRICS, quality)
    found = Result(
        method,
        JobState.DONE,
        trained_on="settings",
        measured_on="texts",
        data=DATA,
        conditions=Conditions(threads=1, timed=True),
        cost={
            "train_seconds": seconds, "cpu_seconds": seconds, "peak_bytes": 2e8, "gpu_bytes": None,
            "model_bytes": 1e6, "latency_ms": seconds / 10, "latency_texts": 100,
            "docs_per_second": 50.0, "batch_texts": 2000,
        },
        report={
            "scores": {"combined": scores},
            "deduplicated": {"combined": scores},
            "documents": {"near_duplicates": 1},
            "macro": {"combined": {"5": MACRO}},
        },
        machine={"processor": "a chip", "gpu": None, "system": "an OS"},
        finished="2026-11-16",
    )  # fmt: skip
    values = np.array([0.0, 1.0, quality, quality])
    documents = {metric: DocumentScores.mean(values) for metric in METRICS[:7]}
    folder = out / "runs" / f"{name}-0123"
    save_document_scores(folder, documents, measured_on="test")
    replace(found, **changes).save(folder)


@pytest.fixture
def page(tmp_path):
    row(tmp_path, "weak", 0.5)
    row(tmp_path, "strong", 0.8, kind="recipe", seconds=300.0)
    row(tmp_path, "broken", 0.1, status=JobState.FAILED, error="it <broke>")
    row(tmp_path, "running", 0.1, status=JobState.STARTED)
    return ResultsPage(tmp_path, metric="nDCG@5")


def first_cells(page):
    return [line[0] for line in page.tables()[0].rows]


def test_changes_of_all_recipes_are_named_once(tmp_path):
    for name in ("one", "two"):
        row(tmp_path, name, 0.5, kind="recipe", overrides=["train.epochs=4"])
    row(tmp_path, "peer", 0.1)
    page = ResultsPage(tmp_path, metric="P@1")
    assert first_cells(page) == ["one", "two", "peer <x>"]
    assert "All recipes with train.epochs=4." in page.notes()
    row(tmp_path, "two", 0.5, kind="recipe")
    page = ResultsPage(tmp_path, metric="P@1")
    assert first_cells(page) == ["one <x>", "two <x>", "peer <x>"]
    assert not any("All recipes" in line for line in page.notes())


def test_rows_of_two_versions_are_told_apart(tmp_path):
    row(tmp_path, "old", 0.5)
    row(tmp_path, "new", 0.6)
    for name, library in {"old": "lib 1", "new": "lib 2"}.items():
        found = Result.load(tmp_path / "runs" / f"{name}-0123")
        method = replace(found.method, title="same", library=library)
        replace(found, method=method).save(tmp_path / "runs" / f"{name}-0123")
    assert first_cells(ResultsPage(tmp_path, metric="P@1")) == ["same (lib 2)", "same (lib 1)"]


def test_the_best_row_comes_first_and_is_compared_with(page):
    assert [found.name for found in page.rows] == ["strong", "weak"]
    quality = page.tables()[0]
    assert quality.rows[0][:2] == ("strong <x>", 0.8)
    against = page.comparison["weak-0123"]
    assert against.difference == pytest.approx((0.5 - 0.8) / 2)


def test_markdown_has_every_table_and_the_failure(page):
    text = page.markdown()
    for words in ("Quality", "Cost", "nDCG@5 against strong", "Without near-duplicates", "Settings",
                  "over labels with gold", "broken <x> failed: it <broke>.", "C=1"):  # fmt: skip
        assert words in text


def test_the_html_file_needs_nothing_beside_it(page):
    text = page.html()
    assert text.count('<svg class="plot"') == 2
    assert "prefers-color-scheme: dark" in text
    assert "http" not in text
    assert "<!-- " not in text  # every part of the template is filled
    assert "a&lt;b&gt;.jsonl" in text
    assert "strong &lt;x&gt;" in text
    assert "<x>" not in text
    assert '<td class="best">80.0</td>' in text


def test_the_json_file_has_all_rows(page, tmp_path):
    page.write()
    found = json.loads((tmp_path / "results.json").read_text())
    assert [r["name"] for r in found["rows"]] == ["strong", "weak", "broken"]
    assert list(found["against_best"]) == ["weak-0123"]


def test_a_folder_without_rows_is_not_a_page(tmp_path):
    with pytest.raises(DataError, match="not the results of a benchmark"):
        ResultsPage(tmp_path, metric="P@5")


def test_a_page_without_rows_says_what_failed(tmp_path):
    row(tmp_path, "broken", 0.1, status=JobState.FAILED, error="no")
    page = ResultsPage(tmp_path, metric="P@5")
    assert page.tables() == []
    assert "broken" in page.html()


def test_rows_need_a_metric_of_documents(tmp_path):
    with pytest.raises(ConfigError, match="did you mean 'P@5'"):
        ResultsPage(tmp_path, metric="PP@5")


def test_rows_of_other_texts_are_not_compared(tmp_path):
    scores = {"P@1": DocumentScores.mean([0.0, 1.0])}
    save_document_scores(tmp_path / "a", scores, measured_on="these")
    save_document_scores(tmp_path / "b", scores, measured_on="those")
    a, b = tmp_path / "a", tmp_path / "b"
    assert compare_folders(a, a, measured_on="these")["P@1"].difference == 0
    with pytest.raises(DataError, match=r"b/documents\.parquet: measured on different test texts"):
        compare_folders(a, b, measured_on="these")
    with pytest.raises(DataError, match="no scores of each text"):
        load_document_scores(tmp_path / "c")


def recipe(*overrides):
    (method,) = choose_methods(["glocalxml"], [], overrides=overrides)
    return method


def test_the_title_of_a_recipe_shows_its_changes():
    assert recipe().title == "glocalxml"
    changed = recipe("train.epochs=4", "train.seed=1")
    assert changed.title == "glocalxml (epochs=4, seed=1)"
    assert changed.seed == 1
    assert changed.identity != recipe().identity
    assert len(recipe(f"train.rates.encoder={1e-4}", *changed.overrides).title) <= 40
