"""Predictions: order, parts, files."""

from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from glocal.errors import DataError
from glocal.ranking.predictions import Predictions
from glocal.vocabulary.label_space import LabelSpace

INF = np.inf


def predictions(indices, scores):
    return Predictions(np.array(indices, dtype=np.int64), np.array(scores, dtype=np.float32))


@pytest.fixture
def sample():
    return predictions([[3, 1, 2], [0, 4, -1]], [[0.9, 0.5, 0.25], [0.75, 0.5, -INF]])


def same(one, other):
    return np.array_equal(one.indices, other.indices) and np.array_equal(one.scores, other.scores)


def test_length_and_width(sample):
    assert len(sample) == 2
    assert sample.k == 3


@pytest.mark.parametrize(
    ("indices", "scores"),
    [
        ([[0, 1]], [[0.1, 0.2]]),
        ([[0, 1, 2]], [[0.9, 0.1, 0.2]]),
        ([[-1, 1]], [[0.2, 0.1]]),
        ([[0, -1, 1]], [[0.3, 0.2, 0.1]]),
        ([[0, 1]], [[0.2, np.nan]]),
        ([[0]], [[np.nan]]),
        ([[0, -2]], [[0.2, 0.1]]),
    ],
)
def test_what_is_not_sorted_is_refused_with_its_row(indices, scores):
    fine = [[5] * len(indices[0])], [[-INF] * len(indices[0])]
    fine[0][0][1:] = [-1] * (len(indices[0]) - 1)
    with pytest.raises(DataError, match=r"document 1 .*from_unsorted"):
        predictions(fine[0] + indices, fine[1] + scores)


def test_wrong_shapes_and_types_are_refused():
    with pytest.raises(DataError, match="one shape"):
        predictions([[0, 1]], [[0.5]])
    with pytest.raises(DataError, match="one shape"):
        predictions([0], [0.5])
    with pytest.raises(DataError, match="int64 indices and float32"):
        Predictions(np.zeros((1, 1), np.int32), np.zeros((1, 1), np.float32))


def test_exact_ties_are_put_in_the_order_of_labels():
    tied = predictions([[7, 9, 2]], [[0.9, 0.5, 0.5]])
    assert tied.indices.tolist() == [[7, 2, 9]]


def test_empty_slots_score_minus_infinity():
    assert predictions([[7, -1]], [[0.9, 0.0]]).scores[0, 1] == -INF


def test_from_unsorted_keeps_the_best():
    best = Predictions.from_unsorted(np.array([[1, 2, 3]]), np.array([[0.1, 0.3, 0.2]]), 2)
    assert best.indices.tolist() == [[2, 3]]


def test_head_and_take(sample):
    assert sample.head(1).indices.tolist() == [[3], [0]]
    assert sample.head(9).k == 3
    assert sample.take(np.array([1, 0])).indices[0].tolist() == [0, 4, -1]
    assert len(sample.take(np.array([False, True]))) == 1


def test_above_keeps_the_threshold_itself(sample):
    assert sample.above(0.5).indices.tolist() == [[3, 1, -1], [0, 4, -1]]
    assert sample.above(0.8).scores.tolist() == [[pytest.approx(0.9), -INF, -INF], [-INF] * 3]


def test_masked_closes_gaps(sample):
    mask = np.array([[False, True, True], [True, True, True]])
    assert sample.masked(mask).indices.tolist() == [[1, 2, -1], [0, 4, -1]]


def test_concat_widens_the_narrow(sample):
    joined = Predictions.concat([sample, sample.head(1)])
    assert joined.indices.tolist() == [[3, 1, 2], [0, 4, -1], [3, -1, -1], [0, -1, -1]]
    assert len(Predictions.concat([])) == 0


def test_file_round_trip(sample, tmp_path):
    sample.save(tmp_path / "p.parquet")
    assert same(Predictions.load(tmp_path / "p.parquet"), sample)
    assert [path.name for path in tmp_path.iterdir()] == ["p.parquet"]


@pytest.mark.parametrize("shape", [(0, 3), (2, 0), (0, 0)])
def test_empty_round_trip(shape, tmp_path):
    empty = Predictions(np.zeros(shape, np.int64), np.zeros(shape, np.float32))
    empty.save(tmp_path / "p.parquet")
    assert Predictions.load(tmp_path / "p.parquet").indices.shape == shape


def test_a_failed_write_harms_nothing(sample, tmp_path, monkeypatch):
    path = tmp_path / "p.parquet"
    sample.save(path)

    def full(table, file):
        file.write(b"half")
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(pq, "write_table", full)
    with pytest.raises(DataError, match="No space left"):
        sample.head(1).save(path)
    assert same(Predictions.load(path), sample)
    assert len(list(tmp_path.iterdir())) == 1


LABELS, SCORES = pa.list_(pa.int64()), pa.list_(pa.float32())


