"""Encoder weights of a graph rounded to int8, and which layers bear it.

Products with constant weights, which are the encoder's, are computed in int8: weights are rounded
once, column by column, and activations as they come. Label parameters stay as they are. Some
encoders lose accuracy by this (all-mpnet-base-v2), so the caller says which graph is good enough:
all layers are tried first; then layers are added in the order of the harm each does by itself.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from glocal.errors import require
from glocal.export.write_graph import quiet, reason
from glocal.ranking.graph_session import OnnxGraph

logger = logging.getLogger(__name__)

_LAYERS = 12  # groups of products that are rounded or kept together, at most


def quantise(
    source: Path,
    folder: Path,
    *,
    harm: Callable[[Path], float],
    good_enough: Callable[[Path], bool],
) -> int:
    """Write a graph with as many layers in int8 as bear it.

    Args:
        source: The folder of the graph in fp32.
        folder: An existing folder for the result.
        harm: Returns how far a graph's logits are from those of the one in fp32; quick.
        good_enough: Returns whether a graph may be used.

    Returns:
        How many of a hundred products are in int8; 0 if none can be, and nothing is written.
    """
    layers = _layers(source)
    total = sum(map(len, layers))
    _write(source, folder, layers)
    if good_enough(folder):
        return 100
    logger.info("all layers in int8 lose too much; looking for those that bear it")
    harms = []
    for layer in layers:
        _write(source, folder, [layer])
        harms.append(harm(folder))
    order = sorted(range(len(layers)), key=harms.__getitem__)
    # The more layers, the more is lost: bisection finds the largest number that is good enough.
    fewest, most = 0, len(layers) - 1
    while fewest < most:
        count = (fewest + most + 1) // 2
        _write(source, folder, [layers[place] for place in order[:count]])
        fewest, most = (count, most) if good_enough(folder) else (fewest, count - 1)
    _clear(folder)
    if not fewest:
        return 0
    chosen = [layers[place] for place in order[:fewest]]
    _write(source, folder, chosen)
    return max(1, round(100 * sum(map(len, chosen)) / total))


def _layers(source: Path) -> list[list[str]]:
    """Return the names of the products with constant weights, in the graph's order, in groups."""
    onnx = require("onnx", extra="export", purpose="rounding to int8")
    graph = onnx.load(source / OnnxGraph.file, load_external_data=False).graph
    matrices = {tensor.name for tensor in graph.initializer if len(tensor.dims) == 2}
    names = [n.name for n in graph.node if n.op_type == "MatMul" and n.input[1] in matrices]
    size = max(1, -(-len(names) // _LAYERS))
    return [names[start : start + size] for start in range(0, len(names), size)]


def _write(source: Path, folder: Path, layers: Sequence[Sequence[str]]) -> None:
    require("onnx", extra="export", purpose="rounding to int8")
    quantization: Any = require(
        "onnxruntime.quantization", extra="export", purpose="rounding to int8"
    )
    _clear(folder)
    try:
        with quiet():
            quantization.quantize_dynamic(
                source / OnnxGraph.file,
                folder / OnnxGraph.file,
                nodes_to_quantize=[name for layer in layers for name in layer],
                op_types_to_quantize=["MatMul"],
                per_channel=True,
                weight_type=quantization.QuantType.QInt8,
                reduce_range=True,  # seven bits: on processors without VNNI, sums of eight overflow
                use_external_data_format=True,
                extra_options={"MatMulConstBOnly": True},
            )
    except OSError:
        raise
    except Exception as error:  # of files that a full disk cut short, which it does not check
        raise OSError(f"the graph in int8 is incomplete ({reason(error)})") from error


def _clear(folder: Path) -> None:
    for file in folder.iterdir():
        file.unlink()
