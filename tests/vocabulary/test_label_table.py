import gzip
import json

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from glocal.errors import DataError
from glocal.vocabulary.label_table import LabelEntry, LabelTable, find_cycles, read_label_table

ROWS = [
    {"id": "law", "name": "Law", "description": "What binds", "parents": ["top"]},
    {"id": 7, "name": "Art", "alt_names": ["Fine art"]},
    {"id": "top"},
]


def check(table):
    assert table.ids == ["law", "7", "top"]
    assert table.names == ["Law", "Art", "top"]
    assert table.get("law") == LabelEntry("law", "Law", "What binds", ("top",))
    assert table.get("7").alt_names == ("Fine art",)
    assert table.get("none") is None
    assert len(table) == 3
    assert "top" in table
    assert table.problems() == []


@pytest.mark.parametrize("zipped", [False, True])
def test_jsonl(tmp_path, zipped):
    content = "\n".join(map(json.dumps, ROWS)).encode()
    path = tmp_path / ("labels.jsonl.gz" if zipped else "labels.jsonl")
    path.write_bytes(gzip.compress(content) if zipped else content)
    check(read_label_table(path))


@pytest.mark.parametrize(("ending", "separator"), [("csv", ","), ("tsv", "\t")])
def test_delimited(tmp_path, ending, separator):
    lines = [
        ["id", "name", "description", "parents", "alt_names"],
        ["law", "Law", "What binds", "top", ""],
        ["7", "Art", "", "", "Fine art"],
        ["top", "", "", "", ""],
    ]
    path = tmp_path / f"labels.{ending}"
    path.write_text("\n".join(separator.join(line) for line in lines))
    check(read_label_table(path))


def test_parquet(tmp_path):
    rows = [{**row, "id": str(row["id"])} for row in ROWS]
    columns = {key: [row.get(key) for row in rows] for key in [*ROWS[0], "alt_names"]}
    pq.write_table(pa.table(columns), tmp_path / "labels.parquet")
    check(read_label_table(tmp_path / "labels.parquet"))


def test_xmc_labels_are_numbered_by_position(tmp_path):
    rows = [{"uid": "B9", "title": "Lamps"}, {"uid": "B7", "title": "Chairs"}]
    path = tmp_path / "lbl.json.gz"
    path.write_bytes(gzip.compress("\n".join(map(json.dumps, rows)).encode()))
    table = read_label_table(path)
    assert table.ids == ["0", "1"]
    assert table.names == ["Lamps", "Chairs"]


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ({"name": "x"}, "no usable id"),
        ({"id": " "}, "no usable id"),
        ({"id": True}, "no usable id"),
        ({"id": "b", "name": 3}, "the name is 3, expected a string"),
        ({"id": "b", "description": []}, "the description is .*expected a string"),
        ({"id": "b", "parents": 4}, "parents is 4, expected a list"),
        ({"id": "b", "parents": [None]}, "parents is .*expected a list of strings"),
        ({"id": "a"}, "the label 'a' is already in line 1"),
    ],
)
def test_bad_rows_name_file_and_line(tmp_path, row, message):
    path = tmp_path / "labels.jsonl"
    path.write_text("\n".join(map(json.dumps, [{"id": "a"}, row])))
    with pytest.raises(DataError, match=message) as caught:
        read_label_table(path)
    assert str(caught.value).startswith(f"{path}:2: ")


def test_bad_files(tmp_path):
    (tmp_path / "labels.jsonl").write_text("")
    with pytest.raises(DataError, match="the file is empty"):
        read_label_table(tmp_path / "labels.jsonl")
    (tmp_path / "labels.csv").write_text("id,name\n")
    with pytest.raises(DataError, match="no labels in the file"):
        read_label_table(tmp_path / "labels.csv")
    with pytest.raises(DataError, match="is a folder"):
        read_label_table(tmp_path)
    with pytest.raises(DataError, match=r"no such file; did you mean .*labels.jsonl"):
        read_label_table(tmp_path / "label.jsonl")


def test_problems_of_the_hierarchy_are_listed():
    table = LabelTable(
        ["a", "b", "c", "d"], ["A", "B", "C", "D"], parents=[("b",), ("c",), ("b",), ("x",)]
    )
    assert table.problems() == [
        "table: the parent 'x' of label 'd' is not in the table",
        "table: the parents form a cycle: b → c → b",
    ]


def test_columns_must_match():
    with pytest.raises(DataError, match="2 label ids but"):
        LabelTable(["a", "b"], ["A"])
    with pytest.raises(DataError, match="occurs twice"):
        LabelTable(["a", "a"], ["A", "B"])


def test_a_deep_hierarchy_needs_no_deep_stack():
    chain = {str(i): (str(i + 1),) for i in range(50_000)}
    assert find_cycles(chain) == []
    chain["50000"] = ("49999",)
    assert find_cycles(chain) == [["49999", "50000"]]


@settings(max_examples=200, deadline=None)
@given(
    st.dictionaries(
        st.sampled_from("abcdef"), st.lists(st.sampled_from("abcdef"), max_size=3, unique=True)
    )
)
def test_cycles_are_found_if_and_only_if_there_are_some(parents):
    cycles = find_cycles(parents)
    for cycle in cycles:
        assert all(
            above in parents[below]
            for below, above in zip(cycle, [*cycle[1:], cycle[0]], strict=True)
        )
    assert bool(cycles) == _has_cycle(parents)


def _has_cycle(parents):
    """Take away labels without parents until nothing changes; a rest has a cycle."""
    left = dict(parents)
    while True:
        free = [label for label, above in left.items() if not any(a in left for a in above)]
        if not free:
            return bool(left)
        for label in free:
            del left[label]


def test_other_names_may_be_called_alt(tmp_path):
    path = tmp_path / "labels.jsonl"
    path.write_text('{"id": "a", "alt": ["Aleph"], "notation": "1.1"}\n')
    assert read_label_table(path).get("a") == LabelEntry(
        "a", "a", alt_names=("Aleph",), notation="1.1"
    )
    path.write_text('{"id": "a", "notation": 1}\n')
    with pytest.raises(DataError, match="the notation is 1, expected a string"):
        read_label_table(path)
