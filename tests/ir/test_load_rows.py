"""Matrices that a warp loads from shared memory: which lane gets what, and what is refused."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from tests.interpreter import InterpreterError
from tests.ir.programs import BOTH
from tilewright.base.errors import InternalError
from tilewright.codegen import generate
from tilewright.driver import nvrtc
from tilewright.ir import expr as E
from tilewright.ir.barriers import insert_barriers
from tilewright.ir.stmt import (
    Allocate,
    Buffer,
    For,
    If,
    Kernel,
    LoadRows,
    Program,
    Region,
    Stmt,
    Store,
    Thread,
    load,
    map_children,
    seq,
)
from tilewright.ir.verifier import verify
from tilewright.lowering.virtual_threads import inject_virtual_threads
from tilewright.targets.target import Target

FORMS = [(n, *form) for n in (1, 2, 4) for form in ((2, False), (2, True), (4, False))]


def program(
    matrices: int, size: int, transposed: bool, *, shift: int = 0, part: int = 32, virtual: int = 0
) -> Program:
    """out[lane] is what each lane gets of the first matrices in shared memory, which is `a`.

    shift: of each row, in elements; part: so many lanes take part; virtual: virtual threads, of
    which each has matrices of its own
    """
    kind = {2: "float16", 4: "float32"}[size]
    width, count = 16 // size, matrices * 4 // size
    copies = max(virtual, 1)
    a = Buffer("a", kind, 4 * 8 * width * copies, "global")
    out = Buffer("out", kind, 32 * count * copies, "global")
    s, got = Buffer("s", kind, a.size, "shared"), Buffer("got", kind, count, "local")
    lane, k, e, v = (E.var(name) for name in ("lane", "k", "e", "v"))
    at = lane % (8 * matrices) * width + v * (32 * width) + shift
    rows: Stmt = LoadRows(Region(got, E.const(0), count), Region(s, at, width), transposed)
    place = v * (32 * count) + lane * count + e
    taken: Stmt = seq(rows, For(e, count, Store(out, place, load(got, e))))
    taken = If(lane < part, taken) if part < 32 else taken
    taken = For(v, copies, Allocate(got, taken), "vthread" if virtual else "serial")
    fill = For(k, s.size // 32, Store(s, k * 32 + lane, load(a, k * 32 + lane)))
    kernel = Kernel(
        "k", (a, out), Allocate(s, seq(fill, taken)), (Thread("threadIdx.x", lane, 32),)
    )
    kernel = insert_barriers(inject_virtual_threads(kernel))
    return Program("k", (a, out), ("input", "output"), (kernel,))


def expected(a: np.ndarray, matrices: int, size: int, transposed: bool) -> np.ndarray:
    """By lanes: places of 4 bytes of matrices, which are transposed first."""
    width = 4 // size
    whole = a.reshape(-1, 8, 16 // size)[:matrices]
    whole = whole.swapaxes(1, 2) if transposed else whole
    parts = whole.reshape(matrices, 32, width)  # matrix, lane, element
    return parts.swapaxes(0, 1).reshape(-1)


@BOTH
@pytest.mark.parametrize("form", FORMS, ids=str)
def test_which_lane_gets_what(form: tuple[int, int, bool], run) -> None:
    made = program(*form)
    verify(made)
    a, out = (np.arange(b.size).astype(b.dtype.storage) for b in made.args)
    run(made, [a, out])
    np.testing.assert_array_equal(out, expected(a, *form))


@BOTH
def test_virtual_threads_load_matrices_of_their_own(run) -> None:
    made = program(2, 2, True, virtual=2)
    verify(made)
    a, out = (np.arange(b.size).astype(b.dtype.storage) for b in made.args)
    run(made, [a, out])
    halves = [expected(part, 2, 2, True) for part in np.split(a, 2)]
    np.testing.assert_array_equal(out, np.concatenate(halves))


@BOTH
def test_faults(run) -> None:
    for made, words in (
        (program(2, 2, False, shift=4), "multiple of 8|align"),
        (program(2, 2, False, part=16), "warp divergence"),
        (program(4, 4, False, shift=128), "outside|bounds|elements"),
    ):
        a, out = (np.zeros(b.size, b.dtype.storage) for b in made.args)
        with pytest.raises(InterpreterError, match=words):
            run(made, [a, out])


def _with(change) -> Program:
    made = program(2, 2, False)

    def visit(stmt: Stmt) -> Stmt:
        return (
            change(stmt, made.args[0]) if isinstance(stmt, LoadRows) else map_children(stmt, visit)
        )

    kernel = made.kernels[0]
    return replace(made, kernels=(replace(kernel, body=visit(kernel.body)),))


REFUSED = {
    "under a condition on lanes": (lambda: program(2, 2, False, part=16), "differs between lanes"),
    "from global memory": (
        lambda: _with(lambda s, a: replace(s, source=replace(s.source, buffer=a))),
        "lanes get no elements",
    ),
    "no whole row": (
        lambda: _with(lambda s, _: replace(s, source=replace(s.source, count=4))), "are no row",
    ),
    "three matrices": (
        lambda: _with(lambda s, _: replace(s, to=replace(s.to, count=6))), "no part",
    ),
    "columns of words": (
        lambda: program(2, 4, True), "columns of float32",
    ),
}  # fmt: skip


@pytest.mark.parametrize(("make", "words"), REFUSED.values(), ids=REFUSED)
def test_the_verifier_refuses(make, words: str) -> None:
    with pytest.raises(InternalError, match=words):
        verify(make())


@pytest.mark.slow
@pytest.mark.parametrize("form", FORMS, ids=str)
def test_nvrtc_accepts(form: tuple[int, int, bool]) -> None:
    pytest.importorskip("cuda.bindings.nvrtc")
    target = Target("cuda -arch=sm_90")
    made = nvrtc.build(generate(program(*form), target), target)
    assert "warning" not in made.meta["log"]


def test_other_kinds_have_none() -> None:
    with pytest.raises(InternalError, match="generate"):
        generate(program(2, 2, False), Target("opencl"))
