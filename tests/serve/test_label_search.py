import numpy as np
import pytest

from glocal.serve.label_search import LabelSearch, normalise
from glocal.vocabulary.label_space import LabelSpace


@pytest.fixture
def search():
    rows = [
        ("a", "Fish", (), ("Pisces",), 5),
        ("b", "Fish farming", ("a",), (), 9),
        ("c", "Freshwater fish", ("a",), (), 1),
        ("d", "Selfish behaviour", (), (), 99),
        ("e", "Pêche à la ligne", ("a", "missing"), ("angling",), 3),
        ("f", "Farming of fish", ("a", "e"), (), 2),
    ]
    return LabelSearch(
        LabelSpace(
            [r[0] for r in rows],
            [r[1] for r in rows],
            [""] * len(rows),
            [r[2] for r in rows],
            np.array([r[4] for r in rows]),
            100,
            alt_names=[r[3] for r in rows],
        )
    )


def find(search, query="", **options):
    _, positions = search.find(query, **{"page": 1, "size": 10, **options})
    return [search.labels.ids[position] for position in positions]


def test_normalise():
    assert normalise("  Pêche–à la_LIGNE! ") == " peche a la ligne"
    assert normalise("") == " "


@pytest.mark.parametrize(
    ("query", "found"),
    [
        ("fish", "abfcd"),  # exact, start of the name, start of a word by count, elsewhere
        ("FARMING fish", "bf"),
        ("farming of", "f"),
        ("pisces", "a"),
        ("peche", "e"),
        ("Ángling", "e"),
        ("nothing", ""),
        ("", "dbaefc"),
        ("fish\x00' OR 1", ""),
    ],
)
def test_order(search, query, found):
    assert "".join(find(search, query)) == found


def test_hierarchy(search):
    assert set(find(search, parent="")) == {"a", "d"}
    assert set(find(search, parent="a")) == {"b", "c", "e", "f"}
    assert find(search, "farming", parent="a") == ["f", "b"]
    assert find(search, parent="missing") == []
    assert [search.children_count(position) for position in range(6)] == [4, 0, 0, 0, 1, 0]


def test_pages(search):
    assert find(search, "fish", page=2, size=2) == ["f", "c"]
    assert search.find("fish", page=9, size=2)[0] == 5
    assert find(search, "fish", page=9, size=2) == []
