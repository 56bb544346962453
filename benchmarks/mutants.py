"""Mutation testing: change the code in one place at a time and see whether a test notices.

    python benchmarks/mutants.py losses heads                              # every mutant
    python benchmarks/mutants.py metrics ranking --sample 300 --seed 0     # 300 of each package
    python benchmarks/mutants.py losses heads --jobs 16 --report alive.md  # or .json

One process per package imports everything and collects the tests of `TESTS` once, and records which
functions each test runs. A mutant inside a function is a forked copy of that process that swaps the
function's code and runs the tests that reach it, up to the first failure. A mutant outside of
functions, or of a compiled kernel, runs in a fork that imports the changed module afresh. A mutant
survives if all of its tests pass in time. Docstrings, annotations, imports, assertions and the text
of errors are not mutated.
"""

from __future__ import annotations

import argparse
import ast
import gc
import importlib.abc
import importlib.util
import itertools
import json
import os
import random
import shutil
import signal
import statistics
import sys
import tempfile
import time
import traceback
import types
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src" / "glocal"
BROKEN = 70  # exit status of a child that failed by no fault of its mutant
ERRORS = os.dup(2)  # also of children, whose own output is silenced

# The tests that must notice a mutant of a package, those that usually do first.
TESTS = {
    "losses": [
        "tests/losses",
        "tests/train/test_row_updates.py",
        "tests/systems/test_me_xml.py",
        "tests/systems/test_mixture.py",
    ],
    "heads": [
        "tests/heads",
        "tests/systems/test_aplc.py",
        "tests/experts/test_clustered.py",
        "tests/systems/test_mixture.py",
    ],
    "experts": [
        "tests/experts",
        "tests/systems/test_sparse_expert.py",
        "tests/systems/test_treaderxml.py",
        "tests/systems/test_mixture.py",
        "tests/systems/test_label_text.py",
        "tests/systems/test_me_xml.py",
        "tests/predict/test_explain.py",
    ],
    "metrics": ["tests/metrics", "tests/predict/test_evaluation.py"],
    "ranking": [
        "tests/ranking",
        "tests/systems/test_mixture.py",
        "tests/systems/test_mixture_ensemble.py",
        "tests/systems/test_aplc.py",
        "tests/predict/test_predictor.py",
        "tests/predict/test_ensemble.py",
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

    path: Path
    line: int
    change: str
    code: types.CodeType
    source: str
    function: tuple[str, int] | None
    """Qualified name and first line of the outermost function around it; `None`: a module's own
    code, a kernel, which its compiler reads from the file, or a function that loses `super()`."""

    @property
    def module(self) -> str:
        """Its module's name."""
        return "glocal." + ".".join(self.path.relative_to(SOURCE).with_suffix("").parts)

    def __str__(self) -> str:
        return f"{self.path.relative_to(ROOT)}:{self.line}: {self.change}"


def mutants_of(path: Path) -> Iterator[Mutant]:
    """Yield every mutant of a source file."""
    tree = ast.parse(path.read_text("utf-8"))
    owners = dict(_owners(tree))
    original = compile(tree, str(path), "exec", dont_inherit=True)
    for node in _mutable(tree):
        for change, undo, line in _changes(node):
            changed = ast.fix_missing_locations(tree)
            code = compile(changed, str(path), "exec", dont_inherit=True)
            owner = owners.get(node)
            if owner and not _same_names(_code_of(original, owner), _code_of(code, owner)):
                owner = None
            yield Mutant(path, line, change, code, ast.unparse(changed), owner)
            undo()


def _same_names(before: types.CodeType, after: types.CodeType) -> bool:
    """Whether a function can take over another's code: it has the same names from outside."""
    return before.co_freevars == after.co_freevars


def _owners(tree: ast.AST, prefix: str = "") -> Iterator[tuple[ast.AST, tuple[str, int]]]:
    """Yield each node in the body of a function with the outermost function that holds it."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.ClassDef):
            yield from _owners(node, f"{prefix}{node.name}.")
        elif isinstance(node, ast.FunctionDef):
            decorators = [ast.unparse(decorator) for decorator in node.decorator_list]
            if "jit" not in decorators:
                first = min([node.lineno, *(d.lineno for d in node.decorator_list)])
                owner = f"{prefix}{node.name}", first
                yield node, owner  # a statement of its body may be dropped
                for statement in node.body:
                    yield from ((inner, owner) for inner in ast.walk(statement))
        elif isinstance(node, ast.If | ast.Try):
            yield from _owners(node, prefix)


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


def _changes(node: ast.AST) -> Iterator[tuple[str, Callable[[], object], int]]:
    """Change a node in place, in every way there is; each is undone before the next."""
    line = getattr(node, "lineno", 0)
    before = ast.unparse(node) if hasattr(node, "lineno") else ""
    for undo in _edits(node):
        after = ast.unparse(node)
        yield _difference(before, after), undo, line


def _difference(before: str, after: str) -> str:
    """Return the first line that differs, before and after."""
    old, new = before.splitlines() or [""], after.splitlines() or [""]
    pairs = [pair for pair in zip(old, new, strict=False) if pair[0] != pair[1]]
    shown = pairs[0] if pairs else (old[0], new[0])
    short = [line if len(line) <= 90 else line[:87] + "…" for line in map(str.strip, shown)]
    return "  →  ".join(short)


def _edits(node: ast.AST) -> Iterator[Callable[[], object]]:
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


def _constants(node: ast.Constant) -> Iterator[Callable[[], object]]:
    if isinstance(node.value, bool):
        yield from _set(node, "value", not node.value)
    elif isinstance(node.value, int | float):
        yield from _set(node, "value", node.value + 1)


def _calls(node: ast.Call) -> Iterator[Callable[[], object]]:
    method = node.func
    if isinstance(method, ast.Attribute) and method.attr in _DROPPED and not _is_module(method):
        # The call becomes an identity on its receiver.
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


def _statements(node: ast.AST) -> Iterator[Callable[[], object]]:
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


def _swapped(items: list, place: int, new: ast.AST) -> Iterator[Callable[[], object]]:
    old, items[place] = items[place], new
    yield lambda: items.__setitem__(place, old)


def _set(node: ast.AST, name: str, new: object) -> Iterator[Callable[[], object]]:
    old = getattr(node, name)
    setattr(node, name, new)
    yield lambda: setattr(node, name, old)


def fork_all(tasks: list[Callable[[], int]], timeouts: list[float], jobs: int) -> list[bool]:
    """Run each task in a forked child, some at a time; True where one returns 0 in time."""
    passed, running, waiting = [False] * len(tasks), {}, list(range(len(tasks)))[::-1]
    while waiting or running:
        while waiting and len(running) < jobs:
            number = waiting.pop()
            running[_fork(tasks[number])] = number, time.monotonic() + timeouts[number]
        for pid, (number, ends) in list(running.items()):
            done, status = os.waitpid(pid, os.WNOHANG)
            if not done and time.monotonic() > ends:
                os.killpg(pid, signal.SIGKILL)
                done, status = os.waitpid(pid, 0)
            if done:
                code = os.waitstatus_to_exitcode(status)
                if code == BROKEN:
                    sys.exit("a child failed outside of the tests; its error is above")
                passed[number] = code == 0
                del running[pid]
        time.sleep(0.01)
    return passed


def _fork(task: Callable[[], int]) -> int:
    """Start a task in a quiet child with a process group of its own."""
    pid = os.fork()
    if pid:
        return pid
    code = BROKEN
    try:
        os.setpgid(0, 0)
        silence = os.open(os.devnull, os.O_WRONLY)
        os.dup2(silence, 1)
        os.dup2(silence, 2)
        code = task()
    except BaseException:
        os.write(ERRORS, traceback.format_exc().encode())
    finally:
        os._exit(code)


class Collected:
    """A plugin of pytest that runs mutants of functions in place of the collected tests."""

    def __init__(self, mutants: list[Mutant], jobs: int, results: Path) -> None:
        self.mutants, self.jobs, self.results = mutants, jobs, results

    def pytest_runtestloop(self, session) -> bool:
        """Record what the tests run, then try each mutant."""
        self.session = session
        with tempfile.TemporaryDirectory() as folder:
            record = Path(folder) / "record.json"
            if not fork_all([lambda: self.record(record)], [1800], 1)[0]:
                sys.exit("the tests fail without a mutant")
            self.tests = json.loads(record.read_text())
        self.functions = _functions_by_place()
        chosen = [self.choose(mutant) for mutant in self.mutants]
        seconds = [sum(self.tests[number]["seconds"] for number in tests) for tests in chosen]
        tasks = [
            lambda mutant=mutant, tests=tests: self.run_mutant(mutant, tests)
            for mutant, tests in zip(self.mutants, chosen, strict=True)
        ]
        alive = fork_all(tasks, [20 + 5 * second for second in seconds], self.jobs)
        touched = defaultdict(set)
        for test in self.tests:
            for path, _ in test["places"]:
                touched[path].add(test["file"])
        found = {
            "alive": [
                {"number": number, "tests": len(tests)}
                for number, (lives, tests) in enumerate(zip(alive, chosen, strict=True))
                if lives
            ],
            "files": {path: sorted(files) for path, files in touched.items()},
        }
        self.results.write_text(json.dumps(found))
        return True

    def record(self, record: Path) -> int:
        """Run every test; write its time and the places of the functions it reaches."""
        tests, prefix = [], str(SOURCE)
        for item in self.session.items:
            codes: set[types.CodeType] = set()

            def note(frame, event, _argument, codes=codes) -> None:
                if event == "call":
                    codes.add(frame.f_code)

            started = time.monotonic()
            sys.setprofile(note)
            try:
                if not self.run_tests([item]):
                    raise RuntimeError(f"{item.nodeid} fails without a mutant")
            finally:
                sys.setprofile(None)
            places = {(c.co_filename, c.co_firstlineno) for c in codes}
            places = sorted(place for place in places if place[0].startswith(prefix))
            file = str(item.path.relative_to(ROOT))
            seconds = time.monotonic() - started
            tests.append({"file": file, "seconds": seconds, "places": places})
        record.write_text(json.dumps(tests))
        return 0

    def run_tests(self, items: list) -> bool:
        """Run tests until one fails; returns whether all passed."""
        for item, following in itertools.zip_longest(items, items[1:]):
            item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
            if self.session.testsfailed:
                return False
        return True

    def choose(self, mutant: Mutant) -> list[int]:
        """Return the tests that reach a mutant, the quickest files and tests first."""
        inner = _first_lines(mutant)
        reaching = [
            number
            for number, test in enumerate(self.tests)
            if any(path == str(mutant.path) and line in inner for path, line in test["places"])
        ]
        seconds = defaultdict(list)
        for number in reaching:
            seconds[self.tests[number]["file"]].append(self.tests[number]["seconds"])

        def order(number: int) -> tuple[float, str, float]:
            test = self.tests[number]
            return statistics.mean(seconds[test["file"]]), test["file"], test["seconds"]

        return sorted(reaching, key=order)

    def run_mutant(self, mutant: Mutant, tests: list[int]) -> int:
        """Change the function in this process and run its tests."""
        place = str(mutant.path), mutant.function[1]
        for function in self.functions[place]:
            function.__code__ = _outermost(mutant)
        with tempfile.TemporaryDirectory() as folder:
            # Files of one mutant are not seen by another.
            self.session.config._tmp_path_factory._basetemp = Path(folder)
            return 0 if self.run_tests([self.session.items[number] for number in tests]) else 1


def _functions_by_place() -> dict[tuple[str, int], list[types.FunctionType]]:
    found = defaultdict(list)
    for value in gc.get_objects():
        if type(value) is types.FunctionType:  # other types may warn when they are asked
            code = value.__code__
            if code.co_filename.startswith(str(SOURCE)):
                found[code.co_filename, code.co_firstlineno].append(value)
    return found


def _outermost(mutant: Mutant) -> types.CodeType:
    """Return the code of the changed function."""
    return _code_of(mutant.code, mutant.function)


def _code_of(module: types.CodeType, function: tuple[str, int]) -> types.CodeType:
    """Return the code of a function inside a module's."""
    waiting = [module]
    while waiting:
        code = waiting.pop()
        if (code.co_qualname, code.co_firstlineno) == function:
            return code
        waiting += [inner for inner in code.co_consts if isinstance(inner, types.CodeType)]
    raise LookupError(function)


def _first_lines(mutant: Mutant) -> set[int]:
    """Return the first lines of a function and of those inside it."""
    lines, waiting = set(), [_outermost(mutant)]
    while waiting:
        code = waiting.pop()
        lines.add(code.co_firstlineno)
        waiting += [inner for inner in code.co_consts if isinstance(inner, types.CodeType)]
    return lines


class ChangedModule(importlib.abc.MetaPathFinder):
    """Imports one module from a changed copy of its file."""

    def __init__(self, mutant: Mutant, copy: Path) -> None:
        self.module, self.copy = mutant.module, copy
        copy.write_text(mutant.source, encoding="utf-8")

    def find_spec(self, name, path=None, target=None):
        """Take over the mutated module alone."""
        if name != self.module:
            return None
        return importlib.util.spec_from_file_location(name, self.copy)


def run_module(mutant: Mutant, tests: list[str]) -> int:
    """Run tests with a module that is changed before it is first imported."""
    folder = Path(tempfile.mkdtemp())
    try:
        sys.meta_path.insert(0, ChangedModule(mutant, folder / "mutant.py"))
        return run_pytest([*tests, f"--basetemp={folder / 'tests'}"])
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def run_pytest(arguments: list[str], plugins: list[object] | None = None) -> int:
    """Run pytest in this process."""
    import pytest

    options = ["-x", "-q", "-p", "no:cacheprovider", "-p", "no:xdist"]
    options += ["-m", "not slow and not dist"]
    # The libraries preloaded here include plugins of pytest.
    options += ["-W", "ignore::pytest.PytestAssertRewriteWarning"]
    return int(pytest.main([*options, *arguments], plugins=plugins))


def _preload() -> None:
    """Import what takes long, and nothing that is mutated."""
    import hypothesis.configuration
    import numpy  # noqa: F401
    import pytest  # noqa: F401
    import scipy.sparse  # noqa: F401
    import torch
    import transformers.models.auto  # noqa: F401

    torch.set_num_threads(1)
    # A failing example of one mutant is not tried on the next.
    hypothesis.configuration.set_hypothesis_home_dir(tempfile.mkdtemp())


def main() -> None:
    """Run the mutants of the packages named and list the survivors."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("packages", nargs="+", choices=sorted(TESTS))
    parser.add_argument("--sample", type=int, default=0, help="mutants per package (0: all)")
    parser.add_argument("--seed", type=int, default=0, help="random seed of the sample")
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), help="children at a time")
    parser.add_argument("--report", type=Path, help="write the survivors as .md or .json")
    arguments = parser.parse_args()
    os.chdir(ROOT)
    sys.path[:0] = [str(ROOT), str(ROOT / "src")]
    for library in ("OMP", "MKL", "OPENBLAS"):
        os.environ[f"{library}_NUM_THREADS"] = "1"
    # A fork cannot use a GPU that its parent has opened; kernels are run by Triton's interpreter.
    os.environ |= {"CUDA_VISIBLE_DEVICES": "", "TRITON_INTERPRET": "1"}
    _preload()
    results = {}
    for package in arguments.packages:
        results[package] = run_package(package, arguments)
        if arguments.report:
            arguments.report.write_text(
                json.dumps(results, indent=1, ensure_ascii=False) + "\n"
                if arguments.report.suffix == ".json"
                else "\n\n".join(as_markdown(*item) for item in results.items()) + "\n",
                encoding="utf-8",
            )


def run_package(package: str, arguments: argparse.Namespace) -> dict[str, object]:
    """Run a package's mutants; returns the counts and the survivors."""
    files = sorted((SOURCE / package).rglob("*.py"))
    mutants = [mutant for path in files for mutant in mutants_of(path)]
    if arguments.sample and arguments.sample < len(mutants):
        mutants = random.Random(arguments.seed).sample(mutants, arguments.sample)
    mutants.sort(key=lambda mutant: (mutant.path, mutant.line))
    inside = [mutant for mutant in mutants if mutant.function]
    outside = [mutant for mutant in mutants if not mutant.function]
    tests, started = TESTS[package], time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        results = Path(folder) / "results.json"
        plugin = Collected(inside, arguments.jobs, results)
        fork_all([lambda: run_pytest(tests, [plugin])], [1e9], 1)
        if not results.exists():
            sys.exit(f"{package}: the tests fail without a mutant")
        found = json.loads(results.read_text())
    alive = [(inside[one["number"]], one["tests"]) for one in found["alive"]]
    seconds = time.monotonic() - started
    tasks = [
        lambda mutant=mutant: run_module(mutant, found["files"].get(str(mutant.path), tests))
        for mutant in outside
    ]
    lives = fork_all(tasks, [60 + 2 * seconds] * len(tasks), arguments.jobs)
    alive += [(mutant, None) for mutant, one in zip(outside, lives, strict=True) if one]
    return _report(package, mutants, alive)


def _report(package: str, mutants: list[Mutant], alive: list) -> dict[str, object]:
    survivors = [
        {"place": str(mutant), "untested": tests == 0}
        for mutant, tests in sorted(alive, key=lambda pair: (pair[0].path, pair[0].line))
    ]
    killed = len(mutants) - len(survivors)
    result = {"mutants": len(mutants), "killed": killed, "survivors": survivors}
    print(as_markdown(package, result), flush=True)
    return result


def as_markdown(package: str, result: dict) -> str:
    """Return the counts of a package and its survivors as a list."""
    share = result["killed"] / max(1, result["mutants"])
    lines = [f"{package}: {result['killed']} of {result['mutants']} killed, {share:.1%}", ""]
    for survivor in result["survivors"]:
        lines.append(f"- `{survivor['place']}`{' (no test)' if survivor['untested'] else ''}")
    return "\n".join(lines)


if __name__ == "__main__":
    main()
