"""Recurrent networks: cells, and layers that apply one at every step of a sequence.

In: graph values; sequences have a static length.  Out: graph values, unrolled: the products with
the inputs of all steps are one, each step multiplies the state and then computes its gates.
Read next: `linear.py`, `models/onnx/ops/recurrent.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from tilewright.base.errors import ModelError
from tilewright.graph.expr import Expr
from tilewright.graph.functions import tensor
from tilewright.graph.functions.indexing import strided_slice
from tilewright.graph.leaves import const
from tilewright.graph.op import call

MAX_STEPS = 1024  # that are written out
Activation = Callable[[Expr], Expr]
States = tuple[Expr, ...]
Step = Callable[[int, States], States]  # place in the sequence, states -> states; the first: output


def lstm_cell(
    gates: Sequence[Expr],
    cell: Expr,
    activations: Sequence[Activation] = (tensor.sigmoid, tensor.tanh, tensor.tanh),
    peepholes: Sequence[Expr] | None = None,
    input_forget: bool = False,
) -> tuple[Expr, Expr]:
    """(hidden, cell) after one step.

    gates:        of input, output, forgetting and the cell, before their activations
    activations:  of the gates, of the cell's input, of the cell's output
    peepholes:    factors of the cell for the first three gates
    input_forget: what is forgotten is what the input does not take
    """
    into, out, forget, update = gates
    f, g, h = activations
    looks = peepholes or (None, None, None)

    def gate(value: Expr, look: Expr | None, at: Expr) -> Expr:
        return f(value if look is None else tensor.add(value, tensor.multiply(at, look)))

    taken = gate(into, looks[0], cell)
    kept = tensor.subtract(1.0, taken) if input_forget else gate(forget, looks[2], cell)
    new = tensor.add(tensor.multiply(kept, cell), tensor.multiply(taken, g(update)))
    return tensor.multiply(gate(out, looks[1], new), h(new)), new


def gru_cell(
    update: Expr, candidate: Expr, hidden: Expr, activation: Activation = tensor.tanh
) -> Expr:
    """The next hidden state: what `update` (between 0 and 1) keeps of it, and of the candidate
    the rest; the candidate comes before its activation."""
    new = activation(candidate)
    return tensor.add(new, tensor.multiply(update, tensor.subtract(hidden, new)))


@dataclass(frozen=True)
class Direction:
    """One direction of a layer, with ONNX's weights.

    inputs:  [T * B, I], the rows of one step side by side
    weight, recurrence: [gates * H, I] and [gates * H, H]; bias: [2 * gates * H] of both, or None
    hidden:  [B, H], the first state; cell: the same, of an LSTM
    """

    inputs: Expr
    weight: Expr
    recurrence: Expr
    bias: Expr | None
    hidden: Expr
    cell: Expr | None = None

    @property
    def size(self) -> int:
        return self.recurrence.shape[1]

    @property
    def batch(self) -> int:
        return self.hidden.shape[0]


@dataclass(frozen=True)
class Options:
    """
    activations:         of the cell, as many as it has
    linear_before_reset: a GRU resets what its hidden state gives, not the state
    input_forget, peepholes: see `lstm_cell`
    """

    activations: Sequence[Activation]
    linear_before_reset: bool = False
    input_forget: bool = False
    peepholes: Sequence[Expr] | None = None


def part(x: Expr, k: int, size: int, axis: int) -> Expr:
    """The k-th of the equal pieces of `size` along `axis`."""
    if x.shape[axis] == size:
        return x
    return strided_slice(x, [k * size], [(k + 1) * size], axes=[axis])


def _biases(d: Direction) -> tuple[Expr | None, Expr | None]:
    """Of the inputs and of the state."""
    if d.bias is None:
        return None, None
    return part(d.bias, 0, d.weight.shape[0], 0), part(d.bias, 1, d.weight.shape[0], 0)


def _plus(value: Expr, bias: Expr | None) -> Expr:
    return value if bias is None else tensor.add(value, bias)


def lstm_step(d: Direction, o: Options) -> Step:
    inputs, states = _biases(d)
    ahead = _plus(_plus(call("nn.dense", d.inputs, d.weight), inputs), states)

    def step(t: int, state: States) -> States:
        hidden, cell = state
        own = call("nn.dense", hidden, d.recurrence)
        gates = [tensor.add(_at(ahead, t, k, d), part(own, k, d.size, 1)) for k in range(4)]
        return lstm_cell(gates, cell, o.activations, o.peepholes, o.input_forget)

    return step


def rnn_step(d: Direction, o: Options) -> Step:
    inputs, states = _biases(d)
    ahead = _plus(_plus(call("nn.dense", d.inputs, d.weight), inputs), states)

    def step(t: int, state: States) -> States:
        own = call("nn.dense", state[0], d.recurrence)
        return (o.activations[0](tensor.add(own, _at(ahead, t, 0, d))),)

    return step


def gru_step(d: Direction, o: Options) -> Step:
    """Gates: update, reset, candidate."""
    inputs, states = _biases(d)
    size, (f, g) = d.size, o.activations
    ahead = _plus(call("nn.dense", d.inputs, d.weight), inputs)
    first = strided_slice(d.recurrence, [0], [2 * size], axes=[0])
    last = strided_slice(d.recurrence, [2 * size], [3 * size], axes=[0])

    def bias(begin: int, end: int) -> Expr | None:
        cut = [begin * size], [end * size]
        return None if states is None else strided_slice(states, *cut, axes=[0])

    def step(t: int, state: States) -> States:
        (hidden,) = state
        if o.linear_before_reset:
            own = _plus(call("nn.dense", hidden, d.recurrence), states)
        else:
            own = _plus(call("nn.dense", hidden, first), bias(0, 2))
        update, reset = (
            f(tensor.add(_at(ahead, t, k, d), part(own, k, size, 1))) for k in range(2)
        )
        if o.linear_before_reset:
            back: Expr = tensor.multiply(reset, part(own, 2, size, 1))
        else:
            product = call("nn.dense", tensor.multiply(reset, hidden), last)
            back = _plus(product, bias(2, 3))
        candidate = tensor.add(back, _at(ahead, t, 2, d))
        return (gru_cell(update, candidate, hidden, g),)

    return step


def _at(ahead: Expr, t: int, gate: int, d: Direction) -> Expr:
    """What the inputs of step t give one gate: [B, H] of [T * B, gates * H]."""
    whole = ahead.shape == (d.batch, d.size)
    begin = [t * d.batch, gate * d.size]
    end = [begin[0] + d.batch, begin[1] + d.size]
    return ahead if whole else strided_slice(ahead, begin, end)


def unrolled(
    step: Step, states: States, steps: int, lengths: Expr | None = None, reverse: bool = False
) -> tuple[list[Expr], States]:
    """The output of every place of the sequence, and the states after the last step.

    lengths: int32 [B]; places behind one's length have the output zero and change no state
    Raises ModelError for more than `MAX_STEPS`.
    """
    if steps > MAX_STEPS:
        raise ModelError(
            "unrolled", f"the sequence has {steps} steps, more than the {MAX_STEPS} written out",
            "Split the sequence.",
        )  # fmt: skip
    outputs: dict[int, Expr] = {}
    for t in reversed(range(steps)) if reverse else range(steps):
        new = step(t, states)
        shown = new[0]
        if lengths is not None:
            inside = tensor.greater(tensor.expand_dims(lengths, 1), const(t, "int32"))
            shown = tensor.where(inside, shown, const(np.zeros((), new[0].dtype)))
            new = tuple(tensor.where(inside, a, b) for a, b in zip(new, states, strict=True))
        outputs[t], states = shown, new
    return [outputs[t] for t in range(steps)], states


__all__ = ["gru_cell", "lstm_cell"]
