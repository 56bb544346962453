"""Weights of a BERT encoder read from an ONNX file, without the onnx package.

Only the parts of the format that hold weights are read: named initialisers, and for the anonymous
ones the name of the node that multiplies by them, which says which layer they belong to.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np

# Field numbers of onnx.proto.
_GRAPH, _NODE, _INITIALIZER = 7, 1, 5
_NODE_INPUT, _NODE_NAME, _NODE_KIND = 1, 3, 4
_DIMS, _TYPE, _NAME, _RAW = 1, 2, 8, 9
_FLOAT32 = 1


def read_onnx_weights(path: Path) -> dict[str, np.ndarray]:
    """Return the fp32 weights of a file by their PyTorch names.

    Raises:
        ValueError: The file is damaged or no ONNX file.
    """
    tensors: dict[str, np.ndarray] = {}
    products: dict[str, str] = {}  # initialiser → name of the layer that multiplies by it
    for number, graph in _fields(memoryview(path.read_bytes())):
        if number != _GRAPH or isinstance(graph, int):
            continue
        for kind, part in _fields(graph):
            if isinstance(part, int):
                continue
            if kind == _INITIALIZER:
                name, tensor = _tensor(part)
                if tensor is not None:
                    tensors[name] = tensor
            elif kind == _NODE:
                products |= _matrix_product(part)
    if not tensors:
        raise ValueError("it holds no weights")
    return {
        products.get(name, name): tensor.T if name in products else tensor
        for name, tensor in tensors.items()
    }


def _matrix_product(node: memoryview) -> dict[str, str]:
    inputs, name, kind = [], "", ""
    for number, value in _fields(node):
        if isinstance(value, int):
            continue
        if number == _NODE_INPUT:
            inputs.append(str(value, "utf-8"))
        elif number == _NODE_NAME:
            name = str(value, "utf-8")
        elif number == _NODE_KIND:
            kind = str(value, "utf-8")
    if kind != "MatMul":
        return {}
    layer = name.removesuffix("/MatMul").strip("/").replace("/", ".")
    return {given: f"{layer}.weight" for given in inputs if given.startswith("onnx::")}


def _tensor(part: memoryview) -> tuple[str, np.ndarray | None]:
    shape: list[int] = []
    name, kind, raw = "", 0, memoryview(b"")
    for number, value in _fields(part):
        if number == _DIMS:
            shape += [value] if isinstance(value, int) else list(_packed(value))
        elif number == _TYPE and isinstance(value, int):
            kind = value
        elif number == _NAME and not isinstance(value, int):
            name = str(value, "utf-8")
        elif number == _RAW and not isinstance(value, int):
            raw = value
    if kind != _FLOAT32 or not len(raw):
        return name, None
    return name, np.frombuffer(raw, dtype="<f4").reshape(shape)


def _fields(message: memoryview) -> Iterator[tuple[int, int | memoryview]]:
    """Yield field number and value of a protobuf message."""
    place = 0
    while place < len(message):
        key, place = _varint(message, place)
        number, wire = key >> 3, key & 7
        if wire == 0:
            value, place = _varint(message, place)
            yield number, value
            continue
        if wire == 2:
            size, place = _varint(message, place)
        elif wire in {1, 5}:
            size = 8 if wire == 1 else 4
        else:
            raise ValueError("it is damaged or no ONNX file")
        if place + size > len(message):
            raise ValueError("it ends too early")
        yield number, message[place : place + size]
        place += size


def _packed(values: memoryview) -> Iterator[int]:
    place = 0
    while place < len(values):
        value, place = _varint(values, place)
        yield value


def _varint(message: memoryview, place: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        if place >= len(message) or shift > 63:
            raise ValueError("it is damaged or no ONNX file")
        byte = message[place]
        value |= (byte & 0x7F) << shift
        place, shift = place + 1, shift + 7
        if byte < 0x80:
            return value, place
