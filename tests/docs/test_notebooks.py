"""The notebooks of the documentation run from top to bottom, and are stored without output."""

import ast
import json
from pathlib import Path

import pytest

NOTEBOOKS = sorted((Path(__file__).parents[2] / "docs" / "notebooks").glob("*.ipynb"))


def code_cells(path):
    document = json.loads(path.read_text(encoding="utf-8"))
    return [cell for cell in document["cells"] if cell["cell_type"] == "code"]


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_notebook_runs(path, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("GLOCAL_CACHE", str(tmp_path / "cache"))
    names, shown = {}, []
    for cell in code_cells(path):
        tree = ast.parse("".join(cell["source"]))
        last = tree.body.pop() if isinstance(tree.body[-1], ast.Expr) else None
        exec(compile(tree, path.name, "exec"), names)
        if last is not None:
            shown.append(eval(compile(ast.Expression(last.value), path.name, "eval"), names))
    assert len(shown) >= 4  # a notebook shows what it does
    assert all(value is not None for value in shown)


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_notebook_is_stored_without_output(path):
    assert all(not cell["outputs"] and cell["execution_count"] is None for cell in code_cells(path))


def test_there_is_a_notebook_for_each_job():
    assert [path.stem for path in NOTEBOOKS] == ["legal_texts", "library_subjects", "product_tags"]
