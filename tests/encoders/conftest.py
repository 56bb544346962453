import pytest

from tests.encoders.folders import roberta_folder, xlnet_folder


@pytest.fixture(scope="session")
def xlnet(tmp_path_factory):
    return xlnet_folder(tmp_path_factory.mktemp("encoders") / "xlnet")


@pytest.fixture(scope="session")
def roberta(tmp_path_factory):
    return roberta_folder(tmp_path_factory.mktemp("encoders") / "roberta")
