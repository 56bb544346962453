from glocal.data.corpus import Corpus
from glocal.vocabulary.hierarchy import Hierarchy
from glocal.vocabulary.label_space import LabelSpace
from glocal.vocabulary.label_table import LabelTable

TREE = Hierarchy({"leaf": ["mid", "side"], "mid": ["root"], "side": ["mid"], "root": []})


def test_ancestors_nearest_first_and_once():
    assert TREE.ancestors("leaf") == ("mid", "side", "root")
    assert TREE.ancestors("root") == ()
    assert TREE.ancestors("unknown") == ()


def test_with_ancestors():
    assert TREE.with_ancestors(["mid", "leaf"]) == ("mid", "leaf", "root", "side")


def test_depth_is_the_shortest_way_up():
    assert [TREE.depth(label) for label in ("root", "mid", "side", "leaf")] == [0, 1, 2, 2]


def test_parents_outside_the_hierarchy_are_roots():
    hierarchy = Hierarchy({"a": ["outside"]})
    assert hierarchy.ancestors("a") == ("outside",)
    assert hierarchy.depth("a") == 1


def test_cycles_do_not_trap():
    hierarchy = Hierarchy({"a": ["b"], "b": ["c"], "c": ["b"], "d": ["d"]})
    assert hierarchy.cycles == [["b", "c"], ["d"]]
    assert hierarchy.ancestors("a") == ("b", "c")
    assert hierarchy.ancestors("d") == ()
    assert hierarchy.depth("a") == 2


def test_of_a_table_and_of_a_space():
    table = LabelTable(["a", "b"], ["A", "B"], parents=[("b",), ()])
    space = LabelSpace.build(Corpus.from_texts(["t"], [["a"]]), table=table)
    assert Hierarchy.of(table).ancestors("a") == ("b",)
    assert Hierarchy.of(space).ancestors("a") == ("b",)
