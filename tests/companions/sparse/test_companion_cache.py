from types import SimpleNamespace

from glocal.companions.companion import FitInputs
from glocal.companions.sparse import sparse_companion
from glocal.companions.sparse.sparse_companion import SparseCompanion
from glocal.config import SparseConfig
from tests.companions.sparse.made_up import corpus, label_space


def test_a_model_of_another_format_is_not_taken_from_the_cache(monkeypatch):
    keys = []
    monkeypatch.setattr(sparse_companion, "cached", lambda _, key, **rest: keys.append(key))
    train = corpus(20)
    recipe = SimpleNamespace(sparse=SparseConfig(), train=SimpleNamespace(seed=0))
    inputs = FitInputs(recipe, train, label_space(train))
    for version in (1, 1, 2):
        monkeypatch.setattr(sparse_companion, "FORMAT", version)
        SparseCompanion.fit(inputs)
    assert keys[0] == keys[1] != keys[2]
