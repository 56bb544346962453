import json
from dataclasses import replace

import numpy as np
import pytest

from glocal.errors import ConfigError, DataError
from glocal.lab.benchmark.benchmark_documents import (
    compare_folders,
    load_document_scores,
    save_document_scores,
)
from glocal.lab.benchmark.benchmark_page import ResultsPage
from glocal.lab.benchmark.benchmark_rows import Contender, Row, recipe_contender
from glocal.metrics.documents import DocumentScores

MANIFEST = {
    "splits": {"train": {"texts": 100, "source": "a<b>.jsonl"}, "test": {"texts": 4, "source": "t"}}
}
MACRO = {
    band: {group: {"f1": 0.25} for group in ("all_labels", "with_gold")}
    for band in ("few", "many", "overall")
}
METRICS = ("P@1", "P@3", "P@5", "nDCG@3", "nDCG@5", "R@5", "RP@5", "PSP@1", "PSP@3", "PSP@5")


def row(out, name, quality, *, kind="baseline", seconds=10.0):
    contender = Contender(name, f"{name} <x>", kind, name, "library 1.0", {"C": 1}, {"C": 1})
    scores = dict.fromkeys(METRICS, quality)
    found = Row(
        contender,
        "0123456789abcdef",
        "done",
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
        machine={"threads": 1, "processor": "a chip", "gpu": None, "system": "an OS"},
        finished="2026-11-16",
    )  # fmt: skip
    values = np.array([0.0, 1.0, quality, quality])
    documents = {metric: DocumentScores.mean(values) for metric in METRICS[:7]}
    save_document_scores(out / "work" / found.stem, documents, measured_on="test")
    found.save(out / "rows" / f"{found.stem}.json")
    return found


@pytest.fixture
def page(tmp_path):
    rows = [
        row(tmp_path, "weak", 0.5),
        row(tmp_path, "strong", 0.8, kind="recipe", seconds=300.0),
        replace(row(tmp_path, "broken", 0.1), status="failed", error="it <broke>"),
    ]
    return ResultsPage(rows, MANIFEST, out=tmp_path, metric="nDCG@5")


def changed(found, *overrides):
    return replace(found, contender=replace(found.contender, overrides=list(overrides)))


def test_what_all_recipes_have_changed_is_said_once(tmp_path):
    recipes = [row(tmp_path, name, 0.5, kind="recipe") for name in ("one", "two")]
    alike = [changed(found, "train.epochs=4") for found in recipes]
    page = ResultsPage([*alike, row(tmp_path, "peer", 0.1)], MANIFEST, out=tmp_path, metric="P@1")
    assert [line[0] for line in page.grids()[0].rows] == ["one", "two", "peer <x>"]
    assert "All recipes with train.epochs=4." in page.notes()
    page = ResultsPage([alike[0], recipes[1]], MANIFEST, out=tmp_path, metric="P@1")
    assert [line[0] for line in page.grids()[0].rows] == ["one <x>", "two <x>"]
    assert not any("All recipes" in line for line in page.notes())


def test_the_best_row_comes_first_and_is_compared_with(page):
    assert [found.contender.name for found in page.rows] == ["strong", "weak"]
    quality = page.grids()[0]
    assert quality.rows[0][:2] == ("strong <x>", 0.8)
    against = page.comparison[page.rows[1].stem]
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
    assert [r["contender"]["name"] for r in found["rows"]] == ["strong", "weak", "broken"]
    assert list(found["against_best"]) == [page.rows[1].stem]


def test_rows_come_back_as_they_were_saved(tmp_path):
    found = row(tmp_path, "weak", 0.5)
    assert Row.load(tmp_path / "rows" / f"{found.stem}.json") == found
    (tmp_path / "bad.json").write_text("{}")
    with pytest.raises(DataError, match="remove it"):
        Row.load(tmp_path / "bad.json")


def test_a_page_without_rows_says_what_failed(tmp_path):
    failed = replace(row(tmp_path, "broken", 0.1), status="failed", error="no")
    page = ResultsPage([failed], MANIFEST, out=tmp_path, metric="P@5")
    assert page.grids() == []
    assert "broken" in page.html()


def test_rows_need_a_metric_of_documents(tmp_path):
    with pytest.raises(ConfigError, match="did you mean 'P@5'"):
        ResultsPage([], MANIFEST, out=tmp_path, metric="PP@5")


def test_rows_of_other_texts_are_not_compared(tmp_path):
    scores = {"P@1": DocumentScores.mean([0.0, 1.0])}
    save_document_scores(tmp_path / "a", scores, measured_on="these")
    save_document_scores(tmp_path / "b", scores, measured_on="those")
    assert load_document_scores(tmp_path / "a")[1] == "these"
    assert compare_folders(tmp_path / "a", tmp_path / "a")["P@1"].difference == 0
    with pytest.raises(DataError, match="different test texts"):
        compare_folders(tmp_path / "a", tmp_path / "b")
    with pytest.raises(DataError, match="no scores of each document"):
        load_document_scores(tmp_path / "c")


def test_a_recipe_is_titled_by_what_was_changed():
    assert recipe_contender("glocalxml").title == "glocalxml"
    changed = recipe_contender("glocalxml", ["train.epochs=4", "train.seed=1"])
    assert changed.title == "glocalxml (epochs=4, seed=1)"
    assert changed.seed == 1
    assert changed.key("data") != recipe_contender("glocalxml").key("data")
    long = recipe_contender("glocalxml", [f"train.rates.encoder={1e-4}", *changed.overrides])
    assert len(long.title) <= 40
    default = recipe_contender("glocalxml", ["train.epochs=9"])
    assert default.key("data") == recipe_contender("glocalxml").key("data")
