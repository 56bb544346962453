"""Exported graphs on the CPU: ONNX Runtime or OpenVINO behind one interface, neither with torch.

A graph is a folder: `model.onnx` with its weights in `model.onnx.data`, or OpenVINO's `model.xml`
with `model.bin`. Weights are memory-mapped, so that processes with the same model share them.
"""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from glocal.companions.sparse.threads import n_threads
from glocal.errors import ModelError, no_such, require

Arrays = Mapping[str, np.ndarray]
_STARTING = threading.Lock()


class Graph(ABC):
    """A graph that was loaded; may be run from several threads.

    Attributes:
        runtime: Its name in a model directory.
        file: The file inside the graph's folder that is opened.
        input_names: The inputs it needs.
    """

    runtime: ClassVar[str]
    file: ClassVar[str]
    input_names: frozenset[str]

    @abstractmethod
    def __init__(self, folder: Path, *, side_by_side: bool) -> None: ...

    @abstractmethod
    def run(self, inputs: Arrays) -> list[np.ndarray]:
        """Return the outputs in the order of the graph."""


class OnnxGraph(Graph):
    """A graph in ONNX Runtime.

    Args:
        folder: The graph's folder.
        side_by_side: Use one thread for each call, of which there are several at a time.
    """

    runtime, file = "onnx", "model.onnx"

    def __init__(self, folder: Path, *, side_by_side: bool) -> None:
        ort = require("onnxruntime", extra="runtime", purpose="models exported to ONNX")
        ort.set_default_logger_severity(4)  # problems are raised
        options = ort.SessionOptions()
        options.intra_op_num_threads = 1 if side_by_side else n_threads(0)
        options.inter_op_num_threads = 1
        options.enable_mem_pattern = False  # batches have many shapes
        # Threads stay awake between the steps of a call, which saves a tenth of its time; after it
        # they must leave the processor to others.
        options.add_session_config_entry("session.intra_op.allow_spinning", "1")
        options.add_session_config_entry("session.force_spinning_stop", "1")
        self._session = ort.InferenceSession(
            str(folder / self.file),
            options,
            providers=["CPUExecutionProvider"],
            disabled_optimizers=["SkipLayerNormFusion"],  # it is slower than what it replaces
        )
        self.input_names = frozenset(value.name for value in self._session.get_inputs())

    def run(self, inputs: Arrays) -> list[np.ndarray]:
        """Return the outputs in the order of the graph."""
        found: list[np.ndarray] = self._session.run(None, dict(inputs))
        return found


class OpenvinoGraph(Graph):
    """A graph in OpenVINO.

    Args:
        folder: The graph's folder.
        side_by_side: Use one thread for each call, of which there are several at a time.
    """

    runtime, file = "openvino", "model.xml"

    def __init__(self, folder: Path, *, side_by_side: bool) -> None:
        openvino = require("openvino", extra="openvino", purpose="models exported to OpenVINO")
        _start_openvino(openvino)
        settings: dict[str, Any] = {
            "INFERENCE_NUM_THREADS": n_threads(0),
            "INFERENCE_PRECISION_HINT": "f32",  # never rounded to bf16, whatever the processor
            "PERFORMANCE_HINT": "THROUGHPUT" if side_by_side else "LATENCY",
        }
        if side_by_side:
            settings["NUM_STREAMS"] = n_threads(0)
        core = openvino.Core()
        model = core.read_model(folder / self.file)
        self._order = [port.get_any_name() for port in model.inputs]  # compiling may add names
        self.input_names = frozenset(self._order)
        self._compiled = core.compile_model(model, "CPU", settings)

    def run(self, inputs: Arrays) -> list[np.ndarray]:
        """Return the outputs in the order of the graph."""
        # A request of its own for each call, so that threads do not meet.
        given = [inputs[name] for name in self._order]
        found = self._compiled.create_infer_request().infer(given, share_inputs=True)
        return [np.asarray(found[port]) for port in self._compiled.outputs]


def _start_openvino(openvino: Any) -> None:
    """Have OpenVINO look up numpy's types, once, in one thread.

    It does so at its first use of arrays and holds a lock of its own meanwhile. Threads that use it
    first at the same time wait for ever, one for that lock and one for Python's.
    """
    with _STARTING:
        for kind in (np.int64, np.float32, np.bool_):
            tensor = openvino.Tensor(np.zeros(1, kind))
            tensor.get_element_type().to_dtype()
            np.asarray(tensor.data)


RUNTIMES: dict[str, type[Graph]] = {kind.runtime: kind for kind in (OnnxGraph, OpenvinoGraph)}


def open_graph(folder: Path, runtime: str, *, side_by_side: bool = False) -> Graph:
    """Load the graph in a folder.

    Args:
        folder: The graph's folder.
        runtime: The name of the runtime.
        side_by_side: Use one thread for each call, of which there are several at a time.

    Raises:
        ModelError: It is missing or damaged.
        MissingExtraError: The runtime is not installed.
    """
    if runtime not in RUNTIMES:
        raise ModelError(no_such("runtime", runtime, RUNTIMES))
    return RUNTIMES[runtime](folder, side_by_side=side_by_side)
