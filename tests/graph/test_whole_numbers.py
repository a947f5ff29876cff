"""Quantised contractions as products of bytes: the same numbers, zero points taken off as sums."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tilewright.base.dtype import DType
from tilewright.graph.evaluate import evaluate
from tilewright.graph.expr import Call, Expr, IRModule, post_order
from tilewright.graph.functions import nn, tensor
from tilewright.graph.functions import quantized as qnn
from tilewright.graph.leaves import const, var
from tilewright.graph.passes import PASSES, fuse, optimize
from tilewright.graph.passes.whole_numbers import multiples, multiply_bytes
from tilewright.graph.traversal import op_name
from tilewright.network.extract import fused_groups, fused_tasks, groupings
from tilewright.targets.target import Target

RNG = np.random.default_rng(0)
UNFUSED = [p for p in PASSES if p is not fuse]


def weights(*shape: int, low: int = -128, high: int = 127) -> Expr:
    return const(RNG.integers(low, high, shape, endpoint=True).astype("int32"))


def centred(shape: tuple[int, ...], zero: int, dtype: str = "uint8") -> Expr:
    return qnn.centred(var("x", shape=shape, dtype=dtype), const(DType(dtype).storage.type(zero)))


def image(zero: int, dtype: str = "uint8") -> Expr:
    return centred((1, 8, 7, 6), zero, dtype)


SUMS: dict[str, Expr] = {
    "padded": nn.conv2d(image(120), weights(16, 8, 3, 3), padding=(1, 1)),
    "padded on one side": nn.conv2d(image(7), weights(16, 8, 3, 3), padding=(0, 1, 2, 0)),
    "signed": nn.conv2d(image(-5, "int8"), weights(16, 8, 3, 3), strides=(2, 2), padding=(1, 1)),
    "no zero point": nn.conv2d(image(0), weights(16, 8, 3, 3), padding=(1, 1)),
    "of groups": nn.conv2d(image(3), weights(16, 2, 3, 3), padding=(1, 1), groups=4),
    "unsigned weights": nn.conv2d(image(9), weights(4, 8, 1, 1, low=0, high=255)),
    "channels last": nn.conv2d(
        centred((1, 7, 6, 8), 120), weights(3, 3, 8, 16), padding=(1, 1), data_layout="NHWC",
        kernel_layout="HWIO",
    ),
    "of rows": nn.conv1d(centred((2, 8, 9), 11), weights(4, 8, 3), padding=(1,)),
    "a shift that no byte holds": nn.conv2d(
        tensor.cast(var("x", shape=(1, 8, 7, 6), dtype="uint8"), "int32") + const(np.int32(4000)),
        weights(4, 8, 3, 3), padding=(1, 1),
    ),
    "dense": nn.dense(centred((5, 12), 120), weights(6, 12)),
}  # fmt: skip
LEFT: dict[str, Expr] = {
    "large weights": nn.dense(centred((5, 12), 120), weights(6, 12, low=-300, high=300)),
    "wide data": nn.dense(var("x", shape=(5, 12), dtype="int32"), weights(6, 12)),
    "floats": nn.dense(var("x", shape=(5, 12)), const(np.ones((6, 12), "float32"))),
}  # fmt: skip


def before(body: Expr) -> IRModule:
    return optimize(IRModule.from_expr(body), {}, UNFUSED)


def inputs(mod: IRModule) -> dict[str, Any]:
    (x,) = mod["main"].params
    kind = x.dtype
    if kind.is_float:
        return {"x": RNG.normal(size=x.shape).astype(kind.storage)}
    return {
        "x": RNG.integers(kind.least, kind.greatest, x.shape, endpoint=True).astype(kind.storage)
    }


def factors(mod: IRModule) -> list[set[str]]:
    calls = (n for n in post_order(mod["main"].body) if isinstance(n, Call))
    return [
        {str(a.dtype) for a in n.args} for n in calls if op_name(n) in ("nn.conv2d", "nn.dense")
    ]


@pytest.mark.parametrize("name", SUMS)
def test_sums_stay_what_they_are_and_factors_are_bytes(name: str) -> None:
    mod = before(SUMS[name])
    made = multiply_bytes(mod)
    assert all(kinds <= {"int8", "uint8"} for kinds in factors(made))
    given = inputs(mod)
    np.testing.assert_array_equal(evaluate(made, given), evaluate(mod, given))


@pytest.mark.parametrize("name", LEFT)
def test_what_is_no_product_of_bytes_stays(name: str) -> None:
    mod = before(LEFT[name])
    assert factors(multiply_bytes(mod)) == factors(mod)


def network() -> Expr:
    """Two quantised convolutions, one behind the other, as ONNX has them."""
    data = var("x", shape=(1, 32, 8, 8), dtype="uint8")
    for zero in (120, 100):
        made = nn.conv2d(
            qnn.centred(data, const(np.uint8(zero))), weights(32, 32, 3, 3), padding=(1, 1)
        )
        made = made + tensor.expand_dims(weights(32), 1, 2)
        steps = tensor.cast(made, "float32") * const(np.float32(0.001))
        data = qnn.narrowed(steps, const(np.uint8(zero - 20)), DType("uint8"))
    return data


def test_kernels_are_of_bytes_where_a_target_multiplies_them() -> None:
    mod = IRModule.from_expr(network())
    for text, bytes_ in (("cuda -arch=sm_90", True), ("cuda -arch=sm_75", False), ("llvm", False)):
        tasks = fused_tasks(mod, None, text)
        products = [t for t in tasks if "conv2d" in t.name]
        assert len(products) == 2
        for task in products:
            kinds = {str(t.dtype) for t in task.dag.args[:2]}
            assert kinds == ({"uint8", "int8"} if bytes_ else {"int32"})
            assert ("tensor" in task.sketches[0].origin) is bytes_
            assert len(task.dag.args) == 4, "one shift"


def test_a_network_of_bytes_computes_the_same() -> None:
    mod = IRModule.from_expr(network())
    (narrow, *_), (wide, *_) = (groupings(mod, None, target=t) for t in (Target("cuda"), None))
    given = inputs(mod)
    np.testing.assert_array_equal(evaluate(narrow, given), evaluate(wide, given))
    assert [len(fused_groups(m["main"])) for m in (narrow, wide)] == [2, 3]


# -- quantised, and written in floats --------------------------------------------------------------


def scaled(*shape: int, axis: int = 0, low: int = -127) -> Expr:
    """Weights of which each channel of the result has a scale, rounded twice, as folding does."""
    counts = RNG.integers(low, 127, shape, endpoint=True)
    extent = [1] * len(shape)
    extent[axis] = shape[axis]
    scales = RNG.uniform(1e-4, 1e-2, extent).astype("float32")
    return const((counts * scales).astype("float32") * np.float32(0.37))


def in_floats(data: Expr) -> Expr:
    return tensor.cast(data, "float32")


FLOATS: dict[str, Expr] = {
    "padded": nn.conv2d(in_floats(image(120)), scaled(16, 8, 3, 3), padding=(1, 1)),
    "no zero point": nn.conv2d(in_floats(image(0)), scaled(16, 8, 3, 3), padding=(1, 1)),
    "of groups": nn.conv2d(
        in_floats(image(-3, "int8")), scaled(16, 2, 3, 3), padding=(1, 1), groups=4
    ),
    "channels last": nn.conv2d(
        in_floats(centred((1, 7, 6, 8), 120)), scaled(3, 3, 8, 16, axis=3), padding=(1, 1),
        data_layout="NHWC", kernel_layout="HWIO",
    ),
    "dense": nn.dense(in_floats(centred((5, 12), 120)), scaled(6, 12)),
    "dense behind a reshape": nn.dense(
        tensor.reshape(in_floats(centred((5, 4, 3), 120)), (5, 12)), scaled(6, 12)
    ),
    "a channel of zeros": nn.dense(
        in_floats(centred((5, 12), 120)), const(np.repeat([[0.0], [0.5]], 12, 1).astype("float32"))
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", FLOATS)
def test_sums_of_floats_that_count_are_of_bytes(name: str) -> None:
    mod = before(FLOATS[name])
    made = multiply_bytes(mod)
    assert all(kinds <= {"int8", "uint8"} for kinds in factors(made)) and factors(made)
    given = inputs(mod)
    exact, found = evaluate(mod, given, "float64"), evaluate(made, given)
    np.testing.assert_allclose(found, exact, rtol=1e-5, atol=1e-5 * np.abs(exact).max())


def test_floats_that_are_no_multiples_stay() -> None:
    any_ = const(RNG.normal(size=(16, 8, 3, 3)).astype("float32"))
    for body in (
        nn.conv2d(in_floats(image(120)), any_, padding=(1, 1)),
        nn.conv2d(var("x", shape=(1, 8, 7, 6)), scaled(16, 8, 3, 3), padding=(1, 1)),
    ):
        mod = before(body)
        assert factors(multiply_bytes(mod)) == factors(mod) == [{"float32"}]


def test_multiples_are_told_from_other_numbers() -> None:
    counts = RNG.integers(-127, 128, (8, 40))
    scales = RNG.uniform(1e-5, 1e3, (8, 1))
    found = multiples((counts * scales).astype("float32"))
    assert found is not None
    np.testing.assert_allclose(found[0][:, None] * found[1], counts * scales, rtol=1e-6)
    one_is_off = (counts * scales).astype("float32")
    one_is_off[3, 5] += 0.3 * scales[3, 0]
    assert multiples(one_is_off) is None
    assert multiples(np.full((2, 3), np.inf, "float32")) is None


# -- quantised as it runs --------------------------------------------------------------------------


@pytest.mark.parametrize("shape", [(), (1,)])
@pytest.mark.parametrize("form", ["conv", "dense"])
def test_a_zero_point_may_be_computed(form: str, shape: tuple[int, ...]) -> None:
    zero = tensor.cast(
        tensor.reshape(tensor.max(var("z", shape=(3,), dtype="uint8")), shape), "int32"
    )
    data = var("x", shape=(1, 8, 7, 6) if form == "conv" else (5, 12), dtype="uint8")
    steps = tensor.cast(data, "int32") - zero
    if form == "conv":
        body = nn.conv2d(steps, weights(16, 8, 3, 3), padding=(1, 1), strides=(2, 1))
    else:
        body = nn.dense(steps, weights(6, 12))
    mod = before(body)
    made = multiply_bytes(mod)
    assert factors(made) == [{"uint8", "int8"}]
    given = {p.name_hint: RNG.integers(0, 256, p.shape).astype("uint8") for p in mod["main"].params}
    np.testing.assert_array_equal(evaluate(made, given), evaluate(mod, given))


def test_zero_points_of_rows_stay() -> None:
    zero = tensor.cast(var("z", shape=(5, 1), dtype="uint8"), "int32")
    mod = before(nn.dense(tensor.cast(var("x", shape=(5, 12), dtype="uint8"), "int32") - zero,
                          weights(6, 12)))  # fmt: skip
    assert factors(multiply_bytes(mod)) == [{"int32"}]
