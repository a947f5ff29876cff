"""Recurrent layers compute what onnxruntime's do, with every option; what they refuse."""

import numpy as np
import onnxruntime
import pytest
from onnx import TensorProto, helper

from graph.case import function, tensor
from tilewright.base.errors import ModelError
from tilewright.graph.expr import Call, Function, post_order
from tilewright.graph.functions.recurrent import MAX_STEPS, gru_cell, lstm_cell, unrolled
from tilewright_tvm import relay

STEPS, BATCH, INPUT, HIDDEN = 4, 2, 3, 5
GATES = {"LSTM": 4, "GRU": 3, "RNN": 1}
FLOAT, INT = TensorProto.FLOAT, TensorProto.INT32
LENGTHS = np.array([4, 2], "int32")


def weights(op: str, directions: int, names: str) -> dict[str, np.ndarray]:
    """X, W, R and those of `names`: B, h (initial_h), c (initial_c), P, l (sequence_lens)."""
    rng, rows = np.random.default_rng(0), GATES[op] * HIDDEN
    state = (directions, BATCH, HIDDEN)
    shapes = {
        "X": (STEPS, BATCH, INPUT), "W": (directions, rows, INPUT), "R": (directions, rows, HIDDEN),
        "B": (directions, 2 * rows), "h": state, "c": state, "P": (directions, 3 * HIDDEN),
    }  # fmt: skip
    made = {n: rng.standard_normal(s).astype("float32") for n, s in shapes.items()}
    made["l"] = LENGTHS
    return {n: made[n] for n in ("X", "W", "R", *names)}


def model(op: str, arrays: dict[str, np.ndarray], **attrs):
    order = ("X", "W", "R", "B", "l", "h", *(("c", "P") if op == "LSTM" else ()))
    outputs = ["Y", "Y_h", "Y_c"][: 3 if op == "LSTM" else 2]
    node = helper.make_node(
        op, [n if n in arrays else "" for n in order], outputs, hidden_size=HIDDEN, **attrs
    )
    infos = [
        helper.make_tensor_value_info(n, INT if n == "l" else FLOAT, arrays[n].shape)
        for n in order
        if n in arrays
    ]
    results = [helper.make_tensor_value_info(n, FLOAT, None) for n in outputs]
    graph = helper.make_graph([node], "g", infos, results)
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 14)])
    made.ir_version = 8
    return made


def compare(op: str, names: str = "B", **attrs) -> None:
    directions = 2 if attrs.get("direction") == "bidirectional" else 1
    arrays = weights(op, directions, names)
    proto = model(op, arrays, **attrs)
    wanted = onnxruntime.InferenceSession(proto.SerializeToString()).run(None, arrays)
    mod, params = relay.frontend.from_onnx(proto)
    found = relay.evaluate(mod, {**arrays, **params})
    for a, b in zip(found, wanted, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5)


@pytest.mark.sampled(15)
@pytest.mark.slow
@pytest.mark.parametrize("op", GATES)
@pytest.mark.parametrize("direction", ["forward", "reverse", "bidirectional"])
@pytest.mark.parametrize("names", ["", "B", "Bh", "Bhl"])
def test_layers_compute_what_onnxruntime_does(op, direction, names):
    compare(op, names, direction=direction)


