"""A real Annif against glocal: its http backend, its ensemble and its OpenAPI file.

    python -m tests.serve.real_annif DIR        DIR is a virtual environment with Annif

Two models are trained and served; an Annif ensemble of two http projects asks both. Then the shared
paths of the OpenAPI file in Annif's wheel are replayed against glocal with Schemathesis.
"""

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import httpx2
import yaml

from glocal.config import load_recipe
from glocal.data.corpus import Corpus
from glocal.predict.predictor import Predictor
from glocal.train.run import fit
from glocal.vocabulary.label_table import LabelEntry, LabelTable
from tests.serve.live import live_server
from tests.serve.test_schema import try_document
from tests.tiny import ANIMALS, COLOURS, tiny_corpus

BASE = "http://example.org/"
TEXT = "the white owl and the red fox"
EXAMPLES = 15

PROJECTS = """
[{first}]
name=First
language=en
backend=http
vocab=tags
endpoint={url}v1/projects/{first}/suggest

[{second}]
name=Second
language=en
backend=http
vocab=tags
endpoint={url}v1/projects/{second}/suggest

[together]
name=Together
language=en
backend=ensemble
sources={first},{second}
vocab=tags
"""


def train(folder, name, seed):
    """Train a model whose labels are URIs, as Annif's subjects are."""
    plain = tiny_corpus(96, seed)
    labels = [[BASE + label for label in document.labels] for document in plain.documents()]
    corpus = Corpus.from_texts([document.text for document in plain.documents()], labels)
    table = LabelTable.from_entries([LabelEntry(BASE + n, n) for n in (*ANIMALS, *COLOURS)])
    fit(load_recipe("fast"), corpus, out=folder / name, label_table=table)
    return folder / name


def annif(home, folder, *arguments, text=""):
    """Run Annif and return what it prints."""
    environment = {
        **os.environ,
        "ANNIF_PROJECTS": str(folder / "projects.cfg"),
        "ANNIF_DATADIR": str(folder / "annif"),
    }
    done = subprocess.run(
        [home / "bin" / "annif", *arguments],
        input=text,
        env=environment,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def scores(printed):
    """The score of each subject that `annif suggest` prints."""
    rows = [line.split("\t") for line in printed.splitlines() if line]
    return {row[0].strip("<>"): float(row[-1]) for row in rows}


def check_ensemble(home, folder, models, url):
    (folder / "projects.cfg").write_text(
        PROJECTS.format(first=models[0].name, second=models[1].name, url=url)
    )
    names = [*ANIMALS, *COLOURS]
    (folder / "tags.tsv").write_text("".join(f"<{BASE}{name}>\t{name}\n" for name in names))
    annif(home, folder, "load-vocab", "-L", "en", "tags", str(folder / "tags.tsv"))
    listed = annif(home, folder, "list-projects")
    assert listed.count("True") >= 3, listed  # both models and the ensemble are trained
    found = scores(annif(home, folder, "suggest", "-l", "4", "together", text=TEXT))
    tags = [dict(map(_scored, Predictor.load(model).predict([TEXT], k=10)[0])) for model in models]
    for uri, score in found.items():
        expected = sum(part.get(uri, 0.0) for part in tags) / 2
        assert abs(score - expected) < 2e-3, (uri, score, expected)
    assert {BASE + name for name in ("white", "owl", "red", "fox")} == set(found), found
    report(f"Annif's ensemble of two glocal models: {found}")


def _scored(tag):
    return tag.id, tag.score


def check_interface(home, url, project):
    (path,) = home.glob("lib/python*/site-packages/annif/openapi/annif.yaml")
    text = path.read_text(encoding="utf-8")
    document = json.loads(json.dumps(yaml.safe_load(text), default=str))  # dates as in JSON
    # Requests for a project that is there say more than those for random names.
    document["components"]["parameters"]["project_id"]["schema"]["enum"] = [project]
    # The file forgets that a broken body of `learn` is a bad request, as Annif itself answers.
    learn = document["paths"]["/projects/{project_id}/learn"]["post"]["responses"]
    learn["400"] = {"$ref": "#/components/responses/BadRequest"}
    # Languages that the server can tell apart; it refuses others, as Annif does.
    body = document["paths"]["/detect-language"]["post"]["requestBody"]["content"]
    languages = body["application/json"]["schema"]["properties"]["languages"]
    languages["items"]["enum"] = ["en", "fi", "sv", "de"]
    warm = {"text": "a", "languages": languages["items"]["enum"]}  # dictionaries load slowly
    httpx2.post(f"{url}v1/detect-language", json=warm, timeout=300).raise_for_status()
    problems, tried = try_document(document, f"{url}v1", EXAMPLES)
    assert not problems, "\n\n".join(problems)
    report(f"Annif's OpenAPI file: {tried} operations replayed, {EXAMPLES} requests each")


def report(line):
    sys.stderr.write(f"{line}\n")


def main(home):
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        models = [train(folder, "first", 0), train(folder, "second", 7)]
        with live_server(*models, folder=folder, options=["--feedback", folder / "rows"]) as server:
            for model in models:
                server.load(model.name)
            check_ensemble(home, folder, models, server.url)
            check_interface(home, server.url, models[0].name)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
