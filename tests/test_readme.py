"""What the README shows is run: its Python as it stands, its commands on small files.

Commands run in this process: starting one for each would take longer than what they do.
"""

import json
import os
import re
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import urllib.request
from pathlib import Path

import pytest

from tests.cli.conftest import invoke
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
    corpus = tiny_corpus(80)
    for name, start, stop in [
        ("train", 0, 24),
        ("dev", 24, 32),
        ("test", 32, 40),
        ("docs", 40, 50),
        ("all", 0, 80),
    ]:
        write(place / f"{name}.jsonl", corpus, start, stop)
    names = sorted({label for labels in corpus.labels() for label in labels})
    table = [json.dumps({"id": name, "name": f"the {name}"}) for name in names]
    (place / "labels.jsonl").write_text("\n".join(table), encoding="utf-8")
    return place


def start(command, folder):
    """Run a shell command in the folder, with this environment's programs first."""
    environment = {**os.environ, "NO_COLOR": "1"}
    environment["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    options = {"shell": True, "capture_output": True, "text": True, "check": False}
    return subprocess.run(command, cwd=folder, env=environment, **options)


@pytest.mark.slow
def test_the_python_example_runs(folder):
    script = folder / "example.py"
    script.write_text(block("python", "Tagger"), encoding="utf-8")
    done = start(f"{sys.executable} {script}", folder)
    assert done.returncode == 0, done.stderr
    assert (folder / "my-model" / "glocal.toml").is_file()
    tags, *explained = done.stdout.splitlines()
    assert tags == "['owl', 'snow']"
    assert explained[0].startswith("owl 0.9")
    assert "'owl'" in explained[0]


def commands():
    """The README's commands, as words of a shell, without the program's name."""
    lines = [line.split("#")[0] for line in block("", "glocal train").splitlines()]
    split = [shlex.split(line) for line in lines if line.startswith("glocal ")]
    return [words[1:] for words in split]


def check_serves(words):
    """Start a server, ask it for its health and stop it as Ctrl-C does."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [sys.executable, "-m", "glocal", *words, "--port", str(port)]
    # A process in the background of a script ignores Ctrl-C, and so would its children.
    heeds = lambda: signal.signal(signal.SIGINT, signal.default_int_handler)  # noqa: E731
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, preexec_fn=heeds) as server:
        assert "http://" in server.stderr.readline()
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/healthz", timeout=60) as answer:
            assert answer.status == 200
        server.send_signal(signal.SIGINT)
        said = server.communicate(timeout=60)[1]
    assert server.returncode == 130, said  # as for any command that Ctrl-C stops


@pytest.mark.slow
def test_the_commands_run(folder, monkeypatch):
    monkeypatch.chdir(folder)
    assert len(commands()) >= 9
    for words in commands():
        if words[0] == "serve":
            check_serves(words)
            continue
        target = words[-1] if ">" in words else None
        # One pass over the texts tells whether the command works, and so does a small budget.
        budgeted = "--budget" in words
        words = [word.replace("10m", "5s") if budgeted else word for word in words]
        shorter = ["-s", "train.epochs=1"] if words[0] == "train" and not budgeted else []
        done = invoke(*(words[:-2] if target else words), *shorter)
        # `data inspect` reports problems with its exit status; repeated texts are no error here.
        expected = (0, 1) if "inspect" in words else (0,)
        assert done.exit_code in expected, f"{words}\n{done.output}"
        if target:
            Path(target).write_text(done.stdout, encoding="utf-8")
        if words[0] == "train" and words[-1] == "model/":
            for copy in ("model-a", "model-b"):
                shutil.copytree("model", copy)
        if words[0] in ("predict", "ensemble"):
            assert len(Path("tags.jsonl").read_text().splitlines()) == 10


def test_the_program_is_installed(folder):
    done = start("glocal recipes", folder)
    assert done.returncode == 0, done.stderr
    assert "glocalxml" in done.stdout


def test_the_make_targets_exist():
    targets = (README.parent / "Makefile").read_text("utf-8")
    for line in block("", "make demo").splitlines():
        assert f"\n{line.split()[1]}: " in targets
