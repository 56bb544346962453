"""Graphs that compute less: what is read at one token, and tensors that come back as they were."""

from types import SimpleNamespace

import numpy as np
import onnx
import onnx_ir as ir
import onnxruntime
import pytest
import torch
from onnx import TensorProto, helper, numpy_helper
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

from glocal.export.first_token import compute_one_token
from glocal.export.node_attention import attend_in_one_node
from glocal.export.write_graph import drop_round_trip

HEADS, WIDTH = 2, 4
SHAPE = ["documents", "tokens", WIDTH]
WEIGHTS = np.random.default_rng(0).normal(size=(6, WIDTH, WIDTH)).astype(np.float32)
MASK = np.array([[1, 1, 1], [1, 1, 0]], dtype=np.int32)
STATES = np.random.default_rng(1).normal(size=(2, 3, WIDTH)).astype(np.float32)


def encoder_layer(*, place=0, also_read=False):
    """A layer of an encoder, of which one token is selected; perhaps all are returned as well."""

    def product(source, number, name):
        return helper.make_node("MatMul", [source, f"w{number}"], [name], name=name)

    nodes = [
        product("states", 0, "query"),
        product("states", 1, "key"),
        product("states", 2, "value"),
        helper.make_node(
            "MultiHeadAttention",
            ["query", "key", "value", "", "mask"],
            ["found"],
            domain="com.microsoft",
            num_heads=HEADS,
        ),
        product("found", 3, "out"),
        helper.make_node("Add", ["out", "states"], ["summed"]),
        helper.make_node("LayerNormalization", ["summed", "gain"], ["normed"], axis=-1),
        product("normed", 4, "inner"),
        helper.make_node("Gelu", ["inner"], ["active"]),
        product("active", 5, "outer"),
        helper.make_node("Add", ["outer", "normed"], ["layer"]),
        helper.make_node("Gather", ["layer", "place"], ["document"], axis=1),
        helper.make_node("Relu", ["layer"], ["every"]),
    ]
    value = helper.make_tensor_value_info
    outputs = [value("document", TensorProto.FLOAT, ["documents", WIDTH])]
    if also_read:
        outputs.append(value("every", TensorProto.FLOAT, SHAPE))
    else:
        nodes = nodes[:-1]
    constants = [numpy_helper.from_array(w, f"w{n}") for n, w in enumerate(WEIGHTS)]
    constants.append(numpy_helper.from_array(np.ones(WIDTH, np.float32), "gain"))
    constants.append(numpy_helper.from_array(np.array(place), "place"))
    between = [name for node in nodes for name in node.output if name not in ("document", "every")]
    graph = helper.make_graph(
        nodes,
        "layer",
        [
            value("states", TensorProto.FLOAT, SHAPE),
            value("mask", TensorProto.INT32, ["documents", "tokens"]),
        ],
        outputs,
        constants,
        value_info=[value(name, TensorProto.FLOAT, SHAPE) for name in between],
    )
    opsets = [helper.make_opsetid("", 20), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=10)


def outputs_of(model, **inputs):
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    session = onnxruntime.InferenceSession(
        model.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )
    return session.run(None, inputs)


def rewritten(model, change):
    loaded = ir.serde.deserialize_model(model)
    change(loaded)
    return ir.serde.serialize_model(loaded)


@pytest.mark.parametrize("place", [0, -1])
def test_a_layer_read_at_one_token_is_computed_for_it_alone(place):
    before = with_an_earlier_layer(encoder_layer(place=place))
    model = rewritten(before, compute_one_token)
    inputs = {"raw": STATES, "mask": MASK}
    np.testing.assert_allclose(
        outputs_of(model, **inputs)[0], outputs_of(before, **inputs)[0], atol=1e-5
    )
    axes = {v.name: v.type.tensor_type.shape.dim for v in model.graph.value_info}
    sizes = {name: dims[1] for name, dims in axes.items() if len(dims) == 3}
    for name in ("query", "found", "out", "normed", "inner", "active", "layer"):
        assert sizes[name].dim_value == 1
    for name in ("key", "value"):
        assert sizes[name].dim_param == "tokens"


