"""Graphs on disk: a system traced once and written for ONNX Runtime or OpenVINO."""

from __future__ import annotations

import contextlib
import logging
import warnings
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch

from glocal.errors import ModelError, first_line, require
from glocal.export.first_token import compute_one_token
from glocal.export.scoring_graph import ScoringGraph
from glocal.ranking.graph_session import OnnxGraph, OpenvinoGraph

_PURPOSE = "exporting models"
_OUTPUTS = ("logits", "shortlist", "proposals")
_ANY_SIZE = 1 << 62


def write_onnx(graph: ScoringGraph, features: Mapping[str, np.ndarray], folder: Path) -> None:
    """Write a system as `model.onnx` and its weights as `model.onnx.data`.

    Args:
        graph: The system.
        features: Companions' features of two texts.
        folder: An existing folder.

    Raises:
        ModelError: The system has a part that cannot be written as a graph.
    """
    for module in ("onnx", "onnxscript"):
        require(module, extra="export", purpose=_PURPOSE)
    inputs = graph.example(features)
    axes = graph.dynamic_axes(inputs)
    try:
        with quiet(), torch.no_grad():
            program: Any = torch.onnx.export(
                graph.eval(),
                (),
                kwargs={"inputs": inputs},
                dynamo=True,
                verbose=False,
                input_names=list(inputs),
                output_names=list(_OUTPUTS[: graph.n_outputs]),
                dynamic_shapes={"inputs": axes},
            )
    except Exception as error:  # of the tracer, which says why at great length
        raise ModelError(f"this model cannot be exported: {reason(error)}") from error
    _check_axes(program, axes)
    _simplify(program.model)
    for node in program.model.graph:  # the lines of code it was traced from
        node.metadata_props.clear()
    program.save(folder / OnnxGraph.file, external_data=True)


def _simplify(model: Any) -> None:
    """Compute what is constant, and leave out what is not read."""
    optimizer: Any = require("onnxscript.optimizer", extra="export", purpose=_PURPOSE)
    for node in list(model.graph):
        drop_round_trip(node)
    optimizer.remove_unused_nodes(model)
    compute_one_token(model)
    with quiet():  # without the usual limits, which leave label parameters to be cut every time
        optimizer.optimize(model, input_size_limit=_ANY_SIZE, output_size_limit=_ANY_SIZE)


def drop_round_trip(node: Any) -> None:
    """Skip a node whose result is the tensor that nodes before it have reshaped and transposed."""
    if node.op_type != "Reshape" or not _known(node.outputs[0]):
        return
    value, order = node.inputs[0], list[int]()  # axes of the value in the order they are read
    while (step := value.producer()) is not None and step.op_type in ("Reshape", "Transpose"):
        if step.op_type == "Transpose":
            moved = list(step.attributes.get_ints("perm"))
            order = [moved[place] for place in order] if order else moved
        elif order != sorted(order):
            return
        value = step.inputs[0]
        if order == sorted(order) and value.shape == node.outputs[0].shape:
            node.outputs[0].replace_all_uses_with(value, replace_graph_outputs=True)
            return


def _known(value: Any) -> bool:
    """Return whether every axis of a value has a size or the name of one."""
    axes = value.shape or [None]
    return all(isinstance(axis, int) or getattr(axis, "value", None) for axis in axes)


def write_openvino(source: Path, folder: Path) -> None:
    """Convert a graph from ONNX to `model.xml` and `model.bin`, in full precision.

    Args:
        source: The folder of the graph in ONNX.
        folder: An existing folder.
    """
    openvino = require("openvino", extra="openvino", purpose="exporting to OpenVINO")
    onnx = require("onnx", extra="export", purpose=_PURPOSE)
    graph = onnx.load(source / OnnxGraph.file, load_external_data=False).graph
    names = {value.name for value in graph.input}
    model = openvino.convert_model(source / OnnxGraph.file)
    for port in model.inputs:  # which may also have names of its own
        port.get_tensor().set_names(names & port.get_names())
    try:
        openvino.save_model(model, folder / OpenvinoGraph.file, compress_to_fp16=False)
        openvino.Core().read_model(folder / OpenvinoGraph.file)  # files can be cut without a word
    except RuntimeError as error:
        raise OSError(f"the graph is incomplete ({reason(error)})") from error


def _check_axes(program: Any, axes: Mapping[str, Mapping[int, Any]]) -> None:
    """Refuse a graph whose size of batches or texts was fixed while it was traced."""
    for value in program.model.graph.inputs:
        fixed = [axis for axis in axes[value.name] if isinstance(value.shape[axis], int)]
        if fixed:
            raise ModelError(
                f"this model cannot be exported: its graph reads {value.name} of one size only"
            )


def reason(error: BaseException) -> str:
    """Return the line of the first cause that says what is wrong."""
    while error.__cause__ is not None:
        error = error.__cause__
    return first_line(error)


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Silence the warnings of other libraries, which speak to their developers."""
    before = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(before)
