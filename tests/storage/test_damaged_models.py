"""Model directories with one damaged file each, the checksums computed again."""

import os
import subprocess
import sys

import pytest


@pytest.mark.skipif(sys.platform == "win32", reason="cases are forked")
def test_no_damage_crashes_or_hangs_a_command(tmp_path):
    # A process of its own: cases are forked, which needs a parent without other threads.
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "TOKENIZERS_PARALLELISM": "false"}
    command = [sys.executable, "-m", "tests.fuzz_models", "40"]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    assert done.returncode == 0, done.stdout + done.stderr[-2000:]