def test_a_layer_that_is_read_at_every_token_stays():
    before = with_an_earlier_layer(encoder_layer(also_read=True))
    model = rewritten(before, compute_one_token)
    assert [node.op_type for node in model.graph.node] == [n.op_type for n in before.graph.node]


def with_an_earlier_layer(model):
    """Have the layer read what a node computes, as every layer but an encoder's input does."""
    model.graph.input[0].name = "raw"
    model.graph.node.insert(0, helper.make_node("Tanh", ["raw"], ["states"]))
    info = helper.make_tensor_value_info("states", TensorProto.FLOAT, SHAPE)
    model.graph.value_info.append(info)
    onnx.checker.check_model(model, check_custom_domain=False)
    return model


def reshaped(*steps, shape=SHAPE):
    """A chain of nodes: a permutation of axes, or a shape."""
    nodes, constants, last = [], [], "x"
    for number, step in enumerate(steps):
        name = f"step{number}"
        if isinstance(step, tuple):
            nodes.append(helper.make_node("Transpose", [last], [name], perm=step))
        else:
            constants.append(numpy_helper.from_array(np.array(step), f"{name}_shape"))
            nodes.append(helper.make_node("Reshape", [last, f"{name}_shape"], [name]))
        last = name
    value = helper.make_tensor_value_info
    graph = helper.make_graph(
        [*nodes, helper.make_node("Relu", [last], ["out"])],
        "chain",
        [value("x", TensorProto.FLOAT, SHAPE)],
        [value("out", TensorProto.FLOAT, None)],
        constants,
        value_info=[value(last, TensorProto.FLOAT, shape)],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10)


@pytest.mark.parametrize(
    ("model", "dropped"),
    [
        (reshaped([0, 0, 2, 2], (0, 2, 1, 3), (0, 2, 1, 3), [0, 0, 4]), True),
        (reshaped([0, 0, 2, 2], [0, 0, 4]), True),
        (reshaped([0, 0, 2, 2], (0, 2, 3, 1), (0, 3, 1, 2), [0, 0, 4]), True),
        (reshaped([0, 0, 2, 2], (0, 1, 3, 2), [0, 0, 4]), False),  # other values in every place
        (reshaped([0, 0, 2, 2], (0, 3, 1, 2), (0, 3, 1, 2), [0, 3, 4]), False),
        (reshaped([0, 0, 2, 2], [0, 0, 4], shape=[None, None, WIDTH]), False),  # not known enough
    ],
)
def test_a_tensor_that_comes_back_as_it_was_is_read_at_its_source(model, dropped):
    def change(loaded):
        for node in list(loaded.graph):
            drop_round_trip(node)

    after = rewritten(model, change)
    assert (after.graph.node[-1].input[0] == "x") == dropped
    np.testing.assert_array_equal(outputs_of(after, x=STATES)[0], outputs_of(model, x=STATES)[0])


class Encoder:
    """Attends with the function that its configuration names."""

    def __init__(self, key_heads=HEADS, calls=True, **options):
        self.config = SimpleNamespace(_attn_implementation="sdpa")
        self.key_heads, self.calls, self.options = key_heads, calls, options

    def __call__(self, input_ids, attention_mask):
        if self.calls:
            query, key = torch.zeros(1, HEADS, 4, 3), torch.zeros(1, self.key_heads, 4, 3)
            attend = ALL_ATTENTION_FUNCTIONS[self.config._attn_implementation]
            attend(self, query, key, key, attention_mask, dropout=0.0, **self.options)


@pytest.mark.parametrize(
    ("encoder", "in_one_node"),
    [
        (Encoder(scaling=0.5), True),
        (Encoder(position_bias=None), True),
        (Encoder(position_bias=torch.zeros(1)), False),
        (Encoder(key_heads=1), False),
        (Encoder(calls=False), False),
    ],
)
def test_attention_of_another_kind_stays_as_it_is(encoder, in_one_node):
    attend_in_one_node(encoder)
    assert (encoder.config._attn_implementation != "eager") is in_one_node
