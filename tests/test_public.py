import ast
import importlib
import inspect
import re
from pathlib import Path

import pytest

import glocal

ROOT = Path(__file__).parents[1]
REFERENCE = (ROOT / "docs" / "reference" / "python.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("name", glocal.__all__)
def test_public_name_is_importable_and_documented(name):
    value = getattr(glocal, name)
    assert f"`{name}" in REFERENCE
    if name != "__version__":
        assert inspect.getdoc(value)
        assert value.__name__ == name


def test_all_is_sorted_and_complete():
    tables = {name for names in glocal._MODULES.values() for name in names}
    assert set(glocal.__all__) == tables | {"__version__"}
    assert dir(glocal) == sorted(glocal.__all__)


def test_type_checkers_see_the_same_names():
    tree = ast.parse(Path(glocal.__file__).read_text(encoding="utf-8"))
    (block,) = (
        node
        for node in tree.body
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"
    )
    seen = {
        alias.name: node.module
        for node in block.body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
    assert seen == glocal._HOME


def test_every_name_lives_where_its_module_exports_it():
    for name, module in glocal._HOME.items():
        assert name in importlib.import_module(module).__all__


def test_unknown_name():
    with pytest.raises(AttributeError, match="no attribute 'Tager'"):
        glocal.Tager  # noqa: B018


def test_documented_example_runs(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    example = re.search(r"```python\n(.*?)```", REFERENCE, re.DOTALL)[1]
    tiny = example.replace('{"train.epochs": 3}', '{"encoder.name": "random:tiny"}')
    assert tiny != example
    exec(tiny, {})
    assert (tmp_path / "model" / "glocal.toml").exists()


def test_documented_signature_of_tagger():
    signature = str(inspect.signature(glocal.Tagger)).split(" -> ")[0]
    names = re.findall(r"(\w+): ", signature)
    documented = re.search(r"`Tagger\((.*?)\)`", REFERENCE)[1]
    assert re.findall(r"(\w+)=", documented) == names
