"""PECOS and LibMultiLabel, which need a Python environment of their own.

Both ask for other versions of packages than glocal. `GLOCAL_PECOS` and `GLOCAL_LIBMULTILABEL` name
the Python of an environment that has them; features and labels go there over a pipe, and what that
process costs is part of the baseline's cost.
"""

from __future__ import annotations

import functools
import os
import subprocess
import tempfile
import weakref
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Any

from glocal.errors import TrainingError
from glocal.lab.baselines import peer_process
from glocal.lab.baselines.baseline import LinearBaseline, ProcessCost, Say, best_of_pairs, row_pairs
from glocal.ranking.predictions import Predictions


@functools.cache
def version_apart(variable: str, package: str) -> str:
    """Return the version of a package in another environment; empty where it is not installed.

    Args:
        variable: Environment variable that names the Python of that environment.
        package: Its distribution.
    """
    python = os.environ.get(variable, "")
    ask = f"from importlib.metadata import version; print(version({package!r}))"
    try:
        done = subprocess.run([python, "-c", ask], capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return ""
    return done.stdout.strip()


class Apart(LinearBaseline):
    """A linear method that runs in the Python of another environment.

    `settings` are `python` (the variable that names it), `method` (a key of `METHODS` in
    `peer_process`) and the library's own.
    """

    def fit_matrix(self, features: Any, positives: Any, folder: Path, say: Say) -> None:
        """Start the process and have it learn."""
        options = {**self.settings, "threads": self.threads, "seed": self.seed}
        command = [os.environ[options.pop("python")], peer_process.__file__, options.pop("method")]
        environment = os.environ | {"OMP_NUM_THREADS": str(self.threads)}
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115 (closed with the process)
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            env={name: value for name, value in environment.items() if name != "PYTHONPATH"},
        )
        weakref.finalize(self, _end, self._process, self._errors)
        request = {"folder": str(folder / "model"), "options": options}
        matrices = {"features": features, "labels": positives}
        self._ask(request, matrices)

    def predict_matrix(self, features: Any, k: int) -> Predictions:
        """Ask for the best labels of each row."""
        return best_of_pairs(row_pairs(self._ask({"k": k}, {"features": features})), k)

    def _ask(self, request: Mapping[str, Any], matrices: Mapping[str, Any]) -> Any:
        """Send a request and return the matrix of the answer.

        Raises:
            TrainingError: The process ended.
        """
        to, answers = self._process.stdin, self._process.stdout
        assert to is not None
        assert answers is not None
        arrays: peer_process.Arrays = {}
        for name, matrix in matrices.items():
            arrays |= peer_process.matrix_arrays(name, matrix)
        try:
            peer_process.send(to, dict(request), arrays)
            cost, reply = peer_process.receive(answers)
        except (EOFError, BrokenPipeError) as error:
            raise TrainingError(self._last_words()) from error
        self.elsewhere = ProcessCost(cost["cpu_seconds"], cost["peak_bytes"])
        return peer_process.matrix("found", reply) if reply else None

    def _last_words(self) -> str:
        code = self._process.wait()
        self._errors.seek(0)
        said = self._errors.read().decode("utf-8", "replace").strip().splitlines()
        return f"the process of {self.settings['method']} ended with {code}: {' '.join(said[-1:])}"


def _end(process: subprocess.Popen[bytes], errors: IO[bytes]) -> None:
    """End a process by closing its input."""
    assert process.stdin is not None
    process.stdin.close()
    process.wait()
    assert process.stdout is not None
    process.stdout.close()
    errors.close()
