"""te.extern: what is no statement, or waits where threads cannot, is one clear error."""

from __future__ import annotations

import pytest

from tilewright.base.errors import ExpressionError
from tilewright_tvm import te, tir


def written(write, *, shape=(8,), inputs=None, **named):
    """te.extern whose statements are what `write(ib, a, c)` says."""
    a = te.placeholder((8,), name="A")

    def statements(ins, outs):
        ib = tir.ir_builder.create()
        given_back = write(ib, ib.buffer_ptr(ins[0]), ib.buffer_ptr(outs[0]))
        return ib.get() if given_back is None else given_back

    return te.extern(shape, [a] if inputs is None else inputs, statements, **named)


def fill(ib, a, c):
    with ib.for_range(0, 8) as i:
        c[i] = a[i]


OPEN = []  # which would end where nothing holds it


def leave_open(ib, a, c):
    OPEN.append(ib.for_range(0, 8))
    OPEN[-1].__enter__()


def use_outside(ib, a, c):
    with ib.for_range(0, 8) as i:
        c[i] = 0.0
    c[i] = 1.0


def thread_in_loop(ib, a, c):
    with ib.for_range(0, 8):
        ib.scope_attr(te.thread_axis("threadIdx.x"), "thread_extent", 4)


def twice_bound(ib, a, c):
    for _ in range(2):
        ib.scope_attr(te.thread_axis("threadIdx.x"), "thread_extent", 4)


def waits_under_a_condition(ib, a, c):
    thread = te.thread_axis("threadIdx.x")
    ib.scope_attr(thread, "thread_extent", 8)
    shared = ib.allocate("float32", 8, "held", "shared")
    with ib.if_scope(thread < 4):
        shared[thread] = a[thread]
        c[thread] = shared[3 - thread]


def else_alone(ib, a, c):
    with ib.else_scope():
        fill(ib, a, c)


def keep(value):
    def write(ib, a, c):
        fill(ib, a, c)
        value(ib, a, c)

    return write


REFUSED = [
    (lambda ib, a, c: 3, "gives a int, no statements.*ib.get"),
    (lambda ib, a, c: None, "nothing is stored to extern"),
    (keep(lambda ib, a, c: a.__setitem__(0, 1.0)), "stores to its input A.*Copy it"),
    (keep(lambda ib, a, c: c.__setitem__(0, te.placeholder((3,))[0])), "not of a buffer"),
    (keep(lambda ib, a, c: c.__setitem__(0.5, 1.0)), "not an integer"),
    (keep(lambda ib, a, c: c.__setitem__((0, 0), 1.0)), "2 indices for the shape"),
    (keep(lambda ib, a, c: ib.for_range(0, 4, kind="fast").__enter__()), "unknown kind 'fast'"),
    (keep(lambda ib, a, c: ib.for_range(0, a.vload(0).astype("int32"), kind="unroll").__enter__()),
     "cannot be of kind unroll"),
    (keep(lambda ib, a, c: ib.allocate("float32", 4, scope="warp")), "unknown scope 'warp'"),
    (keep(lambda ib, a, c: ib.allocate("float32", 0)), "it has no elements"),
    (keep(lambda ib, a, c: ib.if_scope(c[0]).__enter__()), "is no condition.*x != 0"),
    (keep(lambda ib, a, c: ib.emit(3)), "3 is no statement"),
    (keep(lambda ib, a, c: ib.scope_attr(te.thread_axis("vthread"), "thread_extent", 2)),
     "no index of blocks or threads"),
    (keep(lambda ib, a, c: ib.scope_attr(c, "storage_scope", "global")), "Leave it out"),
    (keep(lambda ib, a, c: ib.buffer_ptr(3)), "3 is no buffer"),
    (keep(lambda ib, a, c: ib.buffer_ptr(a, shape=(3, 3))), "no shape of 8 elements"),
    (leave_open, "has not ended yet"),
    (use_outside, "i is used outside its loop"),
    (thread_in_loop, "not a loop of one"),
    (twice_bound, "threadIdx.x has an extent already"),
    (waits_under_a_condition, "threads cannot wait there.*Put a condition around each store"),
    (else_alone, "no if_scope ended just before"),
]  # fmt: skip


@pytest.mark.parametrize(("write", "why"), REFUSED, ids=[why for _, why in REFUSED])
def test_wrong_statements_are_one_error(write, why):
    with pytest.raises(ExpressionError, match=f"(?s){why}"):
        written(write)


def test_wrong_arguments_are_one_error():
    with pytest.raises(ExpressionError, match="inputs is a list of int, not a list of tensors"):
        written(fill, inputs=[3])
    with pytest.raises(ExpressionError, match="do not say that of its output.*Give dtype="):
        written(fill, inputs=[te.placeholder((3,)), te.placeholder((3,), "int32")])
    with pytest.raises(ExpressionError, match="2 types for 1 outputs"):
        written(fill, dtype=["int32", "int32"])
    with pytest.raises(ExpressionError, match="has no elements"):
        written(fill, shape=(0,))
    with pytest.raises(ExpressionError, match="is no buffer for A: float32.8"):
        written(fill, in_buffers=[tir.decl_buffer((4,))])
    with pytest.raises(ExpressionError, match="is no buffer for A"):
        written(fill, in_buffers=[tir.decl_buffer((8,), strides=[2])])
    with pytest.raises(ExpressionError, match="are float32, not int32x2.*cast them"):
        tir.decl_buffer((4,)).vload(0, "int32x2")
    with pytest.raises(AttributeError, match="buffer_ptr.*allocate"):
        tir.ir_builder.create().pointer("float32")
    with pytest.raises(ExpressionError, match="no builder says when"):
        tir.decl_buffer((4,))[0] = 1.0
