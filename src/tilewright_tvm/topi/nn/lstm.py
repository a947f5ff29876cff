"""Long short-term memory over a sequence, step by step: `topi.nn.lstm`.

In: a sequence, weights and states.  Out: all hidden states and all cell states; each step is stages
of its own.  Read next: `dense.py`; `graph/functions/recurrent.py` for networks.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tilewright import te
from tilewright.ir.expr import Expr
from tilewright.te.tensor import Tensor
from tilewright.topi.stage import Indices, call_text, check_tensor, require, require_float, stage
from tilewright.topi.transform import stack

MOST_STEPS = 64  # which are all written out
Activation = Callable[[Expr], Any]
Gate = Callable[[Indices, str], Expr]


def lstm(
    Xs: Tensor,
    Wi: Tensor,
    Wh: Tensor,
    Bi: Tensor | None = None,
    Bh: Tensor | None = None,
    h_init: Tensor | None = None,
    c_init: Tensor | None = None,
    proj: Tensor | None = None,
    p_i: Tensor | None = None,
    p_f: Tensor | None = None,
    p_o: Tensor | None = None,
    f_act: Activation = te.sigmoid,
    g_act: Activation = te.tanh,
    h_act: Activation = te.tanh,
    reverse: bool = False,
    weight_layout: str = "IFGO",
) -> list[Tensor]:
    """Hidden states [T, N, P] and cell states [T, N, H] of the sequence Xs [T, N, I].

    Wi [4*H, I], Wh [4*H, P], Bi and Bh [4*H]: of the gates in the order of `weight_layout`
    h_init [N, P], c_init [N, H]: states before the first step, by default zeros
    proj [P, H]: what hidden states are multiplied with, else P is H
    p_i, p_f, p_o [N, H]: weights of the cell's state in the gates
    reverse: the sequence is read from its end; states are given as they are made
    """
    place = call_text("lstm", Xs=Xs, Wi=Wi, Wh=Wh, weight_layout=weight_layout)
    check_tensor(Xs, "Xs", "TNI", place)
    check_tensor(Wi, "Wi", "HI", place)
    check_tensor(Wh, "Wh", "HP", place)
    require_float(Xs, "a state", place)
    require(
        sorted(str(weight_layout)) == sorted("IFGO"), place, "the order of gates is unknown",
        'Use an order of I, F, G and O, such as "IFGO".',
    )  # fmt: skip
    steps, batch, width = Xs.shape
    hidden = Wi.shape[0] // 4
    out = hidden if proj is None else proj.shape[0]
    for what, tensor, wanted in (
        ("Wi", Wi, (4 * hidden, width)), ("Wh", Wh, (4 * hidden, out)), ("Bi", Bi, (4 * hidden,)),
        ("Bh", Bh, (4 * hidden,)), ("h_init", h_init, (batch, out)),
        ("c_init", c_init, (batch, hidden)), ("proj", proj, (out, hidden)),
        ("p_i", p_i, (batch, hidden)), ("p_f", p_f, (batch, hidden)), ("p_o", p_o, (batch, hidden)),
    ):  # fmt: skip
        fits = tensor is None or (tuple(tensor.shape) == wanted and tensor.dtype is Xs.dtype)
        require(fits, place, f"{what} is no {Xs.dtype} tensor of {list(wanted)}", "Reshape it.")
    require((p_i is None) == (p_f is None), place, "p_i comes with p_f", "Give both or neither.")
    require(
        steps <= MOST_STEPS, place, f"all {steps} steps would be written out, {MOST_STEPS} at most",
        "Give parts of the sequence: h_init and c_init take the states of the part before.",
    )  # fmt: skip
    k = te.reduce_axis((0, width), "ki2h")
    read = stage(
        (steps, batch, 4 * hidden), lambda i: te.sum(Xs[i[0], i[1], k] * Wi[i[2], k], axis=k),
        "Xi2h", "lstm_product",
    )  # fmt: skip
    h, c = h_init, c_init
    hs, cs = [], []
    for step in range(steps):
        at = steps - 1 - step if reverse else step
        seen = None if h is None else _product(h, Wh, "s_h2h")

        def gate(i: Indices, name: str, at: int = at, seen: Tensor | None = seen) -> Expr:
            row = i[1] + weight_layout.index(name) * hidden
            value = read[at, i[0], row]
            value = value if seen is None else value + seen[i[0], row]
            for bias in (Bi, Bh):
                value = value if bias is None else value + bias[row]
            return value

        def cell(i: Indices, before: Tensor | None = c, gate: Gate = gate) -> Any:
            kept, taken = gate(i, "F"), gate(i, "I")
            if before is None:
                return f_act(taken) * g_act(gate(i, "G"))
            if p_i is not None and p_f is not None:
                kept, taken = kept + p_f[i] * before[i], taken + p_i[i] * before[i]
            return f_act(kept) * before[i] + f_act(taken) * g_act(gate(i, "G"))

        c = stage((batch, hidden), cell, "next_c", "broadcast")

        def shown(i: Indices, now: Tensor = c, gate: Gate = gate) -> Any:
            value = gate(i, "O")
            value = value if p_o is None else value + p_o[i] * now[i]
            return f_act(value) * h_act(now[i])

        h = stage((batch, hidden), shown, "next_h", "broadcast")
        h = h if proj is None else _product(h, proj, "next_h_proj")
        hs.append(h)
        cs.append(c)
    return [stack(hs, 0), stack(cs, 0)]


def _product(state: Tensor, weight: Tensor, name: str) -> Tensor:
    """state [N, K] times the transpose of weight [M, K]."""
    k = te.reduce_axis((0, weight.shape[1]), "k")
    return stage(
        (state.shape[0], weight.shape[0]),
        lambda i: te.sum(state[i[0], k] * weight[i[1], k], axis=k), name, "lstm_product",
    )  # fmt: skip
