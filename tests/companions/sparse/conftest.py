"""The made-up corpus and its labels."""

import pytest

from tests.companions.sparse.made_up import corpus, label_space


@pytest.fixture(scope="package")
def train():
    return corpus()


@pytest.fixture(scope="package")
def labels(train):
    return label_space(train)
