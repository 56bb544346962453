"""Mutation testing: change the code in one place at a time and see whether a test notices.

    python benchmarks/mutants.py losses heads                      # every mutant of these packages
    python benchmarks/mutants.py metrics --sample 300 --seed 0     # 300 of them, chosen at random

Each mutant runs in a forked child of a process that has already imported the heavy libraries, so
one costs little more than its tests. A mutant survives if all tests of `TESTS` pass. Docstrings,
annotations, imports, assertions and the text of errors are not mutated.
"""

from __future__ import annotations

import argparse
import ast
import copy
import importlib.abc
import importlib.util
import json
import os
import random
import signal
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src" / "glocal"

# The tests that must notice a mutant of a package, those that usually do first.
TESTS = {
    "losses": [
        "tests/losses",
        "tests/train/test_row_updates.py",
        "tests/systems/test_me_xml.py",
        "tests/systems/test_mixture.py",
    ],
    "heads": ["tests/heads", "tests/systems/test_aplc.py", "tests/experts/test_clustered.py"],
    "experts": [
        "tests/experts",
        "tests/systems/test_sparse_expert.py",
        "tests/systems/test_treaderxml.py",
        "tests/systems/test_mixture.py",
        "tests/systems/test_label_text.py",
    ],
    "metrics": ["tests/metrics", "tests/predict/test_evaluation.py"],
    "ranking": [
        "tests/ranking",
        "tests/systems/test_mixture.py",
        "tests/systems/test_mixture_ensemble.py",
        "tests/systems/test_aplc.py",
    ],
}

_COMPARE = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
}
_BINARY = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Div,
    ast.Div: ast.Mult,
    ast.FloorDiv: ast.Mult,
    ast.Mod: ast.FloorDiv,
    ast.Pow: ast.Mult,
    ast.BitAnd: ast.BitOr,
    ast.BitOr: ast.BitAnd,
    ast.LShift: ast.RShift,
    ast.RShift: ast.LShift,
}
# Method calls that are replaced by what they are called on.
_DROPPED = {
    "float",
    "double",
    "detach",
    "clamp",
    "clamp_",
    "abs",
    "neg_",
    "exp_",
    "relu",
    "softmax",
}


@dataclass(frozen=True)
class Mutant:
    """One change of one file."""

    module: str
    path: str
    line: int
    change: str
    code: str


def mutants_of(path: Path) -> Iterator[Mutant]:
    """Yield every mutant of a source file."""
    tree = ast.parse(path.read_text("utf-8"))
    module = "glocal." + ".".join(path.relative_to(SOURCE).with_suffix("").parts)
    for node in _mutable(tree):
        for change, undo, line in _changes(node):
            code = ast.unparse(ast.fix_missing_locations(copy.deepcopy(tree)))
            undo()
            yield Mutant(module, str(path.relative_to(ROOT)), line, change, code)


def _mutable(tree: ast.AST) -> list[ast.AST]:
    """Return the nodes that may be changed, parents before children."""
    found: list[ast.AST] = []
    waiting: list[ast.AST] = [tree]
    while waiting:
        node = waiting.pop()
        skipped = (ast.Import, ast.ImportFrom, ast.Assert, ast.Raise, ast.JoinedStr)
        if isinstance(node, skipped) or _is_typing(node):
            continue
        found.append(node)
        for name, value in ast.iter_fields(node):
            if name in {"annotation", "returns", "decorator_list", "type_params"}:
                continue
            if isinstance(node, ast.keyword) and node.arg == "strict":
                continue
            children = value if isinstance(value, list) else [value]
            waiting += [child for child in children if isinstance(child, ast.AST)]
    return sorted(
        found, key=lambda node: (getattr(node, "lineno", 0), getattr(node, "col_offset", 0))
    )


def _is_typing(node: ast.AST) -> bool:
    """Whether a node is `__all__`, a type alias or a block for type checkers."""
    if isinstance(node, ast.If):
        return ast.unparse(node.test) == "TYPE_CHECKING"
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.BitOr):
        return isinstance(node.right, ast.Constant) and node.right.value is None
    return isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__"


