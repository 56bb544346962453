"""Shared fixtures: no test touches the user's cache or the network."""

import os

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")

import pytest

from tests.tiny import tiny_corpus, tiny_recipe


@pytest.fixture(autouse=True)
def private_cache(tmp_path_factory, monkeypatch):
    monkeypatch.setenv("GLOCAL_CACHE", str(tmp_path_factory.getbasetemp() / "cache"))


@pytest.fixture
def corpus():
    return tiny_corpus()


@pytest.fixture
def recipe():
    return tiny_recipe()
