"""An LSTM (Hochreiter and Schmidhuber, 1997), unrolled: each step has an input and weights.

In: steps, hidden size.  Out: `(mod, params)` with seeded weights.  Read next: `networks.py`.
"""

from __future__ import annotations

from tilewright.base.errors import ModelError
from tilewright.graph.expr import Array, Expr, Function, IRModule, Var, free_vars
from tilewright.graph.functions import indexing, tensor
from tilewright.graph.leaves import var
from tilewright.models.zoo.layers import create_workload, dense

_NAMES = ("_weight", "_bias")


def lstm_cell(inputs: Expr, hidden: Expr, cell: Expr, name: str) -> tuple[Expr, Expr]:
    """(hidden, cell) after a step; all are (batch, size), and so are the gates: in, forget, the
    new value, out."""
    units = 4 * hidden.shape[1]
    sums = tensor.add(
        dense(inputs, f"i2h_{name}", units, _NAMES), dense(hidden, f"h2h_{name}", units, _NAMES)
    )
    parts = indexing.split(sums, 4, axis=1)
    enter, forget, leave = (tensor.sigmoid(parts[k]) for k in (0, 1, 3))
    cell = tensor.add(
        tensor.multiply(forget, cell), tensor.multiply(enter, tensor.tanh(parts[2]))
    )  # fmt: skip
    return tensor.multiply(leave, tensor.tanh(cell)), cell


def get_net(
    iterations: int = 8, num_hidden: int = 128, batch_size: int = 1, dtype: str = "float32"
) -> Function:
    """The function data, data1, ... -> hidden state after the last; it begins as zeros."""
    if min(iterations, num_hidden, batch_size) < 1:
        raise ModelError(
            f"relay.testing.lstm(iterations={iterations}, num_hidden={num_hidden}, "
            f"batch_size={batch_size})", "all must be at least 1", "Try 8, 128 and 1.",
        )  # fmt: skip
    shape = (batch_size, num_hidden)
    inputs: list[Var] = []
    hidden: Expr = tensor.zeros(shape, dtype)
    cell: Expr = hidden
    for k in range(iterations):
        inputs.append(var(f"data{k}" if k else "data", shape=shape, dtype=dtype))
        hidden, cell = lstm_cell(inputs[-1], hidden, cell, str(k))
    weights = [v for v in free_vars(hidden) if v not in inputs]
    return Function([*inputs, *weights], hidden)


def get_workload(
    iterations: int = 8,
    num_hidden: int = 128,
    batch_size: int = 1,
    dtype: str = "float32",
    seed: int = 0,
) -> tuple[IRModule, dict[str, Array]]:
    """The LSTM of `iterations` steps and its weights; data, data1, ... stay open."""
    mod, params = create_workload(get_net(iterations, num_hidden, batch_size, dtype), seed)
    return mod, {name: v for name, v in params.items() if not name.startswith("data")}
