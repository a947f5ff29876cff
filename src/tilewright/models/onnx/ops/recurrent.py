"""Recurrent layers, unrolled over their sequences."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

import numpy as np

from tilewright.graph.expr import Expr
from tilewright.graph.functions import nn, tensor
from tilewright.graph.functions.activations import expm1_below_zero
from tilewright.graph.functions.recurrent import (
    Activation,
    Direction,
    Options,
    Step,
    gru_step,
    lstm_step,
    part,
    rnn_step,
    unrolled,
)
from tilewright.graph.leaves import const
from tilewright.models.onnx.node import Converter, Node

DIRECTIONS = {"forward": (False,), "reverse": (True,), "bidirectional": (False, True)}
GATES = {"LSTM": 4, "GRU": 3, "RNN": 1}
DEFAULTS = {"LSTM": ("Sigmoid", "Tanh", "Tanh"), "GRU": ("Sigmoid", "Tanh"), "RNN": ("Tanh",)}

# name -> of alpha and beta: what makes the function, and their defaults (as many as it has)
ACTIVATIONS: dict[str, tuple[Callable[..., Activation], tuple[float, ...]]] = {
    "relu": (lambda: nn.relu, ()),
    "tanh": (lambda: tensor.tanh, ()),
    "sigmoid": (lambda: tensor.sigmoid, ()),
    "affine": (lambda a, b: lambda x: x * a + b, (1.0, 0.0)),
    "leakyrelu": (lambda a: lambda x: nn.leaky_relu(x, a), (0.01,)),
    "thresholdedrelu": (
        lambda a: lambda x: tensor.where(tensor.less(x, const(a, x.dtype)), const(0, x.dtype), x),
        (1.0,),
    ),
    "scaledtanh": (lambda a, b: lambda x: tensor.tanh(x * b) * a, (1.0, 1.0)),
    "hardsigmoid": (lambda a, b: lambda x: tensor.clip(x * a + b, 0.0, 1.0), (0.2, 0.5)),
    "elu": (
        lambda a: lambda x: nn.relu(x) + expm1_below_zero(x) * a, (1.0,),
    ),
    "softsign": (lambda: lambda x: tensor.divide(x, tensor.abs(x) + 1.0), ()),
    "softplus": (
        lambda: lambda x: nn.relu(x) + tensor.log(tensor.exp(-tensor.abs(x)) + 1.0), (),
    ),
}  # fmt: skip


def _layer(make_step: Callable[[Direction, Options], Step]) -> Converter:
    def convert(n: Node) -> Sequence[Expr]:
        name = n.attr("direction", "forward")
        directions = DIRECTIONS.get(name)
        if directions is None:
            raise n.refuse(f"direction={name} is not known", f"Use {', '.join(DIRECTIONS)}.")
        n.attr("output_sequence")
        batch_first = n.flag("layout")
        x = n.of_rank(0, 3)
        if batch_first:
            x = tensor.transpose(x, (1, 0, 2))
        steps, batch, _ = x.shape
        rows = tensor.as_shape(x, (steps * batch, -1))
        lengths = tensor.cast(n[4], "int32") if n.has(4) else None
        outputs, states = [], []
        for k, (reverse, options) in enumerate(
            zip(directions, _options(n, len(directions)), strict=True)
        ):
            d = _direction(n, k, rows, batch, batch_first)
            start = (d.hidden,) if d.cell is None else (d.hidden, d.cell)
            made, last = unrolled(make_step(d, options), start, steps, lengths, reverse)
            outputs.append(tensor.concatenate([tensor.expand_dims(y, 0) for y in made], axis=0))
            states.append(last)
        sequence = _beside(outputs, 1)  # [T, directions, B, H]
        if batch_first:
            sequence = tensor.transpose(sequence, (2, 0, 1, 3))
        axis = 1 if batch_first else 0
        return [sequence, *(_beside(parts, axis) for parts in zip(*states, strict=True))]

    return convert


def _beside(parts: Sequence[Expr], axis: int) -> Expr:
    """Directions along a new axis."""
    expanded = [tensor.expand_dims(p, axis) for p in parts]
    return expanded[0] if len(parts) == 1 else tensor.concatenate(expanded, axis=axis)


def _direction(n: Node, k: int, rows: Expr, batch: int, batch_first: bool) -> Direction:
    """The weights of direction k; its first states are zero where they are left out."""
    gates, dtype = GATES[n.op], rows.dtype
    weight, recurrence = n.of_rank(1, 3), n.of_rank(2, 3)
    size = recurrence.shape[2]
    n.require(
        weight.shape[:2] == recurrence.shape[:2] and recurrence.shape[1] == gates * size,
        f"its weights have shapes {weight.shape} and {recurrence.shape}",
        f"{gates} gates of the hidden size are needed, for each direction.",
    )
    asked = n.attr("hidden_size")
    n.require(
        asked in (None, size), f"hidden_size={asked}, its weights say {size}", "Leave it out."
    )

    def of(index: int, rank: int = 3, axis: int = 0) -> Expr:
        picked = part(n.of_rank(index, rank), k, 1, axis)
        return tensor.squeeze(picked, axis)

    def state(index: int) -> Expr:
        if n.has(index):
            return of(index, axis=1 if batch_first else 0)
        return const(np.zeros((batch, size)), dtype)

    return Direction(
        rows, of(1), of(2), of(3, 2) if n.has(3) else None, state(5),
        state(6) if n.op == "LSTM" else None,
    )  # fmt: skip


def _options(n: Node, directions: int) -> list[Options]:
    """Of each direction."""
    defaults = DEFAULTS[n.op]
    names = n.attr("activations") or list(defaults) * directions
    n.require(
        len(names) >= len(defaults) * directions,
        f"it names {len(names)} activations", f"{len(defaults)} for each direction are needed.",
    )  # fmt: skip
    clip = float(n.attr("clip", 0.0))
    values = [iter(n.attr(f"activation_{name}") or ()) for name in ("alpha", "beta")]
    functions = [_activation(n, name, values, clip) for name in names]
    made = Options(
        (), n.op == "GRU" and n.flag("linear_before_reset"),
        n.op == "LSTM" and n.flag("input_forget"),
    )  # fmt: skip
    count = len(defaults)
    return [
        replace(
            made, activations=functions[k * count : (k + 1) * count], peepholes=_peepholes(n, k)
        )
        for k in range(directions)
    ]


def _activation(n: Node, name: str, values: Sequence[Iterator[float]], clip: float) -> Activation:
    """values: alphas and betas, of which each activation takes as many as it has."""
    n.require(
        name.lower() in ACTIVATIONS, f"the activation {name} is not known",
        f"Known are {', '.join(ACTIVATIONS)}.",
    )  # fmt: skip
    make, defaults = ACTIVATIONS[name.lower()]
    found = [float(next(v, d)) for v, d in zip(values, defaults, strict=False)]
    function = make(*found)
    if clip <= 0:
        return function
    return lambda x: function(tensor.clip(x, -clip, clip))


def _peepholes(n: Node, k: int) -> list[Expr] | None:
    if n.op != "LSTM" or not n.has(7):
        return None
    whole = tensor.squeeze(part(n.of_rank(7, 2), k, 1, 0), 0)
    return [part(whole, gate, whole.shape[0] // 3, 0) for gate in range(3)]


CONVERTERS: dict[str, Converter] = {
    "GRU": _layer(gru_step),
    "LSTM": _layer(lstm_step),
    "RNN": _layer(rnn_step),
}
