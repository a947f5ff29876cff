"""What lowered programs mean."""

import time

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests import strategies as S
from tests.ir import naive
from tests.ir.programs import (
    ROLES,
    ZERO,
    A,
    B,
    J,
    N,
    T,
    U,
    V,
    copy,
    execute,
    kernel,
    launch,
    masked,
    reversed_through_shared,
)
from tests.ir.scalars import VARIABLES, build, calculate, conditions, floats, ints, small
from tests.tiers import examples
from tilewright.base.artifact import Packing
from tilewright.ir import expr as E
from tilewright.ir.fast_interpreter import run_fast
from tilewright.ir.interpreter_memory import InterpreterError
from tilewright.ir.stmt import (
    Allocate,
    Barrier,
    Buffer,
    For,
    If,
    Kernel,
    Program,
    Store,
    Thread,
    load,
    seq,
)

# -- meaning ---------------------------------------------------------------------------------------


@pytest.mark.slow
@examples(40)
@given(S.dags(3000), st.sampled_from(naive.STYLES), st.integers(0, 3))
def test_naive_programs_compute_their_dag(drawn, style, seed):
    dag, _ = drawn
    S.assert_computes(naive.program(dag, style), dag, seed)


@examples(20)
@given(S.gathers())
def test_indices_may_be_loaded(drawn):
    dag, _ = drawn
    S.assert_computes(naive.program(dag, "serial"), dag)


@pytest.mark.slow
@examples(40)
@given(
    st.one_of(ints, conditions, floats),
    st.lists(st.fixed_dictionaries(dict.fromkeys("ijkxy", small)), min_size=1, max_size=4),
)
def test_expressions_have_the_values_of_python(recipe, rows):
    """Variables come from buffers, so nothing is known of them and nothing is hoisted."""
    node, n = build(recipe), len(rows)
    table = {"i": "int32", "j": "int32", "k": "int64", "x": "float32", "y": "float32"}
    sources = {name: Buffer(name, dtype, n) for name, dtype in table.items()}
    row = E.var("row")
    loads = {v: load(sources[v.name], row) for v in E.free_variables(node)}
    out = Buffer("out", node.dtype, n)
    body = For(row, n, Store(out, row, E.substitute(node, loads)))
    program = Program(
        "p", (*sources.values(), out), ("input",) * 5 + ("output",),
        (Kernel("k", (*sources.values(), out), body),),
    )  # fmt: skip
    columns = {name: np.array([r[name] for r in rows], table[name]) for name in table}
    result = np.zeros(n, node.dtype)
    with np.errstate(all="ignore"):
        expected = [
            calculate(recipe, {k: c[m] if k in "xy" else int(c[m]) for k, c in columns.items()})
            for m in range(n)
        ]
        bounded = [int(v) if isinstance(v, int) else v for v in expected]
        if node.dtype == "int32" and max(map(abs, bounded)) >= 2**31:
            return
        run_fast(program, [*columns.values(), result])
    assert np.array_equal(result, np.array(expected, node.dtype), equal_nan=True)


@pytest.mark.slow
@examples(40)
@given(ints, st.tuples(*[st.integers(1, 4)] * 3), st.integers(1, 8))
def test_an_index_is_refused_exactly_when_it_is_outside(recipe, extents, size):
    node, out = build(recipe), Buffer("out", "int32", size)
    body = Store(out, node, E.const(1))
    for name, extent in zip("ijk", extents, strict=True):
        body = For(VARIABLES[name], extent, body)
    points = [dict(zip("ijk", at, strict=True)) for at in np.ndindex(*extents)]
    reached = {calculate(recipe, at) for at in points}
    result = np.zeros(size, np.int32)
    program = Program("p", (out,), ("output",), (Kernel("k", (out,), body),))
    if min(reached) >= 0 and max(reached) < size:
        run_fast(program, [result], check=False)
        assert set(np.flatnonzero(result)) == reached
    else:
        with pytest.raises(InterpreterError, match=r"outside the \d elements of out"):
            run_fast(program, [result])


