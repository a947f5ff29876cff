"""`te.decl_tensor_intrin`: tiles by statements, and by functions of others, as TVM documents it."""

from __future__ import annotations

import numpy as np
import pytest

import tilewright_tvm as tvm
from tests import interpreter
from tilewright.base.errors import CompileError, ExpressionError, LegalityError, ScheduleError
from tilewright.ir.fast_interpreter import run_fast
from tilewright.ir.verifier import verify
from tilewright_tvm import te

N, M, L, ROWS = 6, 32, 24, 8

# What clang makes of a loop that adds a matrix times a vector, and of one that sets zeros.
_MODULE = """
source_filename = "gemv.cc"
define dso_local i32 @{name}_update(ptr %c, ptr %a, ptr %b, i32 %m, i32 %l, i32 %stride) {{
entry:
  br label %rows
rows:
  %i = phi i32 [0, %entry], [%i1, %end]
  %first = mul i32 %i, %stride
  %at = getelementptr float, ptr %c, i32 %i
  %start = load float, ptr %at
  br label %columns
columns:
  %j = phi i32 [0, %rows], [%j1, %columns]
  %s = phi float [%start, %rows], [%s1, %columns]
  %pa = getelementptr float, ptr %a, i32 %j
  %x = load float, ptr %pa
  %k = add i32 %first, %j
  %pb = getelementptr float, ptr %b, i32 %k
  %y = load float, ptr %pb
  %p = fmul float %x, %y
  %s1 = fadd float %s, %p
  %j1 = add i32 %j, 1
  %more = icmp slt i32 %j1, %l
  br i1 %more, label %columns, label %end
end:
  store float %s1, ptr %at
  %i1 = add i32 %i, 1
  %again = icmp slt i32 %i1, %m
  br i1 %again, label %rows, label %done
done:
  ret i32 0
}}
define dso_local i32 @{name}_reset(ptr %c, i32 %m) {{
entry:
  br label %rows
rows:
  %i = phi i32 [0, %entry], [%i1, %rows]
  %at = getelementptr float, ptr %c, i32 %i
  store float 0.0, ptr %at
  %i1 = add i32 %i, 1
  %again = icmp slt i32 %i1, %m
  br i1 %again, label %rows, label %done
done:
  ret i32 0
}}
"""


def product():
    a, b = te.placeholder((N, L), name="A"), te.placeholder((M, L), name="B")
    k = te.reduce_axis((0, L), name="k")
    c = te.compute((N, M), lambda i, j: te.sum(a[i, k] * b[j, k], axis=k), name="C")
    return a, b, c


def declared(m: int, n: int, statements, strides=True, product=lambda x, y: x * y):
    a, b = te.placeholder((n,), name="a"), te.placeholder((m, n), name="b")
    k = te.reduce_axis((0, n), name="k")
    c = te.compute((m,), lambda i: te.sum(product(a[k], b[i, k]), axis=k), name="c")
    rows = [te.var("s1"), 1] if strides else None
    binds = {
        a: tvm.tir.decl_buffer(a.shape, a.dtype, name="A", offset_factor=1, strides=[1]),
        b: tvm.tir.decl_buffer(b.shape, b.dtype, name="B", offset_factor=1, strides=rows),
        c: tvm.tir.decl_buffer(c.shape, c.dtype, name="C", offset_factor=1, strides=[1]),
    }
    return te.decl_tensor_intrin(c.op, statements, binds=binds)


def called(name: str, m: int, n: int):
    """Calls of C functions: (body, reset, update)."""

    def statements(ins, outs):
        (a, b), (c,) = ins, outs
        pointers = c.access_ptr("w"), a.access_ptr("r"), b.access_ptr("r")
        builder = tvm.tir.ir_builder.create()
        builder.emit(tvm.tir.call_extern("int32", f"{name}_update", *pointers, m, n, b.strides[0]))
        reset = tvm.tir.call_extern("int32", f"{name}_reset", c.access_ptr("w"), m)
        return None, reset, builder.get()

    return statements


def written(m: int, n: int):
    """The same in loops."""

    def statements(ins, outs):
        (a, b), (c,) = ins, outs

        def part(adds: bool):
            builder = tvm.tir.ir_builder.create()
            to = builder.buffer_ptr(c)
            with builder.for_range(0, m) as i:
                if not adds:
                    to[i] = 0.0
                else:
                    with builder.for_range(0, n) as k:
                        to[i] = to[i] + a[k] * b[i, k]
            return builder.get()

        return None, part(False), part(True)

    return statements


def scheduled(intrin, rows: int = ROWS, depth: int = L):
    a, b, c = product()
    s = te.create_schedule(c.op)
    (x, y), (z,) = c.op.axis, c.op.reduce_axis
    yo, yi = s[c].split(y, factor=rows)
    zo, zi = s[c].split(z, factor=depth)
    s[c].reorder(x, yo, zo, yi, zi)
    s[c].tensorize(yi, intrin)
    return s, [a, b, c]


