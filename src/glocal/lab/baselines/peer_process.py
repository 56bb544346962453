"""A library that needs a Python environment of its own, driven over a pipe.

This file runs in that environment, as a script: it imports nothing of glocal. `apart.py` is the
other end. A message is a line of JSON, whose `arrays` say type and shape of what follows in bytes.
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path
from typing import IO, Any

import numpy as np

Arrays = dict[str, Any]


def send(stream: IO[bytes], message: dict[str, Any], arrays: Arrays | None = None) -> None:
    """Write a message and its arrays."""
    arrays = {name: np.ascontiguousarray(array) for name, array in (arrays or {}).items()}
    about = {name: [str(array.dtype), array.shape] for name, array in arrays.items()}
    stream.write(json.dumps({**message, "arrays": about}).encode() + b"\n")
    for array in arrays.values():
        stream.write(array.data.cast("B") if array.size else b"")
    stream.flush()


def receive(stream: IO[bytes]) -> tuple[dict[str, Any], Arrays]:
    """Read a message and its arrays.

    Raises:
        EOFError: The other end is gone.
    """
    line = stream.readline()
    if not line:
        raise EOFError
    message = json.loads(line)
    arrays = {}
    for name, (kind, shape) in message.pop("arrays").items():
        size = int(np.prod(shape)) * np.dtype(kind).itemsize
        arrays[name] = np.frombuffer(stream.read(size), kind).reshape(shape)
    return message, arrays


def matrix_arrays(name: str, matrix: Any) -> Arrays:
    """Return the arrays of a CSR matrix."""
    shape = np.array(matrix.shape, np.int64)
    parts = {"data": matrix.data, "indices": matrix.indices, "indptr": matrix.indptr}
    return {f"{name}-{part}": array for part, array in (parts | {"shape": shape}).items()}


def matrix(name: str, arrays: Arrays) -> Any:
    """Return a CSR matrix that came as arrays."""
    from scipy.sparse import csr_matrix

    data, indices, bounds, shape = (
        arrays[f"{name}-{part}"] for part in ("data", "indices", "indptr", "shape")
    )
    return csr_matrix((data.astype(np.float32), indices, bounds), shape=tuple(shape))


class Pecos:
    """XR-Linear; with `tree` set to false one classifier for each label, against every text."""

    def fit(self, features: Any, labels: Any, folder: str, options: dict[str, Any]) -> None:
        """Train, and load the model again for prediction alone."""
        from pecos.xmc import Indexer, LabelEmbeddingFactory
        from pecos.xmc.xlinear.model import XLinearModel

        self.threads = options.pop("threads")
        clusters = None
        if options.pop("tree"):
            means = LabelEmbeddingFactory.create(labels, features, method="pifa")
            clusters = Indexer.gen(means, seed=options.pop("seed"), threads=self.threads)
        options.pop("seed", None)
        model = XLinearModel.train(features, labels, C=clusters, threads=self.threads, **options)
        model.save(folder)
        self.model = XLinearModel.load(folder, is_predict_only=True)

    def predict(self, features: Any, k: int) -> Any:
        """Return the scores of the best labels, CSR."""
        return self.model.predict(features, only_topk=k, threads=self.threads).tocsr()


class LibMultiLabelTree:
    """The label tree of LibMultiLabel's linear methods."""

    def fit(self, features: Any, labels: Any, folder: str, options: dict[str, Any]) -> None:
        """Train with one thread, as the library does."""
        import pickle

        from libmultilabel import linear

        self.model = linear.train_tree(labels, features, options["liblinear"], verbose=False)
        Path(folder).mkdir()
        (Path(folder) / "model").write_bytes(pickle.dumps(self.model))  # only its size counts

    def predict(self, features: Any, k: int) -> Any:
        """Return the scores of the best labels, CSR."""
        from scipy.sparse import csr_matrix, vstack

        parts = []
        for start in range(0, features.shape[0], 256):
            scores = np.asarray(self.model.predict_values(features[start : start + 256]))
            best = np.argpartition(-scores, k - 1, axis=1)[:, :k]
            rows = np.arange(0, best.size + 1, k)
            values = np.take_along_axis(scores, best, axis=1)
            parts.append(csr_matrix((values.ravel(), best.ravel(), rows), shape=scores.shape))
        return vstack(parts, format="csr")


METHODS: dict[str, Any] = {"pecos": Pecos, "libmultilabel-tree": LibMultiLabelTree}


def peak_bytes() -> int:
    """Return the most memory this process has had; 0 where the system does not say."""
    status = Path("/proc/self/status")
    lines = status.read_text().splitlines() if status.exists() else []
    return sum(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM"))


def main() -> None:
    """Answer requests until standard input ends."""
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "wb")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # what a library prints is no answer
    method = METHODS[sys.argv[1]]()
    while True:
        try:
            request, arrays = receive(sys.stdin.buffer)
        except EOFError:
            return
        reply: Arrays = {}
        if "k" in request:
            reply = matrix_arrays("found", method.predict(matrix("features", arrays), request["k"]))
        else:
            texts = matrix("features", arrays), matrix("labels", arrays)
            method.fit(*texts, request["folder"], request["options"])
        cost = {"cpu_seconds": time.process_time(), "peak_bytes": peak_bytes()}
        send(answers, cost, reply)


if __name__ == "__main__":
    main()
