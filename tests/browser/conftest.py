"""Models, servers and a browser for the tests of the page."""

import numpy as np
import pytest

from glocal.config import load_recipe
from glocal.data.icd10cm import load_icd10cm
from glocal.data.writers import write_corpus
from glocal.train.run import fit
from glocal.vocabulary.label_table import LabelEntry, LabelTable
from tests.browser.chromium import Page, Server, require_tools
from tests.tiny import ANIMALS, COLOURS, tiny_corpus, tiny_recipe

HOSTILE = {
    "red": '<img src=x onerror="document.title=1">',
    "blue": "<script>document.title='owned'</script>",
    "green": "safe \u202egnp.exe",
    "cat": "Katze & Kater </textarea><b>bold</b>",
}


@pytest.fixture(scope="session", autouse=True)
def tools():
    require_tools()


@pytest.fixture(scope="session")
def diagnoses(tmp_path_factory):
    """A model of words on some diagnoses, with a hierarchy of labels."""
    data, random = load_icd10cm(level="category"), np.random.default_rng(0)

    def part(corpus, n):
        return corpus.take(np.sort(random.permutation(len(corpus))[:n]))

    out = tmp_path_factory.mktemp("models") / "diagnoses"
    table = LabelTable.from_rows(data.label_rows)
    recipe = load_recipe("fast")
    fit(recipe, part(data.train, 3000), out=out, dev=part(data.dev, 300), label_table=table)
    return out


@pytest.fixture(scope="session")
def animals(tmp_path_factory):
    """A model of four experts whose labels have names that must stay text."""
    names = [LabelEntry(label, HOSTILE.get(label, label)) for label in (*ANIMALS, *COLOURS)]
    out = tmp_path_factory.mktemp("models") / "animals"
    recipe = tiny_recipe("glocalxml", 'experts=["D-last", "A-1", "S", "T"]')
    fit(
        recipe,
        tiny_corpus(96),
        out=out,
        dev=tiny_corpus(48, 1),
        label_table=LabelTable.from_entries(names),
        device="cpu",
    )
    return out


@pytest.fixture(scope="session")
def server(diagnoses, animals, tmp_path_factory):
    folder = tmp_path_factory.mktemp("feedback")
    shown = tmp_path_factory.mktemp("texts") / "train.jsonl"
    write_corpus(tiny_corpus(96), shown)
    started = Server(diagnoses, animals, "--feedback", folder, "--similar-texts", shown)
    started.feedback = folder
    try:
        for model in (diagnoses, animals):
            started.warm(model.name)
        yield started
    finally:
        started.stop()


@pytest.fixture(scope="session")
def browser(tmp_path_factory):
    page = Page(tmp_path_factory.mktemp("downloads"))
    yield page
    page.close()


@pytest.fixture
def page(browser, server):
    """The page, as at a first visit; nothing may fail in it."""
    browser.open(server.url)
    browser.run("sessionStorage.clear(); localStorage.clear()")
    browser.open(server.url)
    browser.complaints()
    browser.see("#panel-tag .state", "labels")
    yield browser
    assert browser.complaints() == []