def agrees(s, args, *runs) -> None:
    program = tvm.lower(s, args)
    verify(program)
    rng = np.random.default_rng(0)
    a, b = (rng.integers(-4, 5, tuple(t.shape)).astype("float32") for t in args[:2])
    for run in runs:
        out = np.full((N, M), np.nan, "float32")
        run(program, [a, b, out])
        np.testing.assert_array_equal(out, a @ b.T)


def built(s, args) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    a, b = (rng.integers(-4, 5, tuple(t.shape)).astype("float32") for t in args[:2])
    out = tvm.nd.array(np.full((N, M), np.nan, "float32"))
    tvm.build(s, args, target="llvm")(tvm.nd.array(a), tvm.nd.array(b), out)
    return out.numpy(), a @ b.T


@pytest.mark.parametrize("depth", [L, 8])
@pytest.mark.parametrize("how", [written, lambda m, n: called("plain", m, n)], ids=["loops", "C"])
def test_interpreters_run_what_it_declares(how, depth: int) -> None:
    s, args = scheduled(declared(ROWS, depth, how(ROWS, depth)), depth=depth)
    agrees(s, args, run_fast, interpreter.run)


@pytest.mark.parametrize("depth", [L, 8])
def test_functions_of_llvm_are_called(depth: int) -> None:
    s, args = scheduled(declared(ROWS, depth, called("gemv", ROWS, depth)), depth=depth)
    s[args[2]].pragma(args[2].op.axis[0], "import_llvm", _MODULE.format(name="gemv"))
    text = str(tvm.lower(s, args, simple_mode=True))
    assert "gemv_update(&C[" in text and f"{ROWS}, {depth}, {L})" in text
    np.testing.assert_array_equal(*built(s, args))


def test_statements_are_built() -> None:
    s, args = scheduled(declared(ROWS, 8, written(ROWS, 8)), depth=8)
    s[args[2]].parallel(s[args[2]].op.axis[0])
    np.testing.assert_array_equal(*built(s, args))


def test_a_function_that_does_something_else_shows() -> None:
    """What it declares is what interpreters run: a call that does not do it differs from them."""
    wrong = _MODULE.format(name="wrong").replace("fmul float %x, %y", "fmul float %x, %x")
    s, args = scheduled(declared(ROWS, L, called("wrong", ROWS, L)))
    s[args[2]].pragma(args[2].op.axis[0], "import_llvm", wrong)
    found, expected = built(s, args)
    assert not np.array_equal(found, expected)


def test_a_function_that_nobody_has() -> None:
    s, args = scheduled(declared(ROWS, L, called("nobody", ROWS, L)))
    with pytest.raises(CompileError, match="the text calls nobody_reset|calls nobody_update"):
        tvm.build(s, args, target="llvm")


@pytest.mark.parametrize(
    ("intrin", "how", "reason"),
    [
        (lambda: declared(ROWS, L, written(ROWS, L), product=lambda x, y: x + y), {},
         "C computes .* the intrinsic"),
        (lambda: declared(4, L, written(4, L)), {}, r"loops are \[8\] long.*\[4\]"),
        (lambda: declared(ROWS, 8, written(ROWS, 8), strides=False), {"depth": 8},
         r"rows of b lie 24 elements apart, not 8"),
        (lambda: declared(5, L, written(5, L)), {"rows": 5}, "overhang"),
        (lambda: declared(ROWS, 8, lambda i, o: written(ROWS, 8)(i, o)[2]), {"depth": 8},
         "the sum goes on in k.outer, and it only computes whole ones"),
    ],
    ids=["another computation", "other lengths", "rows apart", "overhanging", "one of three"],
)  # fmt: skip
def test_one_that_does_not_fit(intrin, how: dict[str, int], reason: str) -> None:
    s, args = scheduled(intrin(), **how)
    with pytest.raises((ScheduleError, LegalityError), match=reason):
        tvm.lower(s, args)


def test_what_is_no_intrinsic() -> None:
    with pytest.raises(ExpressionError, match="gives 'no', no statements"):
        declared(ROWS, L, lambda ins, outs: "no")
    with pytest.raises(ExpressionError, match="it gives 2 statements"):
        declared(ROWS, L, lambda ins, outs: (None, None))
    a, b, _ = product()
    with pytest.raises(ExpressionError, match="nothing says what it computes"):
        te.extern((N,), [a, b], lambda ins, outs: tvm.tir.call_extern("int32", "f", outs[0]))
    s, (_, _, c) = scheduled(declared(ROWS, L, written(ROWS, L)))
    with pytest.raises(ScheduleError, match="no such atom"):
        s[c].tensorize(c.op.axis[0], "nothing")
