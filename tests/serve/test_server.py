import os

import pytest

from glocal.serve import server


@pytest.mark.parametrize(
    ("cores", "given", "expected"), [(4, None, "3"), (1, None, "1"), (4, "4", "4")]
)
def test_a_core_is_left_for_the_answers(monkeypatch, cores, given, expected):
    monkeypatch.setenv("OMP_NUM_THREADS", given or "")
    if given is None:
        monkeypatch.delenv("OMP_NUM_THREADS")
    monkeypatch.setattr(server, "n_threads", lambda threads: cores)
    server._leave_a_core_free()
    assert os.environ["OMP_NUM_THREADS"] == expected