def _changes(node: ast.AST) -> Iterator[tuple[str, object, int]]:
    """Change a node in place, in every way there is; each is undone before the next."""
    line = getattr(node, "lineno", 0)
    before = ast.unparse(node) if hasattr(node, "lineno") else ""
    for undo in _edits(node):
        after = ast.unparse(node)
        yield f"{_first_line(before)}  →  {_first_line(after)}", undo, line


def _first_line(code: str) -> str:
    line = code.strip().splitlines()[0] if code.strip() else ""
    return line if len(line) <= 90 else line[:87] + "…"


def _edits(node: ast.AST) -> Iterator[object]:
    if isinstance(node, ast.Compare):
        for place, operator in enumerate(node.ops):
            yield from _swapped(node.ops, place, _COMPARE[type(operator)]())
    elif isinstance(node, ast.BinOp | ast.AugAssign) and type(node.op) in _BINARY:
        yield from _set(node, "op", _BINARY[type(node.op)]())
    elif isinstance(node, ast.BoolOp):
        yield from _set(node, "op", ast.Or() if isinstance(node.op, ast.And) else ast.And())
    elif isinstance(node, ast.UnaryOp):  # applied twice, an operator changes nothing
        yield from _set(node, "operand", ast.UnaryOp(node.op, node.operand))
    elif isinstance(node, ast.IfExp | ast.If) and not isinstance(node.test, ast.Compare):
        yield from _set(node, "test", ast.UnaryOp(ast.Not(), node.test))
    elif isinstance(node, ast.Constant):
        yield from _constants(node)
    elif isinstance(node, ast.Call):
        yield from _calls(node)
    yield from _statements(node)


def _constants(node: ast.Constant) -> Iterator[object]:
    if isinstance(node.value, bool):
        yield from _set(node, "value", not node.value)
    elif isinstance(node.value, int | float):
        yield from _set(node, "value", node.value + 1)


def _calls(node: ast.Call) -> Iterator[object]:
    method = node.func
    if isinstance(method, ast.Attribute) and method.attr in _DROPPED and not _is_module(method):
        # The call becomes `(receiver).view_as_itself`: an identity on the receiver.
        identity = ast.Lambda(
            ast.arguments([], [ast.arg("x")], None, [], [], None, []), ast.Name("x", ast.Load())
        )
        old = node.func, node.args, node.keywords
        node.func, node.args, node.keywords = identity, [method.value], []
        yield lambda: vars(node).update(func=old[0], args=old[1], keywords=old[2])
    for place, keyword in enumerate(list(node.keywords)):
        if keyword.arg == "strict":  # of `zip`: an assertion
            continue
        kept = list(node.keywords)
        del node.keywords[place]
        yield lambda kept=kept: setattr(node, "keywords", kept)
        node.keywords = kept


def _is_module(method: ast.Attribute) -> bool:
    return isinstance(method.value, ast.Name) and method.value.id in {"torch", "functional", "np"}


def _statements(node: ast.AST) -> Iterator[object]:
    """Drop statements that only have an effect: in-place changes and calls."""
    for name in ("body", "orelse"):
        block = getattr(node, name, None)
        if not isinstance(block, list):
            continue
        for place, statement in enumerate(block):
            effect = isinstance(statement, ast.AugAssign | ast.Continue) or (
                isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Call)
            )
            if effect:
                yield from _swapped(block, place, ast.Pass())


def _swapped(items: list, place: int, new: ast.AST) -> Iterator[object]:
    old, items[place] = items[place], new
    yield lambda: items.__setitem__(place, old)


def _set(node: ast.AST, name: str, new: object) -> Iterator[object]:
    old = getattr(node, name)
    setattr(node, name, new)
    yield lambda: setattr(node, name, old)


