"""Every pass comes to an end and keeps the values, on networks that mostly move elements about."""

from __future__ import annotations

import contextlib
import math
import signal
from collections.abc import Iterator
from types import FrameType

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.tiers import examples
from tilewright.graph.expr import Expr, Function, IRModule, post_order
from tilewright.graph.passes import PASSES, canonicalize, moves_last
from tilewright.graph.traversal import op_name
from tilewright_tvm import relay
from tilewright_tvm.relay import nn
from tilewright_tvm.relay.transform.expressions import numbers_for_tensors, simplify_expressions

SECONDS = 20
OTHERS = (simplify_expressions, numbers_for_tensors)
UNARY = (relay.tanh, relay.exp, nn.relu, relay.negative)
BINARY = (relay.add, relay.multiply, relay.maximum, relay.subtract)


class Moving:
    """A network being drawn: values of many shapes, of which later steps read any."""

    def __init__(self, draw, seed: int) -> None:
        self.draw, self.rng = draw, np.random.default_rng(seed)
        self.params: list[relay.Var] = []
        self.values: list[Expr] = [self.param(2, 3, 4), self.param(1, 6, 2, 2)]

    def one_of(self, *choices):
        return self.draw(st.sampled_from(choices))

    def param(self, *shape: int) -> relay.Var:
        made = relay.var(f"x{len(self.params)}", shape=shape, dtype="float64")
        self.params.append(made)
        return made

    def regrouped(self, size: int) -> tuple[int, ...]:
        """A shape of so many elements, with axes of one element in between."""
        shape = []
        while size > 1:
            shape.append(self.one_of(*[n for n in range(2, size + 1) if size % n == 0]))
            size //= shape[-1]
        for _ in range(self.one_of(0, 0, 1, 2)):
            shape.insert(self.draw(st.integers(0, len(shape))), 1)
        return tuple(shape) or (1,)

    def pick(self) -> Expr:
        return self.draw(st.sampled_from(self.values[-4:]))

    def reshape(self, x: Expr) -> Expr:
        return relay.reshape(x, self.regrouped(math.prod(x.shape)))

    def transpose(self, x: Expr) -> Expr:
        return relay.transpose(x, self.draw(st.permutations(range(len(x.shape)))))

    def as_shape(self, x: Expr, shape: tuple[int, ...]) -> Expr:
        return x if x.shape == shape else relay.reshape(x, shape)

    def unary(self, x: Expr) -> Expr:
        return self.one_of(*UNARY)(relay.tanh(x))

    def binary(self, x: Expr) -> Expr:
        fitting = [v for v in self.values if math.prod(v.shape) == math.prod(x.shape)]
        other = self.as_shape(self.draw(st.sampled_from(fitting)), x.shape)
        return self.one_of(*BINARY)(*((x, other) if self.draw(st.booleans()) else (other, x)))

    def constant(self, x: Expr) -> Expr:
        shape = [n if self.draw(st.booleans()) else 1 for n in x.shape]
        return self.one_of(*BINARY)(x, relay.const(self.rng.uniform(0.5, 1.5, shape)))

    def product(self, x: Expr) -> Expr:
        size = math.prod(x.shape)
        b = self.one_of(*[n for n in (1, 2, 3) if size % n == 0])
        k = self.one_of(*[n for n in (1, 2, 3, 4) if size // b % n == 0])
        rows = relay.reshape(x, (b, size // b // k, k))
        if self.draw(st.booleans()):
            flat = relay.reshape(rows, (size // k, k))
            return nn.dense(flat, relay.const(self.rng.uniform(-1, 1, (self.one_of(2, 4), k))))
        other: Expr = self.param(b, self.one_of(2, 4), k)
        turned = self.draw(st.booleans())
        if turned:
            other = relay.transpose(other, (0, 2, 1))
        return nn.batch_matmul(rows, other, transpose_b=not turned)

    def reduction(self, x: Expr) -> Expr:
        axis = self.draw(st.integers(0, len(x.shape) - 1))
        if self.draw(st.booleans()):
            return relay.cumsum(x, axis=axis)
        return x - relay.mean(x, axis=axis, keepdims=True)

    def concat(self, x: Expr) -> Expr:
        axis = self.draw(st.integers(0, len(x.shape) - 1))
        return relay.concatenate([x, self.unary(x)], axis) if math.prod(x.shape) < 200 else x

    def slice(self, x: Expr) -> Expr:
        axis = max(range(len(x.shape)), key=lambda k: x.shape[k])
        begin, end = [0] * len(x.shape), list(x.shape)
        begin[axis] = end[axis] // 2
        return relay.strided_slice(x, begin, end)

    def step(self) -> None:
        kinds = (
            self.reshape, self.transpose, self.reshape, self.transpose, self.unary, self.binary,
            self.binary, self.constant, self.product, self.reduction, self.concat, self.slice,
        )  # fmt: skip
        self.values.append(self.one_of(*kinds)(self.pick()))


@st.composite
def moving(draw) -> IRModule:
    draft = Moving(draw, draw(st.integers(0, 1 << 16)))
    for _ in range(draw(st.integers(2, 14))):
        draft.step()
    results = draft.values[-draw(st.integers(1, 2)) :]
    body = results[0] if len(results) == 1 else relay.Tuple(results)
    return IRModule.from_expr(Function(draft.params, body))


@contextlib.contextmanager
def in_time(what: str) -> Iterator[None]:
    def late(number: int, frame: FrameType | None) -> None:
        raise AssertionError(f"{what} does not end")

    before = signal.signal(signal.SIGALRM, late)
    signal.alarm(SECONDS)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def values(mod: IRModule, inputs: dict[str, np.ndarray]) -> tuple[np.ndarray, ...]:
    found = relay.evaluate(mod, inputs)
    return found if isinstance(found, tuple) else (found,)


def inputs_of(mod: IRModule) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(1)
    return {p.name_hint: rng.uniform(-1, 1, p.shape) for p in mod["main"].params}


def checked(change, mod: IRModule, inputs, wanted) -> IRModule:
    with in_time(change.__name__):
        made = change(mod)
    if made["main"].body is not mod["main"].body:
        for found, expected in zip(values(made, inputs), wanted, strict=True):
            np.testing.assert_allclose(found, expected, rtol=1e-7, atol=1e-9)
    return made


@pytest.mark.slow
@given(moving())
@examples(40)
def test_every_pass_ends_and_keeps_the_values(mod):
    inputs = inputs_of(mod)
    wanted = values(mod, inputs)
    for change in OTHERS:
        checked(change, mod, inputs, wanted)
    for change in PASSES:
        mod = checked(change, mod, inputs, wanted)


def shown(mod: IRModule) -> list[tuple[str, tuple[int, ...]]]:
    return [(op_name(n), n.shape) for n in post_order(mod["main"].body) if op_name(n)]


@pytest.mark.slow
@given(moving())
@examples(40)
def test_moves_are_last_once_and_for_all(mod):
    """What is settled stays as it is: no two forms are swapped by one run after another."""
    mod = canonicalize(mod)
    with in_time("moves_last"):
        for _ in range(4):
            before, mod = mod, moves_last(mod)
    assert shown(mod) == shown(before)


def swapped() -> IRModule:
    """A product and a running sum, each moved, the product by several moves."""
    n = 8
    a, b = (relay.var(k, shape=(16, n, n)) for k in "ab")
    x = relay.var("x", shape=(1, 8, 2, n, n))
    p = nn.batch_matmul(a, b, transpose_b=False)
    p = relay.transpose(relay.reshape(p, (2, 8, n, 1, 1, n)), (4, 0, 2, 5, 1, 3))
    q = relay.transpose(relay.exp(relay.cumsum(x, axis=3)), (0, 2, 3, 4, 1))
    return IRModule.from_expr(
        Function([a, b, x], relay.multiply(relay.reshape(p, (1, 2, n, n, n)), q))
    )


@pytest.mark.parametrize("change", [*PASSES, *OTHERS], ids=lambda p: p.__name__)
def test_what_two_values_would_be_moved_for_settles(change):
    mod = canonicalize(swapped())
    inputs = inputs_of(mod)
    checked(change, mod, inputs, values(mod, inputs))
