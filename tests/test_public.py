import ast
import importlib
import inspect
import re
from pathlib import Path

import pytest

import glocal

ROOT = Path(__file__).parents[1]
REEXPORTING = {"glocal.config", "glocal.tagger"}
REFERENCE = (ROOT / "docs" / "reference" / "python.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("name", glocal.__all__)
def test_public_name_is_importable_and_documented(name):
    value = getattr(glocal, name)
    assert f"`{name}" in REFERENCE
    if name != "__version__":
        assert inspect.getdoc(value)
        assert value.__name__ == name


def test_all_is_sorted_and_complete():
    assert set(glocal.__all__) == set(glocal._HOME) | {"__version__"}
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


def test_every_name_comes_from_the_module_that_defines_it():
    for name, module in glocal._HOME.items():
        found = getattr(importlib.import_module(module), name)
        assert found.__module__ == module or module in REEXPORTING


SOURCES = Path(glocal.__file__).parent
CLASSES = {
    node.name
    for path in SOURCES.rglob("*.py")
    for node in ast.parse(path.read_text(encoding="utf-8")).body
    if isinstance(node, ast.ClassDef)
}
SPECIAL = {"__init__", "__call__", "__getitem__", "__iter__"}


def signatures(name):
    """Annotations of a public function, or of a class's fields, methods and properties."""
    value = getattr(glocal, name)
    if inspect.isfunction(value):
        yield from value.__annotations__.items()
    elif inspect.isclass(value):
        for parent in value.__mro__:
            if parent.__module__.startswith("glocal"):
                yield from vars(parent).get("__annotations__", {}).items()
                for member, found in vars(parent).items():
                    found = getattr(found, "__func__", None) or getattr(found, "fget", found)
                    if inspect.isfunction(found) and (member in SPECIAL or member[0] != "_"):
                        yield from found.__annotations__.items()


@pytest.mark.parametrize("name", [name for name in glocal.__all__ if name != "__version__"])
def test_every_type_of_the_interface_is_public(name):
    # A recipe's sections are documented with the settings; predictors are made by their `load`.
    used = {
        node.id
        for where, annotation in signatures(name)
        if not (name == "Predictor" and where == "model")
        for node in ast.walk(ast.parse(str(annotation)))
        if isinstance(node, ast.Name) and not node.id.endswith("Config")
    }
    assert used & CLASSES <= set(glocal.__all__)


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