@pytest.mark.parametrize(
    ("index", "at"),
    [
        (V + 1, 8), (V - 1, -1), (8 - V, 8), (V * -1, -1), (V * 2, 8), ((V + 8) // 2, 8),
        ((V + 1) % 9, 8), (E.maximum(3, V + 1), 8), (E.minimum(3, V - 1), -1),
        (E.select(V < 7, 2, V + 1), 8), (E.if_then_else(V < 7, V, 8), 8),
        (E.cast("int64", V) + 1, 8),
    ],
)  # fmt: skip
def test_ranges_of_loops_hide_no_access(index, at):
    extent = 9 if index.op == "floordiv" else N
    with pytest.raises(InterpreterError, match=rf"b\[{at}\]: outside"):
        execute(kernel(For(V, extent, Store(B, index, ZERO))))


@pytest.mark.parametrize("kind", ["serial", "unrolled", "vectorized", "parallel", "vthread"])
def test_every_loop_kind_runs_in_order(kind):
    assert execute(kernel(For(V, N, Store(B, V, load(A, V) * 2.0), kind))).tolist() == [
        0, 2, 4, 6, 8, 10, 12, 14,
    ]  # fmt: skip


def test_float32_rounds_after_every_operation():
    body = Store(B, V, (load(A, V) + 16777216.0) * 0.1 - 0.1)
    out = execute(kernel(For(V, N, body)))
    x = np.arange(N, dtype=np.float32)
    assert np.array_equal(out, (x + np.float32(2**24)) * np.float32(0.1) - np.float32(0.1))


@pytest.mark.parametrize(("op", "both"), [(E.minimum, np.minimum), (E.maximum, np.maximum)])
def test_minimum_and_maximum_propagate_nan(op, both):
    x = np.array([np.nan, 1.0, np.nan, 2.0], np.float32)
    y = np.array([1.0, np.nan, np.nan, 3.0], np.float32)
    a, b, c = (Buffer(n, "float32", 4) for n in "abc")
    out = np.zeros(4, np.float32)
    body = For(V, 4, Store(c, V, op(load(a, V), load(b, V))))
    program = Program(
        "p", (a, b, c), ("input", "input", "output"), (kernel(body, params=(a, b, c)),)
    )
    run_fast(program, [x, y, out])
    assert np.array_equal(out, both(x, y), equal_nan=True)


def test_float64_does_not():
    c = Buffer("c", "float64", N)
    wide = E.cast("float64", load(A, V)) / 3.0
    out = execute(kernel(For(V, N, Store(c, V, wide)), params=(A, c)), args=(A, c))
    assert np.array_equal(out, np.arange(N) / 3.0)


def test_casts_truncate_and_integers_floor():
    c = Buffer("c", "int32", N)
    towards_zero = E.cast("int32", load(A, V) - 3.5)
    out = execute(kernel(For(V, N, Store(c, V, towards_zero)), params=(A, c)), args=(A, c))
    assert out.tolist() == [-3, -2, -1, 0, 0, 1, 2, 3]
    down = (E.cast("int32", load(A, V)) - 4) // 3
    out = execute(kernel(For(V, N, Store(c, V, down)), params=(A, c)), args=(A, c))
    assert out.tolist() == [-2, -1, -1, -1, 0, 0, 0, 1]


@pytest.mark.parametrize(
    ("function", "at", "value"),
    [
        ("exp", 1000.0, np.inf), ("log", 0.0, -np.inf), ("log", -1.0, np.nan),
        ("sqrt", -1.0, np.nan), ("rsqrt", 0.0, np.inf), ("rsqrt", 4.0, 0.5), ("round", 2.5, 2.0),
        ("floor", -0.5, -1.0), ("ceil", np.inf, np.inf), ("abs", -2.0, 2.0),
        ("sin", np.inf, np.nan), ("cos", 0.0, 1.0), ("erf", 0.5, 0.5204999),
        ("tanh", 0.5, 0.46211717),
    ],
)  # fmt: skip
def test_functions_at_their_edges(function, at, value):
    out = execute(kernel(For(V, N, Store(B, V, E.call(function, E.const(at))))))
    assert np.array_equal(out, np.full(N, value, np.float32), equal_nan=True)


def test_floats_divide_by_zero():
    out = execute(kernel(For(V, N, Store(B, V, (load(A, V) - 1.0) / 0.0))))
    assert out[0] == -np.inf and np.isnan(out[1]) and out[2] == np.inf


def test_only_one_side_of_if_then_else_runs():
    inside = E.if_then_else(V < N - 1, load(A, V + 1), -1.0)
    assert execute(kernel(For(V, N, Store(B, V, inside))))[-1] == -1


def test_guard_of_an_inner_access_may_be_a_statement():
    body = For(V, N + 5, If(V < N, Store(B, V, load(A, V)), None))
    assert execute(kernel(body)).tolist() == list(range(N))
    other = For(V, N, If(V < 2, Store(B, V, ZERO), Store(B, V, load(A, V))))
    assert execute(kernel(other)).tolist() == [0, 0, 2, 3, 4, 5, 6, 7]


def test_a_vector_statement_reads_before_it_writes():
    ramp = E.ramp(E.const(0), 1, N - 1)
    shift = Store(B, ramp + 1, load(B, ramp))
    assert execute(kernel(seq(copy(), shift))).tolist() == [0, 0, 1, 2, 3, 4, 5, 6]


def test_vectors_with_strides_and_conditions():
    ramp = E.ramp(E.const(N - 1), -1, N)
    value = E.if_then_else(V < 1, load(A, ramp), 0.0)
    assert execute(kernel(For(V, 1, Store(B, E.ramp(V, 1, N), value)))).tolist() == [
        7, 6, 5, 4, 3, 2, 1, 0,
    ]  # fmt: skip


def test_lanes_under_a_condition():
    ramp = E.ramp(V * 4, 1, 4)
    twice, none = Store(B, ramp, load(B, ramp) * 2.0), Store(B, ramp, E.broadcast(ZERO, 4))
    assert execute(masked(ramp < 6, twice)).tolist() == [0, 2, 4, 6, 8, 10, 6, 7]
    assert execute(masked(ramp < 6, twice, none)).tolist() == [0, 2, 4, 6, 8, 10, 0, 0]
    inner = If(ramp >= 1, For(J, 2, twice))
    assert execute(masked(ramp < 3, inner)).tolist() == [0, 4, 8, 3, 4, 5, 6, 7]


def test_lanes_that_do_not_run_access_nothing():
    ramp = E.ramp(V * 5, 1, 5)
    move = Store(B, ramp, load(A, ramp))
    assert execute(kernel(For(V, 2, If(ramp < N, move)))).tolist() == list(range(N))


def test_lanes_under_a_condition_read_before_they_write():
    ramp = E.ramp(E.const(0), 1, N)
    shift = Store(B, ramp + 1, load(B, ramp))
    body = kernel(seq(copy(), If(ramp < N - 1, shift)))
    assert execute(body).tolist() == [0, 0, 1, 2, 3, 4, 5, 6]


def test_local_buffers_are_new_in_every_iteration():
    local = Buffer("l", "float32", 1, "local")
    first = seq(Store(local, E.const(0), load(A, V)), Store(B, V, load(local, E.const(0))))
    assert execute(kernel(For(V, N, Allocate(local, first)))).tolist() == list(range(N))


def test_sibling_loops_may_reuse_a_variable():
    body = seq(For(V, N, Store(B, V, ZERO)), For(V, 2, Store(B, V * 3, load(A, V * 3 + 1))))
    assert execute(kernel(body)).tolist() == [1, 0, 0, 4, 0, 0, 0, 0]


def test_what_was_derived_from_a_variable_is_forgotten_when_it_is_bound_again():
    inner = For(J, 4, Store(B, V * 4 + J, load(A, V * 4 + J)))
    assert execute(kernel(seq(For(V, 1, inner), For(V, 2, inner)))).tolist() == list(range(N))
    widened = For(J, 2, Store(B, V * 2 + J, load(A, V * 2 + J)))
    with pytest.raises(InterpreterError, match=r"b\[8\]|a\[8\]"):
        execute(kernel(seq(For(V, 4, widened), For(V, 5, widened))))


def test_barriers_exchange_shared_memory():
    assert execute(reversed_through_shared()).tolist() == [7, 6, 5, 4, 3, 2, 1, 0]


def test_shared_memory_is_new_in_every_block():
    shared = Buffer("s", "float32", 4, "shared")
    unwritten = If(U < 1, Store(shared, T, load(A, T)))
    body = Allocate(shared, seq(unwritten, Store(B, U * 4 + T, load(shared, T))))
    with pytest.raises(InterpreterError, match="never written"):
        execute(launch(body, 2, 4))


def test_launch_dimensions_in_any_order():
    x, y, z = (E.var(n) for n in "xyz")
    threads = (Thread("threadIdx.y", y, 2), Thread("blockIdx.z", z, 2), Thread("threadIdx.x", x, 2))
    body = Store(B, z * 4 + y * 2 + x, load(A, z * 4 + y * 2 + x))
    assert execute(kernel(body, threads)).tolist() == list(range(N))


def tiled_matmul(n=16, tile=4, drop=()):
    """C = A B in shared tiles; `drop`: numbers of the barriers to leave out."""
    a, b, c = (Buffer(x, "float32", n * n) for x in "abc")
    sa, sb = (Buffer(x, "float32", tile * tile, "shared") for x in ("sa", "sb"))
    local = Buffer("acc", "float32", 1, "local")
    bx, by, tx, ty, ko, ki = (E.var(x) for x in ("bx", "by", "tx", "ty", "ko", "ki"))
    zero = E.const(0)
    row, column, at = by * tile + ty, bx * tile + tx, ty * tile + tx
    product = load(sa, ty * tile + ki) * load(sb, ki * tile + tx)
    step = [
        Barrier(),
        Store(sa, at, load(a, row * n + ko * tile + tx)),
        Store(sb, at, load(b, (ko * tile + ty) * n + column)),
        Barrier(),
        For(ki, tile, Store(local, zero, load(local, zero) + product)),
    ]
    barriers = [0, 3]
    kept = [s for k, s in enumerate(step) if k not in [barriers[d] for d in drop]]
    body = seq(
        Store(local, zero, ZERO),
        For(ko, n // tile, seq(*kept)),
        Store(c, row * n + column, load(local, zero)),
    )
    for buffer in (sa, sb, local):
        body = Allocate(buffer, body)
    threads = (
        Thread("blockIdx.x", bx, n // tile), Thread("blockIdx.y", by, n // tile),
        Thread("threadIdx.x", tx, tile), Thread("threadIdx.y", ty, tile),
    )  # fmt: skip
    return Program(
        "mm", (a, b, c), ("input", "input", "output"), (Kernel("mm", (a, b, c), body, threads),)
    )


def matrices(n=16):
    rng = np.random.default_rng(0)
    return [rng.standard_normal((n, n)).astype(np.float32) for _ in range(3)]


def test_tiled_matrix_product():
    a, b, c = matrices()
    run_fast(tiled_matmul(), [a, b, c])
    assert np.allclose(c, a @ b, atol=1e-5)
    again = c.copy()
    run_fast(tiled_matmul(), [a, b, c], check=False)
    assert np.array_equal(again, c)


@pytest.mark.parametrize("drop", [0, 1])
def test_a_tiled_matrix_product_needs_both_barriers(drop):
    with pytest.raises(InterpreterError, match=r"mm: s[ab]\[\d+\]: (another thread|this element)"):
        run_fast(tiled_matmul(drop=(drop,)), matrices())


@pytest.mark.parametrize("kind", ["launched", "with barriers", "parallel"])
def test_nests_deeper_than_python_allows(kind):
    """Forty loops of two iterations, of which the first alone goes deeper."""
    out, local = Buffer("out", "int32", 2), Buffer("count", "int32", 1, "local")
    zero, loops = E.const(0), [E.var(f"v{k}") for k in range(40)]
    body = seq(Barrier() if kind == "with barriers" else None)
    for v in reversed(loops):
        counted = v in (loops[0], loops[20], loops[-1])
        add = Store(local, zero, load(local, zero) + loops[0] + v + T + 1)
        body = For(v, 2, seq(If(v < 1, body), add if counted else None))
    whole = Allocate(local, seq(Store(local, zero, zero), body, Store(out, T, load(local, zero))))
    threads = (Thread("threadIdx.x", T, 2),)
    if kind == "parallel":
        whole, threads = For(T, 2, whole, "parallel"), ()
    result = np.zeros(2, np.int32)
    run_fast(Program("p", (out,), ("output",), (Kernel("k", (out,), whole, threads),)), [result])
    # the counted loops add T + 1 and T + 2; the first of them, T + 1 and T + 3
    assert result.tolist() == [2 * 3 + 4, 2 * 5 + 6]


def test_a_constant_is_packed_on_the_way_in():
    packing = Packing((3, 4), (1, 2), (1, 0, 3))
    packed = Buffer("w", "float32", 12, "global", (2, 3, 2), packing)
    out = Buffer("out", "float32", 12)
    body = For(V, 12, Store(out, V, load(packed, V)))
    program = Program("p", (packed, out), ROLES, (Kernel("k", (packed, out), body),))
    w = np.arange(12, dtype=np.float32).reshape(3, 4)
    results = [np.zeros(12, np.float32) for _ in range(2)]
    run_fast(program, [w, results[0]])
    run_fast(program, [packing.apply(w), results[1]])
    assert results[0].tolist() == w.reshape(3, 2, 2).transpose(1, 0, 2).ravel().tolist()
    assert np.array_equal(*results)


def test_outputs_of_any_layout_are_written_in_place():
    out = np.zeros((4, 2), np.float32).T
    run_fast(Program("p", (A, B), ROLES, (kernel(copy()),)), [np.arange(8, dtype=np.float32), out])
    assert out.tolist() == [[0, 1, 2, 3], [4, 5, 6, 7]]


def test_workspaces_carry_values_between_kernels():
    w = Buffer("w", "float32", N)
    kernels = [kernel(copy(A, w), params=(A, w)), kernel(copy(w, B), params=(w, B))]
    assert execute(*kernels, workspaces=(w,)).tolist() == list(range(N))


def test_a_million_operations_take_seconds():
    a, b, c = matrices(48)
    program = tiled_matmul(48, 8)
    start = time.process_time()
    run_fast(program, [a, b, c])
    assert time.process_time() - start < 2  # 110,592 multiply-adds, about 0.05 s alone
    assert np.allclose(c, a @ b, atol=1e-4)
