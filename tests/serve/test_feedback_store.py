import json
import os

import pytest

from glocal.errors import ConfigError
from glocal.serve import feedback_store
from glocal.serve.feedback_store import FeedbackStore
from tests.serve.kills import kill_and_check


def rows(folder):
    lines = (folder / "m.jsonl").read_text(encoding="utf-8").splitlines()
    return [json.loads(line)["text"] for line in lines]


def store(folder, *texts):
    target = FeedbackStore(folder)
    for text in texts:
        target.append("m", [{"text": text, "labels": []}]).result(10)
    target.close()


def test_rows_are_appended(tmp_path):
    store(tmp_path, "a", "b\nc \U0001f642")
    store(tmp_path, "d")
    assert rows(tmp_path) == ["a", "b\nc \U0001f642", "d"]


@pytest.mark.parametrize("half", [b"{", b'{"text": "half', b"x" * 200_000])
def test_half_a_row_is_cut_off(tmp_path, half):
    store(tmp_path, "a")
    with (tmp_path / "m.jsonl").open("ab") as file:
        file.write(half)
    store(tmp_path, "b")
    assert rows(tmp_path) == ["a", "b"]


def test_a_failed_write_is_undone_and_reported(tmp_path, monkeypatch):
    target = FeedbackStore(tmp_path)
    target.append("m", [{"text": "a", "labels": []}]).result(10)
    real = os.fsync

    def full(_handle):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(feedback_store.os, "fsync", full)
    with pytest.raises(OSError, match="No space left"):
        target.append("m", [{"text": "lost", "labels": []}]).result(10)
    monkeypatch.setattr(feedback_store.os, "fsync", real)
    target.append("m", [{"text": "b", "labels": []}]).result(10)
    target.close()
    assert rows(tmp_path) == ["a", "b"]


def test_two_servers_do_not_share_a_folder(tmp_path):
    first = FeedbackStore(tmp_path)
    with pytest.raises(ConfigError, match="another process"):
        FeedbackStore(tmp_path)
    first.close()
    FeedbackStore(tmp_path).close()


def test_a_folder_that_cannot_be_made(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match="cannot be written"):
        FeedbackStore(tmp_path / "file")


@pytest.mark.dist
def test_kills_lose_no_acknowledged_row(model, tmp_path):
    acknowledged, kept = kill_and_check(model, tmp_path, kills=5, seed=0)
    assert acknowledged <= kept
    assert acknowledged
