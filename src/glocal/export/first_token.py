"""Layers that are read at one token alone, computed for that token alone.

A document expert reads the first token of the last layer (or the last token, see `Encoder`). Where
nothing else reads that layer, its queries, output and feed-forward part are needed for one token;
keys and values still come from all. Of six layers this saves a seventh of the products.

    before   hidden states → queries, keys, values → attention → feed-forward → token
    after    hidden states → keys, values → attention → feed-forward
                    └ token → query ────────────┘
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import numpy as np

from glocal.errors import require
from glocal.export.node_attention import NODE

# Nodes that compute each token by itself from their first input.
_TOKENWISE = {"LayerNormalization", "Gelu", "Relu", "Tanh", "Erf", "Sigmoid", "Sqrt", "Cast"}
_PAIRWISE = {"Add", "Sub", "Mul", "Div"}
_TOKENS = 1  # the axis of tokens


def compute_one_token(model: Any) -> None:
    """Move selections of one token up the graph, before the nodes that nothing else reads.

    Args:
        model: A model of `onnx_ir`; it is changed.
    """
    nodes = list(model.graph)
    for place in (0, -1):
        selecting = {node for node in nodes if _selected(node) == place}
        if selecting:
            _narrow(model.graph, _region(nodes, selecting), place)


def _selected(node: Any) -> int | None:
    """Return the token that a node selects of (B, T, H); None if it does something else."""
    if node.op_type != "Gather" or node.attributes.get_int("axis", 0) != _TOKENS:
        return None
    index = node.inputs[1].const_value
    return int(index.numpy()) if index is not None and index.numpy().ndim == 0 else None


def _region(nodes: list[Any], selecting: Collection[Any]) -> list[Any]:
    """Return the nodes of whose results only the selected token is read, the last one first."""
    found: dict[Any, set[int]] = {}  # by node, the inputs that are needed of that token alone
    for node in reversed(nodes):
        inputs = _token_inputs(node)
        if not inputs or len(node.outputs) != 1 or node.outputs[0].is_graph_output():
            continue
        uses = node.outputs[0].uses()
        if uses and all(
            use.node in selecting or use.idx in found.get(use.node, ()) for use in uses
        ):
            found[node] = inputs
    return list(found)


def _token_inputs(node: Any) -> set[int]:
    """Return the inputs (B, T, …) of a node that computes each token from the same one of them."""
    if node.op_type in _TOKENWISE or node.op_type == NODE:
        alone = node.op_type != NODE or all(value is None for value in node.inputs[5:])
        return {0} if _has_tokens(node.inputs[0]) and alone else set()
    if node.op_type == "MatMul":
        constant = node.inputs[1].const_value is not None and len(node.inputs[1].shape) == 2
        return {0} if constant and _has_tokens(node.inputs[0]) else set()
    if node.op_type not in _PAIRWISE:
        return set()
    shape = node.outputs[0].shape
    varying = {place for place, value in enumerate(node.inputs) if value.shape == shape}
    others = [value for place, value in enumerate(node.inputs) if place not in varying]
    broadcast = all(v.shape is not None and len(v.shape) <= 1 for v in others)
    return varying if _has_tokens(node.outputs[0]) and broadcast else set()


def _has_tokens(value: Any) -> bool:
    return value.shape is not None and len(value.shape) == 3 and value.const_value is None


def _narrow(graph: Any, region: list[Any], place: int) -> None:
    """Have a region compute one token, which is cut out of what it reads."""
    ir: Any = require("onnx_ir", extra="export", purpose="exporting models")
    inside, tokens = set(region), dict[Any, Any]()

    def constant(name: str, value: int) -> Any:
        tensor = ir.tensor(np.array([value], dtype=np.int64), name=f"one_token_{place}_{name}")
        made = ir.val(tensor.name, const_value=tensor)
        graph.register_initializer(made)
        return made

    def one_token(value: Any) -> Any:
        if value not in tokens:
            cut = ir.node("Slice", [value, *bounds])
            cut.outputs[0].dtype, cut.outputs[0].shape = value.dtype, _narrowed(value)
            graph.insert_after(value.producer(), cut)
            tokens[value] = cut.outputs[0]
        return tokens[value]

    if not region:
        return
    stop = np.iinfo(np.int64).max if place < 0 else place + 1
    bounds = [constant("start", place), constant("stop", stop), constant("axis", _TOKENS)]
    for node in region:
        for position in _token_inputs(node):
            value = node.inputs[position]
            if value.producer() not in inside:
                node.replace_input_with(position, one_token(value))
    for node in region:
        node.outputs[0].shape = _narrowed(node.outputs[0])


def _narrowed(value: Any) -> Any:
    shape = value.shape.copy()
    shape[_TOKENS] = 1
    return shape