@pytest.mark.parametrize(
    ("indices", "scores", "reason"),
    [
        (pa.array([[1]], LABELS), None, "scores"),
        (pa.array([1]), pa.array([[0.5]], SCORES), "int64, not lists"),
        (pa.array([["a"]]), pa.array([[0.5]], SCORES), "string"),
        (pa.array([[1], [1, 2]], LABELS), pa.array([[0.5], [0.5, 0.4]], SCORES), "lengths"),
        (pa.array([[1, None]], LABELS), pa.array([[0.5, 0.4]], SCORES), "gaps"),
        (pa.array([[1], None], LABELS), pa.array([[0.5], None], SCORES), "gaps"),
        (pa.array([[1, 2]], LABELS), pa.array([[0.1, 0.4]], SCORES), "not sorted"),
    ],
)
def test_other_parquet_files_are_refused_by_name(indices, scores, reason, tmp_path):
    columns = {"indices": indices} if scores is None else {"indices": indices, "scores": scores}
    path = tmp_path / "other.parquet"
    pq.write_table(pa.table(columns), path)
    with pytest.raises(DataError, match=rf"other\.parquet: not readable.*{reason}"):
        Predictions.load(path)


def test_broken_and_missing_files_are_refused_by_name(sample, tmp_path):
    path = tmp_path / "cut.parquet"
    sample.save(path)
    path.write_bytes(path.read_bytes()[:-20])
    with pytest.raises(DataError, match=r"cut\.parquet"):
        Predictions.load(path)
    with pytest.raises(DataError, match=r"none\.parquet"):
        Predictions.load(tmp_path / "none.parquet")


# --- labels and experts ----------------------------------------------------------------------

LABELS = LabelSpace(
    list("abcde"), ["A", "B", "C", "D", "E"], [""] * 5, [()] * 5, np.ones(5, np.int64), 5
)


@pytest.fixture
def whole(sample):
    """Predictions with labels, an expert's own and the mean's."""
    expert = predictions([[1, 3, 0], [4, 2, 0]], [[0.8, 0.4, 0.2], [0.9, 0.8, 0.1]])
    return replace(sample, experts={"A-1": expert}, mean=expert).with_labels(LABELS)


def test_documents_are_lists_of_tags(whole):
    first, second = whole
    assert first == [("d", "D", pytest.approx(0.9)), ("b", "B", 0.5), ("c", "C", 0.25)]
    assert (first[1].id, first[1].name, first[1].score) == ("b", "B", 0.5)
    assert second == whole[1] == whole[-1]
    assert [tag.id for tag in second] == ["a", "e"]  # the empty slot has no tag
    assert whole.label_ids(1) == ["a", "e"]
    assert whole.label_names(0) == ["D", "B", "C"]
    assert whole.experts["A-1"].label_ids(0) == ["b", "d", "a"]


def test_without_a_label_space_there_are_no_names(sample):
    with pytest.raises(DataError, match=r"do not know their label space.*with_labels"):
        sample[0]


def test_heads_and_selections_take_the_experts_along(whole):
    for found in (whole.head(2), whole.take(np.array([1, 0])), Predictions.concat([whole, whole])):
        assert found.labels is LABELS
        assert found.experts.keys() == {"A-1"}
        assert found.experts["A-1"].indices.shape == found.mean.indices.shape == found.indices.shape
    assert whole.head(1).experts["A-1"].indices.tolist() == [[1], [4]]
    assert whole.take(np.array([1])).mean.indices.tolist() == [[4, 2, 0]]
    assert Predictions.concat([whole, whole]).experts["A-1"].indices.tolist()[2] == [1, 3, 0]


def test_a_threshold_drops_the_experts(whole):
    found = whole.above(0.5)
    assert [len(tags) for tags in found] == [2, 2]
    assert not found.experts
    assert found.mean is None


def test_the_representation_is_short(whole):
    assert repr(whole) == "Predictions(2 documents, k=3, experts=['A-1'])"


def test_exact_ties_are_ordered_by_label_wherever_they_stand():
    assert predictions([[5, 3, 2]], [[0.9, 0.5, 0.5]]).indices.tolist() == [[5, 2, 3]]


def test_joined_predictions_of_other_widths_end_in_empty_slots(sample):
    joined = Predictions.concat([predictions([[1]], [[0.5]]), sample])
    assert joined.indices[0].tolist() == [1, -1, -1]
    assert joined.scores[0].tolist() == [0.5, -INF, -INF]


def test_arrays_in_order_are_kept_as_they_are():
    indices = np.array([[3, 1, 0], [0, 4, -1]])
    scores = np.array([[0.9, 0.5, 0.25], [0.75, 0.5, -INF]], dtype=np.float32)
    found = Predictions(indices, scores)
    assert found.indices is indices
    assert found.scores is scores


def test_ties_are_put_in_order_wherever_they_are():
    found = predictions(
        [[0, 2, 1], [4, 3, -1], [9, 8, 7]], [[0.9, 0.5, 0.5], [0.5, 0.5, 0], [1, 1, 0]]
    )
    assert found.indices.tolist() == [[0, 1, 2], [3, 4, -1], [8, 9, 7]]
    only_last = predictions([[0, 2, 1]], [[0.9, 0.5, 0.5]])
    assert only_last.indices.tolist() == [[0, 1, 2]]
