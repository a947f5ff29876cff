"""`relay.transform.FuseOps` makes the functions that TVM's makes; builds make their own groups."""

from __future__ import annotations

import numpy as np
import pytest

import tilewright_tvm as tvm
from tilewright.graph.expr import Expr, Function, Var, post_order
from tilewright_tvm import relay
from tilewright_tvm.relay import nn, transform

IMAGE = (1, 4, 8, 8)


def one() -> Expr:
    return relay.const(1.0)


def var(name: str, *shape: int) -> Var:
    return relay.var(name, shape=shape)


def whole(*params: Var, body: Expr) -> Function:
    return relay.Function(params, body)


def kernel(*params: Var, body: Expr) -> Function:
    return whole(*params, body=body).with_attr("Primitive", tvm.tir.IntImm("int32", 1))


def fused(function: Function) -> Function:
    return transform.FuseOps(2)(tvm.IRModule.from_expr(function))["main"]


def _pool(x: Expr) -> Expr:
    return nn.max_pool2d(x, pool_size=(2, 2), strides=(2, 2))


def _moved_in_a_row() -> tuple[Function, Function]:
    def steps(x: Expr) -> Expr:
        return relay.squeeze(relay.exp(x + one()))

    x, p, y = (var(n, 1, 5) for n in "xpy")
    return whole(x, body=steps(x)), whole(y, body=kernel(p, body=steps(p))(y))


def _convolutions_that_meet() -> tuple[Function, Function]:
    def conv(x: Expr, w: Expr) -> Expr:
        return nn.conv2d(x, w, padding=(1, 1))

    x, a, b = var("x", *IMAGE), var("a", 4, 4, 3, 3), var("b", 4, 4, 3, 3)
    y = conv(x + one(), a)
    before = whole(x, a, b, body=conv(y, a) + conv(y, b))
    p, w, s = var("p", *IMAGE), var("w", 4, 4, 3, 3), var("s", *IMAGE)
    alone = kernel(p, w, body=conv(p, w))
    shifted, added = kernel(p, body=p + one()), kernel(p, w, s, body=conv(p, w) + s)
    y = alone(shifted(x), a)
    return before, whole(x, a, b, body=added(y, a, alone(y, b)))


def _a_tuple_inside() -> tuple[Function, Function]:
    def joined(x: Expr, y: Expr) -> Expr:
        return relay.concatenate((nn.upsampling(x, 2, 2), y), axis=1) + one()

    x, y, p = var("x", *IMAGE), var("y", *IMAGE), var("p", 1, 4, 4, 4)
    pool = kernel(y, body=_pool(y))
    after = kernel(p, y, body=joined(p, y))
    return whole(x, body=joined(_pool(x), x)), whole(x, body=after(pool(x), x))


def _what_a_tuple_inside_reads() -> tuple[Function, Function]:
    def several(x: Expr) -> Expr:
        inner = [relay.concatenate([x + one(), x + one()], axis=1) + one() for _ in range(2)]
        return relay.concatenate(inner, axis=1)

    x, p, q = var("x", *IMAGE), var("p", *IMAGE), var("q", 1, 16, 8, 8)
    pool = kernel(q, body=_pool(q) + one())
    read = kernel(p, body=several(p))
    return whole(x, body=_pool(several(x)) + one()), whole(x, body=pool(read(x)))


def _a_tuple_as_a_result() -> tuple[Function, Function]:
    x, p, q = var("x", *IMAGE), var("p", *IMAGE), var("q", 1, 4, 4, 4)
    pool, up = kernel(p, body=_pool(p)), kernel(q, body=nn.upsampling(q, 2, 2))
    before = whole(x, body=relay.Tuple([nn.upsampling(_pool(x), 2, 2), x]))
    return before, whole(x, body=relay.Tuple([up(pool(x)), x]))


def _parts_of_a_product() -> tuple[Function, Function]:
    def gates(x: Expr) -> Expr:
        a, b, c = relay.split(x, 3, axis=1)
        return relay.sigmoid(a) + relay.tanh(b) * relay.exp(c)

    x, w, p = var("x", 1, 4), var("w", 12, 4), var("p", 1, 12)
    product, rest = kernel(x, w, body=nn.dense(x, w)), kernel(p, body=gates(p))
    return whole(x, w, body=gates(nn.dense(x, w))), whole(x, w, body=rest(product(x, w)))


def _stopped() -> tuple[Function, Function]:
    x = var("x", 3)
    before = whole(x, body=relay.exp(relay.annotation.stop_fusion(x + one())))
    shifted, powers = kernel(x, body=x + one()), kernel(x, body=relay.exp(x))
    return before, whole(x, body=powers(shifted(x)))


PAIRS = [
    _moved_in_a_row, _convolutions_that_meet, _a_tuple_inside, _what_a_tuple_inside_reads,
    _a_tuple_as_a_result, _parts_of_a_product, _stopped,
]  # fmt: skip


@pytest.mark.parametrize("pair", PAIRS, ids=lambda p: p.__name__)
def test_functions_are_those_of_tvm(pair):
    before, after = pair()
    tvm.ir.assert_structural_equal(fused(before), after)
    again = transform.DefuseOps()(tvm.IRModule.from_expr(fused(before)))["main"]
    if pair is not _stopped:
        tvm.ir.assert_structural_equal(again, before)


def test_a_function_has_as_many_operators_as_it_may():
    x = y = var("x", 3)
    for _ in range(10):
        y = relay.exp(y)
    mod = tvm.IRModule.from_expr(whole(x, body=y))
    with tvm.transform.PassContext(config={"relay.FuseOps.max_depth": 4}):
        main = transform.FuseOps(2)(mod)["main"]
    lengths = []
    call = main.body
    while isinstance(call, relay.Call):
        lengths.append(sum(isinstance(n, relay.Call) for n in post_order(call.op.body)))
        (call,) = call.args
    assert lengths == [2, 4, 4]  # the last one first


@pytest.mark.parametrize("pair", [_parts_of_a_product, _a_tuple_inside, _stopped])
def test_a_build_makes_its_own_groups(pair):
    before, _ = pair()
    mod = tvm.IRModule.from_expr(before)
    plain, grouped = (relay.build(m, "llvm") for m in (mod, transform.FuseOps(2)(mod)))
    assert [k.source for k in plain.kernels] == [k.source for k in grouped.kernels]
    rng = np.random.default_rng(0)
    given = [rng.standard_normal(p.shape).astype("float32") for p in before.params]
    results = []
    for lib in (plain, grouped):
        run = tvm.contrib.graph_executor.GraphModule(lib["default"](tvm.cpu()))
        for p, value in zip(before.params, given, strict=True):
            run.set_input(p.name_hint, value)
        run.run()
        results.append(run.get_output(0).numpy())
    assert np.array_equal(*results)