class MutantFinder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Imports one module from changed code."""

    def __init__(self, mutant: Mutant) -> None:
        self.mutant = mutant

    def find_spec(self, name, path=None, target=None):
        """Take over the mutated module alone."""
        if name != self.mutant.module:
            return None
        return importlib.util.spec_from_file_location(name, ROOT / self.mutant.path, loader=self)

    def create_module(self, spec):
        """Use the default module object."""

    def exec_module(self, module):
        """Run the changed code."""
        code = compile(self.mutant.code, self.mutant.path, "exec", dont_inherit=True)
        exec(code, module.__dict__)


def survives(mutant: Mutant | None, tests: list[str], timeout: float) -> bool:
    """Run the tests in a forked child; True if all of them pass in time."""
    pid = os.fork()
    if pid == 0:
        _run_child(mutant, tests)
    ended = time.monotonic() + timeout
    while time.monotonic() < ended:
        done, status = os.waitpid(pid, os.WNOHANG)
        if done:
            return os.waitstatus_to_exitcode(status) == 0
        time.sleep(0.02)
    os.killpg(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    return False


def _run_child(mutant: Mutant | None, tests: list[str]) -> None:
    import pytest

    os.setpgid(0, 0)
    silence = os.open(os.devnull, os.O_WRONLY)
    os.dup2(silence, 1)
    os.dup2(silence, 2)
    if mutant is not None:
        sys.meta_path.insert(0, MutantFinder(mutant))
    options = ["-x", "-q", "-p", "no:cacheprovider", "-p", "no:xdist"]
    options += ["-m", "not slow and not dist"]
    # The libraries preloaded here include plugins of pytest.
    options += ["-W", "ignore::pytest.PytestAssertRewriteWarning"]
    code = 1
    try:
        code = pytest.main([*options, *tests])
    finally:
        os._exit(int(code))


def _preload() -> None:
    """Import what takes long, and nothing that is mutated."""
    import numpy  # noqa: F401
    import pytest  # noqa: F401
    import torch
    import transformers.models.auto  # noqa: F401

    torch.set_num_threads(1)


def main() -> None:
    """Run the mutants of the packages named and list the survivors."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("packages", nargs="+", choices=sorted(TESTS))
    parser.add_argument("--sample", type=int, default=0, help="mutants per package (0: all)")
    parser.add_argument("--seed", type=int, default=0, help="random seed of the sample")
    parser.add_argument("--jobs", type=int, default=2, help="children at a time")
    parser.add_argument("--out", type=Path, help="write all results as JSON")
    arguments = parser.parse_args()
    os.chdir(ROOT)
    sys.path[:0] = [str(ROOT), str(ROOT / "src")]
    for library in ("OMP", "MKL", "OPENBLAS"):
        os.environ[f"{library}_NUM_THREADS"] = "1"
    _preload()
    results = {}
    for package in arguments.packages:
        results[package] = run_package(package, arguments)
    if arguments.out:
        arguments.out.write_text(json.dumps(results, indent=1), encoding="utf-8")


def run_package(package: str, arguments: argparse.Namespace) -> dict[str, object]:
    """Run a package's mutants; returns the counts and the survivors."""
    files = sorted((SOURCE / package).rglob("*.py"))
    mutants = [mutant for path in files for mutant in mutants_of(path)]
    if arguments.sample and arguments.sample < len(mutants):
        mutants = random.Random(arguments.seed).sample(mutants, arguments.sample)
    tests = [test for test in TESTS[package] if (ROOT / test).exists()]
    started = time.monotonic()
    if not survives(None, tests, 1200):
        sys.exit(f"{package}: the tests fail without a mutant")
    timeout = 30 + 4 * (time.monotonic() - started)
    with ThreadPoolExecutor(arguments.jobs) as pool:
        alive = list(pool.map(lambda mutant: survives(mutant, tests, timeout), mutants))
    survivors = [mutant for mutant, lives in zip(mutants, alive, strict=True) if lives]
    killed = len(mutants) - len(survivors)
    print(f"{package}: {killed} of {len(mutants)} killed, {killed / len(mutants):.1%}", flush=True)
    for mutant in survivors:
        print(f"  {mutant.path}:{mutant.line}: {mutant.change}", flush=True)
    listed = [{k: v for k, v in asdict(m).items() if k != "code"} for m in survivors]
    return {"mutants": len(mutants), "killed": killed, "survivors": listed}


if __name__ == "__main__":
    main()
