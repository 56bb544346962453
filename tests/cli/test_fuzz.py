import pytest

from tests.cli.conftest import invoke
from tests.fuzz import case, problem


@pytest.fixture(scope="module")
def fast(tmp_path_factory, files):
    out = tmp_path_factory.mktemp("fuzz") / "fast"
    assert invoke("train", files.train, "--recipe", "fast", "--out", out).exit_code == 0
    return out


# These had halves of UTF-16 pairs in an id, and marks that turn the direction of writing.
FOUND = (1287, 2229, 2261)


@pytest.mark.parametrize("block", range(6))
def test_no_input_makes_a_command_fail_badly(fast, tmp_path, block):
    for seed in [*range(50 * block, 50 * (block + 1)), *FOUND[block : block + 1]]:
        arguments, content = case(seed, tmp_path, fast)
        found = problem(invoke(*arguments, input=content), arguments)
        assert not found, f"seed {seed}: {arguments}: {found}"
