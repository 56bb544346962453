"""Exported graphs in several threads."""

import subprocess
import sys

import pytest

# Several threads use OpenVINO for the first time, at the same moment.
TOGETHER = """
import pathlib, sys, threading
import numpy as np
import openvino
from glocal.ranking.graph_session import OpenvinoGraph

graph = OpenvinoGraph(pathlib.Path(sys.argv[1]), side_by_side=True)
start, found = threading.Barrier(8), []

def run():
    start.wait()
    found.append(graph.run({"x": np.ones((2, 3), np.int64)})[0].sum())

threads = [threading.Thread(target=run, daemon=True) for _ in range(8)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join(60)
assert found == [12.0] * 8, found
"""


def test_threads_that_start_openvino_together_do_not_wait_for_ever(tmp_path):
    openvino = pytest.importorskip("openvino")
    from openvino import opset13 as ops

    x = ops.parameter([-1, -1], openvino.Type.i64, name="x")
    x.output(0).get_tensor().set_names({"x"})
    total = ops.add(ops.convert(x, "f32"), ops.constant(1.0, openvino.Type.f32))
    openvino.save_model(openvino.Model([total], [x]), tmp_path / "model.xml")
    for _ in range(3):  # which of them comes first is chance
        subprocess.run([sys.executable, "-c", TOGETHER, tmp_path], check=True, timeout=60)
