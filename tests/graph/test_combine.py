"""Products of one value become one, where the slices of it cost nothing more."""

import numpy as np
import pytest

from graph.case import function, tensor
from tilewright.graph.evaluate import evaluate
from tilewright.graph.expr import IRModule, post_order
from tilewright.graph.passes import canonicalize, combine_products
from tilewright.graph.traversal import op_name
from tilewright.network.extract import fused_groups, prepare
from tilewright_tvm import relay
from tilewright_tvm.relay import nn

RNG = np.random.default_rng(0)


def product(x: relay.Expr, columns: int) -> relay.Expr:
    return nn.dense(x, relay.const(RNG.standard_normal((columns, 8))))


def heads(x: relay.Expr) -> relay.Expr:
    """Of one row: halves that change places, with other signs."""
    rows, columns = x.shape
    split = relay.reshape(x, (rows, columns // 4, 4))
    first = relay.strided_slice(split, [0, 0, 0], [rows, columns // 4, 2])
    second = relay.strided_slice(split, [0, 0, 2], [rows, columns // 4, 4])
    turned = relay.concatenate([relay.negative(second), first], 2)
    return split * relay.const(2.0, "float64") + turned


def decoder(rows: int) -> relay.Function:
    """Queries and keys are turned, values are written to a cache."""
    x, cache = tensor("x", rows, 8, dtype="float64"), tensor("cache", 4, rows, 8, dtype="float64")
    at = relay.const(np.array([[1]], "int64"))
    values = relay.reshape(product(x, 8), (1, rows, 8))
    kept = relay.scatter_nd(cache, at, values)
    return function(relay.Tuple([heads(product(x, 16)), heads(product(x, 8)), kept]))


def normed(rows: int) -> relay.Function:
    """Heads of queries and keys have norms, which are computed in another type."""
    x, made = tensor("x", rows, 8, dtype="float64"), []
    for columns in (16, 8):
        split = relay.reshape(product(x, columns), (rows, columns // 4, 4))
        wide = relay.cast(split, "float32")
        norm = nn.rms_norm(wide, relay.const(np.ones(4, "float32")), -1)
        made.append(relay.cast(norm, "float64"))
    return function(relay.Tuple(made))


def gated() -> relay.Function:
    x = tensor("x", 1, 8, dtype="float64")
    gate = product(x, 16)
    return function(gate * relay.sigmoid(gate) * product(x, 16))


def dense_of(f: relay.Function) -> int:
    mod = combine_products(canonicalize(IRModule.from_expr(f)))
    return sum(op_name(node) == "nn.dense" for node in post_order(mod["main"].body))


@pytest.mark.parametrize("rows, count", [(1, 1), (2, 2)])
def test_norms_of_heads_in_another_type_read_slices_of_one_row(rows: int, count: int) -> None:
    f = normed(rows)
    assert dense_of(f) == count
    mod = IRModule.from_expr(f)
    given = {"x": RNG.standard_normal((rows, 8))}
    found = evaluate(combine_products(canonicalize(mod)), given)
    for one, other in zip(found, evaluate(mod, given), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-5)


@pytest.mark.parametrize("rows, count", [(1, 1), (2, 3)])
def test_what_reads_slices_of_one_row_reads_a_place_in_memory(rows: int, count: int) -> None:
    """Of several rows a slice is none."""
    f = decoder(rows)
    assert dense_of(f) == count
    groups = fused_groups(prepare(IRModule.from_expr(f))["main"])
    names = [g.name for g in groups for _ in g.calls]
    assert sum("dense" in name for name in names) == count
    assert sum(name == "strided_slice" for name in names) == 0  # nothing is copied for it


def test_what_joins_a_product_keeps_it() -> None:
    assert dense_of(gated()) == 2


@pytest.mark.parametrize("f", [decoder(1), decoder(2), gated()])
def test_values_stay(f: relay.Function) -> None:
    rng = np.random.default_rng(1)
    given = {p.name_hint: rng.standard_normal(p.shape) for p in f.params}
    mod = IRModule.from_expr(f)
    combined = combine_products(canonicalize(mod))
    want, found = (evaluate(m, given, "float64") for m in (mod, combined))
    for a, b in zip(found, want, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-12)
