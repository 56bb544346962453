"""Products of a graph rounded to int8, and which of them bear it.

Products of tokens with constant weights, which are the encoder's and the experts' projections, are
computed in int8: weights are rounded once, column by column, and activations as they come. Label
parameters stay as they are. Some encoders lose accuracy by this (all-mpnet-base-v2), so the caller
says which graph is good enough. The search is short: all products are tried first; then groups of
them are ordered by the harm each does by itself, and bisection finds how many are good enough.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from glocal.errors import require
from glocal.export.write_graph import quiet, reason
from glocal.ranking.graph_session import OnnxGraph

_GROUPS = 8  # groups of products that are rounded or kept together, at most
ROUNDS = 1 + math.ceil(math.log2(_GROUPS))  # graphs that are judged, at most
_PURPOSE = "rounding to int8"


@dataclass(frozen=True)
class Products:
    """Products of tokens with weights of one kind.

    Attributes:
        kind: The shape of the weights, as the user reads it.
        names: The nodes of the products.
    """

    kind: str
    names: tuple[str, ...]


@dataclass(frozen=True)
class Rounded:
    """The outcome of rounding.

    Attributes:
        int8: Groups of products that are in int8.
        fp32: Groups of products that stayed in fp32.
    """

    int8: Sequence[Products]
    fp32: Sequence[Products] = ()

    @property
    def share(self) -> int:
        """How many of a hundred products are in int8."""
        few, rest = (sum(len(p.names) for p in part) for part in (self.int8, self.fp32))
        return max(1, round(100 * few / (few + rest))) if few else 0


def quantise(
    source: Path,
    folder: Path,
    *,
    harm: Callable[[Path], float],
    good_enough: Callable[[Path], bool],
    report: Callable[[str], None],
) -> Rounded:
    """Write a graph with as many products in int8 as bear it; nothing is written if none does.

    Args:
        source: The folder of the graph in fp32.
        folder: An existing folder for the result.
        harm: Returns how far a graph's logits are from those of the one in fp32; quick.
        good_enough: Returns whether a graph may be used; it is called `ROUNDS` times at most.
        report: Receives what is being done.
    """
    groups = _groups(source)
    if not groups:
        return Rounded(groups)
    report(f"rounding all {sum(len(group.names) for group in groups)} products to int8")
    _write(source, folder, groups)
    if good_enough(folder):
        return Rounded(groups)
    harms = []
    for number, group in enumerate(groups, start=1):
        report(f"measuring the harm of int8, part {number} of {len(groups)}: weights {group.kind}")
        _write(source, folder, [group])
        harms.append(harm(folder))
    order = [groups[place] for place in sorted(range(len(groups)), key=harms.__getitem__)]
    # The more products, the more is lost: bisection finds the largest number that is good enough.
    fewest, most, written = 0, len(order) - 1, -1
    while fewest < most:
        written = (fewest + most + 1) // 2
        report(f"rounding the {written} least harmful of {len(order)} parts to int8")
        _write(source, folder, order[:written])
        fewest, most = (written, most) if good_enough(folder) else (fewest, written - 1)
    if not fewest:
        _clear(folder)
    elif written != fewest:
        _write(source, folder, order[:fewest])
    return Rounded(order[:fewest], order[fewest:])


def _groups(source: Path) -> list[Products]:
    """Return the products of tokens with constant weights: by shape, lower and upper layers."""
    onnx = require("onnx", extra="export", purpose=_PURPOSE)
    graph = onnx.load(source / OnnxGraph.file, load_external_data=False).graph
    matrices = {t.name: " × ".join(map(str, t.dims)) for t in graph.initializer if len(t.dims) == 2}
    ranks = {v.name: len(v.type.tensor_type.shape.dim) for v in graph.value_info}
    by_shape: dict[str, list[str]] = {}
    for node in graph.node:
        if node.op_type == "MatMul" and node.input[1] in matrices and ranks.get(node.input[0]) == 3:
            by_shape.setdefault(matrices[node.input[1]], []).append(node.name)
    groups = []
    for shape, names in by_shape.items():
        half = -(-len(names) // 2)
        lower = Products(f"{shape}, lower layers", tuple(names[:half]))
        upper = Products(f"{shape}, upper layers", tuple(names[half:]))
        groups += [lower, upper] if len(names) > 1 else [Products(shape, tuple(names))]
    while len(groups) > _GROUPS:
        groups.sort(key=lambda group: len(group.names))
        first, second, *others = groups
        groups = [Products("of other shapes", first.names + second.names), *others]
    return groups


def _write(source: Path, folder: Path, groups: Sequence[Products]) -> None:
    require("onnx", extra="export", purpose=_PURPOSE)
    quantization: Any = require("onnxruntime.quantization", extra="export", purpose=_PURPOSE)
    _clear(folder)
    try:
        with quiet():
            quantization.quantize_dynamic(
                source / OnnxGraph.file,
                folder / OnnxGraph.file,
                nodes_to_quantize=[name for group in groups for name in group.names],
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
