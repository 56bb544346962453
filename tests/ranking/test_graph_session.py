"""Exported graphs in several threads."""

import subprocess
import sys
from types import SimpleNamespace

import numpy as np
import pytest

from glocal.errors import ModelError
from glocal.ranking import graph_session
from glocal.ranking.graph_session import open_graph

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


@pytest.fixture
def graphs(tmp_path):
    """A graph that gives x + 1 and y, in both runtimes."""
    onnx, openvino = pytest.importorskip("onnx"), pytest.importorskip("openvino")
    from onnx import TensorProto, helper
    from openvino import opset13 as ops

    sizes = ["rows", "columns"]
    inputs = [helper.make_tensor_value_info(n, TensorProto.FLOAT, sizes) for n in ("x", "y")]
    outputs = [helper.make_tensor_value_info(n, TensorProto.FLOAT, sizes) for n in ("more", "same")]
    one = helper.make_tensor("one", TensorProto.FLOAT, [], [1.0])
    nodes = [
        helper.make_node("Add", ["x", "one"], ["more"]),
        helper.make_node("Identity", ["y"], ["same"]),
    ]
    graph = helper.make_graph(nodes, "graph", inputs, outputs, [one])
    opsets = [helper.make_opsetid("", 17)]
    onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=9), tmp_path / "model.onnx")
    x, y = (ops.parameter([-1, -1], openvino.Type.f32, name=name) for name in ("x", "y"))
    for node, name in ((x, "x"), (y, "y")):
        node.output(0).get_tensor().set_names({name})
    model = openvino.Model([ops.add(x, ops.constant(1.0, openvino.Type.f32)), y], [x, y])
    openvino.save_model(model, tmp_path / "model.xml")
    return tmp_path


@pytest.mark.parametrize("runtime", ["onnx", "openvino"])
@pytest.mark.parametrize("side_by_side", [False, True])
def test_outputs_come_in_the_order_of_the_graph(graphs, runtime, side_by_side):
    graph = open_graph(graphs, runtime, side_by_side=side_by_side)
    assert graph.input_names == {"x", "y"}
    x, y = np.float32([[1, 2]]), np.float32([[3, 4]])
    more, same = graph.run({"y": y, "x": x})
    assert more.tolist() == [[2, 3]]
    assert same.tolist() == [[3, 4]]
    assert graph.run({"x": y, "y": x})[0].tolist() == [[4, 5]]


def test_onnx_runtime_takes_the_threads_there_are(graphs, monkeypatch):
    ort, settings = pytest.importorskip("onnxruntime"), []
    start = ort.InferenceSession

    def session(path, options, **others):
        settings.append((options, others))
        return start(path, options, **others)

    monkeypatch.setattr(ort, "InferenceSession", session)
    monkeypatch.setattr(graph_session, "n_threads", lambda given: 3 + given)
    open_graph(graphs, "onnx")
    open_graph(graphs, "onnx", side_by_side=True)
    assert [options.intra_op_num_threads for options, _ in settings] == [3, 1]
    for options, others in settings:
        assert options.inter_op_num_threads == 1
        assert not options.enable_mem_pattern
        spinning = ("session.intra_op.allow_spinning", "session.force_spinning_stop")
        assert [options.get_session_config_entry(name) for name in spinning] == ["1", "1"]
        assert others["providers"] == ["CPUExecutionProvider"]
        assert others["disabled_optimizers"] == ["SkipLayerNormFusion"]


def test_openvino_computes_in_fp32_with_a_stream_for_each_call(graphs, monkeypatch):
    openvino, settings = pytest.importorskip("openvino"), []

    class Core(openvino.Core):
        def compile_model(self, model, device, given):
            settings.append((device, given))
            return super().compile_model(model, device, given)

    monkeypatch.setattr(openvino, "Core", Core)
    monkeypatch.setattr(graph_session, "n_threads", lambda given: 2 + given)
    open_graph(graphs, "openvino")
    open_graph(graphs, "openvino", side_by_side=True)
    plain = {"INFERENCE_NUM_THREADS": 2, "INFERENCE_PRECISION_HINT": "f32"}
    assert settings == [
        ("CPU", {**plain, "PERFORMANCE_HINT": "LATENCY"}),
        ("CPU", {**plain, "PERFORMANCE_HINT": "THROUGHPUT", "NUM_STREAMS": 2}),
    ]


def test_an_unknown_runtime_is_refused(tmp_path):
    with pytest.raises(ModelError, match=r"no runtime 'onx' \(did you mean 'onnx'"):
        open_graph(tmp_path, "onx")


class Typed:
    """Stands in for OpenVINO and records which types of numpy it looks up, and when."""

    def __init__(self):
        self.looked_up = []

    def Tensor(self, array):
        def to_dtype():
            self.looked_up.append((array.dtype, graph_session._STARTING.locked()))

        return SimpleNamespace(
            get_element_type=lambda: SimpleNamespace(to_dtype=to_dtype), data=array
        )


def test_openvino_looks_up_the_types_of_arrays_in_one_thread():
    openvino = Typed()
    graph_session._start_openvino(openvino)
    types = [np.dtype(kind) for kind in (np.int64, np.float32, np.bool_)]
    assert openvino.looked_up == [(kind, True) for kind in types]


def test_openvino_is_started_before_a_graph_is_read(graphs, monkeypatch):
    openvino, started = pytest.importorskip("openvino"), []
    monkeypatch.setattr(graph_session, "_start_openvino", started.append)
    graph_session.OpenvinoGraph(graphs, side_by_side=False)
    assert started == [openvino]


def test_onnx_runtime_raises_problems_and_prints_none(graphs, monkeypatch):
    ort, levels = pytest.importorskip("onnxruntime"), []
    monkeypatch.setattr(ort, "set_default_logger_severity", levels.append)
    open_graph(graphs, "onnx")
    assert levels == [4]
