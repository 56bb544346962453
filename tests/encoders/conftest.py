import pytest

from tests.encoders.folders import mpnet_folder, roberta_folder, xlnet_folder


@pytest.fixture(scope="session")
def xlnet(tmp_path_factory):
    return xlnet_folder(tmp_path_factory.mktemp("encoders") / "xlnet")


@pytest.fixture(scope="session")
def roberta(tmp_path_factory):
    return roberta_folder(tmp_path_factory.mktemp("encoders") / "roberta")


@pytest.fixture(scope="session")
def mpnet(tmp_path_factory):
    return mpnet_folder(tmp_path_factory.mktemp("encoders") / "mpnet")
