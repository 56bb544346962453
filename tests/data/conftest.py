import pytest


@pytest.fixture(autouse=True)
def private_cache(tmp_path_factory, monkeypatch):
    """Keep every test's derived files apart from the user's and from one another's."""
    folder = tmp_path_factory.mktemp("cache")
    monkeypatch.setenv("GLOCAL_CACHE", str(folder))
    return folder
