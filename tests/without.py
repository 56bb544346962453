"""Child processes in which some packages cannot be imported, as where they are not installed."""

import os
import subprocess
import sys

TRAINING = ("torch", "transformers", "accelerate", "tokenizers")

_BLOCK = """
import sys

class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in {absent!r}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)

sys.meta_path.insert(0, Absent())
"""


def run_without(code, *arguments, absent=TRAINING, cwd=None, check=True):
    """Run Python code in a new process where the packages are absent."""
    found = subprocess.run(
        [sys.executable, "-c", _BLOCK.format(absent=set(absent)) + code, *map(str, arguments)],
        capture_output=True,
        text=True,
        cwd=cwd,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    assert not check or found.returncode == 0, found.stderr
    return found


def glocal_without(*arguments, **options):
    """Run the command line in such a process."""
    code = "sys.argv[0] = 'glocal'\nfrom glocal.cli import main\nmain()"
    return run_without(code, *arguments, **options)
