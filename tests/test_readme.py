"""What the README shows is run: its Python as it stands, its commands on small files."""

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.tiny import tiny_corpus

README = Path(__file__).parents[1] / "README.md"


def block(language, containing):
    text = README.read_text("utf-8")
    found = re.findall(r"^```(\w*)\n(.*?)^```$", text, re.DOTALL | re.MULTILINE)
    return next(code for name, code in found if name == language and containing in code)


def write(path, corpus, start, stop):
    rows = zip(corpus.texts(start, stop), corpus.labels(start, stop), strict=True)
    lines = [json.dumps({"text": text, "labels": labels}) for text, labels in rows]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    place = tmp_path_factory.mktemp("readme")
    corpus = tiny_corpus(160)
    for name, start, stop in [
        ("train", 0, 60),
        ("dev", 60, 80),
        ("test", 80, 100),
        ("docs", 100, 110),
        ("all", 0, 160),
    ]:
        write(place / f"{name}.jsonl", corpus, start, stop)
    names = sorted({label for labels in corpus.labels() for label in labels})
    table = [json.dumps({"id": name, "name": f"the {name}"}) for name in names]
    (place / "labels.jsonl").write_text("\n".join(table), encoding="utf-8")
    return place


def run(command, folder):
    environment = {**os.environ, "GLOCAL_CACHE": str(folder / "cache"), "NO_COLOR": "1"}
    environment["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    options = {"shell": True, "capture_output": True, "text": True, "check": False}
    return subprocess.run(command, cwd=folder, env=environment, **options)


@pytest.mark.slow
def test_the_python_example_runs(folder):
    script = folder / "example.py"
    script.write_text(block("python", "Tagger"), encoding="utf-8")
    done = run(f"{sys.executable} {script}", folder)
    assert done.returncode == 0, done.stderr
    assert (folder / "my-model" / "glocal.toml").is_file()
    assert "owl" in done.stdout


@pytest.mark.slow
def test_the_commands_run(folder):
    commands = [
        line.split("#")[0].strip()
        for line in block("", "glocal train").splitlines()
        if line.startswith("glocal ")
    ]
    assert len(commands) >= 9
    for command in commands:
        done = run(command, folder)
        # `data inspect` reports problems with its exit status; repeated texts are no error here.
        expected = (0, 1) if "inspect" in command else (0,)
        assert done.returncode in expected, f"{command}\n{done.stderr}"
        if "--out model/" in command:
            for copy in ("model-a", "model-b"):
                shutil.copytree(folder / "model", folder / copy)
    assert len((folder / "tags.jsonl").read_text().splitlines()) == 10


def test_the_make_targets_exist():
    targets = (README.parent / "Makefile").read_text("utf-8")
    for line in block("", "make demo").splitlines():
        assert f"\n{line.split()[1]}: " in targets