OPTIONS = {
    "peepholes": ("LSTM", {"names": "BhcP"}),
    "peepholes both ways": ("LSTM", {"names": "BhcPl", "direction": "bidirectional"}),
    "reset before": ("GRU", {"names": "Bhl", "linear_before_reset": 1}),
    "reset before, no bias": ("GRU", {"names": "h", "linear_before_reset": 1}),
    "clip": ("RNN", {"clip": 0.2}),
    "clipped gates": ("GRU", {"clip": 0.2}),
    "relu": ("RNN", {"activations": ["Relu"]}),
    "two": ("RNN", {"activations": ["Relu", "Tanh"], "direction": "bidirectional"}),
    "affine": (
        "RNN",
        {"activations": ["Affine"], "activation_alpha": [0.5], "activation_beta": [0.25]},
    ),
    "leaky": ("GRU", {"activations": ["HardSigmoid", "LeakyRelu"], "activation_alpha": [0.3, 0.2],
                      "activation_beta": [0.4]}),
    "scaled": ("LSTM", {"activations": ["Sigmoid", "ScaledTanh", "Softsign"],
                        "activation_alpha": [1.5], "activation_beta": [0.5]}),
    "elu": ("RNN", {"activations": ["Elu"], "activation_alpha": [0.7]}),
    "softplus": ("RNN", {"activations": ["Softplus"]}),
    "threshold": ("RNN", {"activations": ["ThresholdedRelu"], "activation_alpha": [0.3]}),
}  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("name", OPTIONS)
def test_options_mean_what_onnxruntime_takes_them_for(name):
    op, options = OPTIONS[name]
    compare(op, **options)


@pytest.mark.parametrize("op", GATES)
def test_a_layer_with_the_batch_first_is_the_same_layer(op):
    arrays = weights(op, 1, "B")
    mod, _ = relay.frontend.from_onnx(model(op, arrays))
    wanted = relay.evaluate(mod, arrays)
    turned = {**arrays, "X": arrays["X"].transpose(1, 0, 2)}
    mod, _ = relay.frontend.from_onnx(model(op, turned, layout=1))
    found = relay.evaluate(mod, turned)
    np.testing.assert_array_equal(found[0], wanted[0].transpose(2, 0, 1, 3))
    for a, b in zip(found[1:], wanted[1:], strict=True):
        np.testing.assert_array_equal(a, b.transpose(1, 0, 2))


def test_what_the_input_takes_is_what_is_forgotten():
    gates = [tensor(n, 2, 3) for n in "iofg"]
    made, _ = lstm_cell(gates, tensor("c", 2, 3), input_forget=True)
    values = {n: np.random.default_rng(k).standard_normal((2, 3)) for k, n in enumerate("iofgc")}
    values = {n: v.astype("float32") for n, v in values.items()}
    i, o = (1 / (1 + np.exp(-values[n])) for n in "io")
    wanted = o * np.tanh((1 - i) * values["c"] + i * np.tanh(values["g"]))
    np.testing.assert_allclose(relay.evaluate(function(made), values), wanted, rtol=1e-5)


def test_a_gru_keeps_what_its_gate_says():
    z, n, h = (tensor(x, 2) for x in "znh")
    values = {"z": np.float32([0, 1]), "n": np.float32([5, 5]), "h": np.float32([3, 3])}
    found = relay.evaluate(function(gru_cell(z, n, h)), values)
    np.testing.assert_allclose(found, [np.tanh(5), 3], rtol=1e-6)


def test_a_step_is_a_product_and_two_kernels_of_gates():
    arrays = weights("LSTM", 1, "B")
    mod, _ = relay.frontend.from_onnx(model("LSTM", arrays))
    held = {n: arrays[n] for n in "WRB"}
    main = relay.optimize(mod, held)["main"]
    kernels = [
        n for n in post_order(main.body) if isinstance(n, Call) and isinstance(n.op, Function)
    ]
    # of all inputs, of every step but the first (its state is zero), the outputs side by side
    assert len(kernels) <= 1 + 3 * STEPS + 1


@pytest.mark.slow
def test_what_is_refused():
    arrays = weights("LSTM", 1, "B")

    def refused(reason: str, arrays=arrays, **attrs) -> None:
        with pytest.raises(ModelError, match=reason):
            relay.frontend.from_onnx(model("LSTM", arrays, **attrs))

    refused("direction=sideways", direction="sideways")
    refused("activation Cosine", activations=["Cosine", "Tanh", "Tanh"])
    refused("names 1 activations", activations=["Tanh"])
    refused("weights have shapes", arrays={**arrays, "W": arrays["W"][:, :7]})
    with pytest.raises(ModelError, match="steps"):
        unrolled(lambda t, s: s, (tensor("h", 2, 3),), MAX_STEPS + 1)
