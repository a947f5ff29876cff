"""Matrix instructions: which lane holds what, what they compute, and lanes that are not there."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given as drawn
from hypothesis import strategies as st

from tests.interpreter import InterpreterError, run
from tests.ir import products, rings
from tests.ir.products import FAULTS, Product, arrays, expected, program
from tests.ir.programs import BOTH
from tests.ir.rings import Ring
from tests.ir.test_interpreters_agree import outcome
from tests.tiers import examples
from tilewright.base.errors import InternalError
from tilewright.ir import expr as E
from tilewright.ir import fast_source
from tilewright.ir.atoms import ATOMS, multiplied, places
from tilewright.ir.fast_interpreter import run_fast
from tilewright.ir.stmt import (
    Allocate,
    AsyncCopy,
    Buffer,
    If,
    Kernel,
    Mma,
    Program,
    Region,
    Stmt,
    Store,
    Thread,
    While,
    children,
    load,
    map_children,
    seq,
    statements,
)
from tilewright.ir.verifier import verify
from tilewright.lowering.virtual_threads import inject_virtual_threads
from tilewright.te.opaque import rewritten, touched

LOUD = {name: message for name, message in FAULTS.items() if message}


@pytest.mark.parametrize("atom", ATOMS.values(), ids=ATOMS)
def test_each_element_of_a_fragment_has_one_lane(atom) -> None:
    for fragment in (atom.a, atom.b, atom.sum):
        rows, columns = places(fragment)
        assert rows.shape == (32, fragment.elements)
        found = set(zip(rows.flat, columns.flat, strict=True))
        assert len(found) == rows.size == (rows.max() + 1) * (columns.max() + 1)
        for lane in (0, 7, 21, 31):
            row, column = fragment.place(E.const(lane), 1)
            assert (row.attr, column.attr) == (rows[lane, 1], columns[lane, 1])


def test_fragments_lie_as_the_instruction_wants_them() -> None:
    """Lane 4g + q of words of 32 bits: A (g, q), (g + 8, q), (g, q + 4), (g + 8, q + 4); B (q, g),
    (q + 4, g); C (g, 2q), (g, 2q + 1), and eight rows below."""
    for atom in ATOMS.values():
        words = 4 // atom.a.dtype.bytes
        for g in range(8):
            for q in range(4):
                lane = 4 * g + q
                for k, (row, word) in enumerate([(g, q), (g + 8, q), (g, q + 4), (g + 8, q + 4)]):
                    for half in range(words):
                        assert atom.a.place(lane, k * words + half) == (row, word * words + half)
                for k, word in enumerate((q, q + 4)):
                    for half in range(words):
                        assert atom.b.place(lane, k * words + half) == (word * words + half, g)
                for k in range(4):
                    assert atom.sum.place(lane, k) == (g + k // 2 * 8, 2 * q + k % 2)


PRODUCTS = {
    "halves": Product(),
    "one warp": Product(warps=1, steps=1),
    "bfloat16": Product("m16n8k16.bfloat16"),
    "tf32": Product("m16n8k8.tf32", warps=3),
    "3xtf32": Product("m16n8k8.3xtf32", warps=1),
    "bytes": Product("m16n8k32.int8", steps=2),
    "bytes of two types": Product("m16n8k32.uint8.int8", warps=1, steps=1),
}


@pytest.mark.slow
@BOTH
@pytest.mark.parametrize("check", [True, False])
@pytest.mark.parametrize("product", PRODUCTS.values(), ids=PRODUCTS)
def test_a_product_is_what_it_must_be(product, check, run) -> None:
    verify(program(product))
    given = arrays(product)
    run(program(product), given, check=check)
    assert np.array_equal(given[-1], expected(product, given))


@pytest.mark.slow
@BOTH
@pytest.mark.parametrize("fault", FAULTS)
def test_each_fault_is_found(fault, run) -> None:
    wrong = Product(fault=fault)
    given = arrays(wrong)
    if fault in LOUD:
        with pytest.raises(InterpreterError, match=LOUD[fault]):
            run(program(wrong), given)
        return
    run(program(wrong), given)
    assert not np.array_equal(given[-1], expected(wrong, given))


@pytest.mark.slow
@pytest.mark.parametrize("fault", LOUD)
@pytest.mark.parametrize("product", PRODUCTS.values(), ids=PRODUCTS)
def test_both_interpreters_say_the_same(product, fault) -> None:
    wrong = replace(product, fault=fault)
    told = [outcome(r, program(wrong), arrays(wrong)) for r in (run, run_fast)]
    assert told[0] == told[1]


@pytest.mark.parametrize("fault", ["a lane is missing", "lanes at two places", "half a warp"])
def test_the_verifier_refuses_lanes_that_are_not_there(fault) -> None:
    with pytest.raises(InternalError, match="differs between lanes|not a multiple of 32 lanes"):
        verify(program(Product(fault=fault)))


def test_tf32_does_not_look_at_the_lowest_bits() -> None:
    atom = ATOMS["m16n8k8.tf32"]
    ones = [[1.0] * atom.b.elements] * 32
    zeros = [[0.0] * 4] * 32
    near = [[1.0 + 2.0**-11] * atom.a.elements] * 32
    assert multiplied(atom, near, ones, zeros) == [[8.0] * 4] * 32
    far = [[1.0 + 2.0**-10] * atom.a.elements] * 32
    assert multiplied(atom, far, ones, zeros) == [[8.0 + 2.0**-7] * 4] * 32


# -- a body of its own -----------------------------------------------------------------------------

X, Y, ZERO = E.var("x"), E.var("y"), E.const(0)
OUT = Buffer("c", "float32", 32 * 4)
ATOM = ATOMS["m16n8k16.float16"]
HELD = {
    "sum": Buffer("d", "float32", 4, "local"),
    "a": Buffer("fa", "float16", 8, "local"),
    "b": Buffer("fb", "float16", 4, "local"),
}


def mma(**other: Region) -> Mma:
    held = {name: Region(buffer, ZERO, buffer.size) for name, buffer in HELD.items()}
    return Mma(ATOM, **{**held, **other})


def launched(body: Stmt, lanes: int = 32, warps: int = 1) -> Program:
    fill = [Store(b, E.const(k), E.const(1.0, b.dtype)) for b in HELD.values()
            for k in range(b.size)]  # fmt: skip
    rest = (Store(OUT, X * 4 + k, load(HELD["sum"], E.const(k))) for k in range(4))
    whole = seq(*fill, body, *rest)
    for buffer in HELD.values():
        whole = Allocate(buffer, whole)
    threads = (Thread("threadIdx.x", X, lanes), Thread("threadIdx.y", Y, warps))
    return Program("p", (OUT,), ("output",), (Kernel("k", (OUT,), whole, threads),))


REFUSED = {
    "too few elements": (mma(a=Region(HELD["a"], ZERO, 4)), "4 elements of .* are no fragment"),
    "another type": (mma(b=Region(HELD["a"], ZERO, 8)), "8 elements of .* are no fragment"),
    "not of a lane": (mma(sum=Region(OUT, ZERO, 4)), "4 elements of .* are no fragment"),
    "a vector of places": (
        mma(sum=Region(HELD["sum"], E.ramp(ZERO, E.const(1), 4), 4)),
        "no region",
    ),
    "lanes differ": (
        If(X < 5, mma()),
        r"all lanes of a warp do, under the condition \(x < 5\), which differs between lanes",
    ),
    "lanes differ somewhere": (If(X + Y < 5, mma()), "differs between lanes"),
    "as often as data say": (
        While(load(HELD["sum"], ZERO) < 20.0, mma()),
        "in a loop that data end",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_the_verifier_refuses(case) -> None:
    body, message = REFUSED[case]
    with pytest.raises(InternalError, match=message):
        verify(launched(body))


@BOTH
def test_warps_may_differ(run) -> None:
    """A warp that does not come is no fault, and the others do not wait for it."""
    whole = launched(If(Y < 1, mma()), warps=1)
    verify(whole)
    result = np.zeros(OUT.size, np.float32)
    run(whole, [result])
    assert (result == 17).all()
    some = launched(seq(If(Y < 1, mma()), If(Y > 0, seq(*(
        Store(HELD["sum"], E.const(k), E.const(17.0)) for k in range(4)
    )))), warps=2)  # fmt: skip
    verify(some)
    run(some, [result])


@BOTH
def test_lanes_meet_as_often_as_each_comes(run) -> None:
    """Data decide how often: the interpreter finds out who is left behind."""
    again = seq(mma(), If(load(HELD["sum"], ZERO) < 17.5, mma()))
    result = np.zeros(OUT.size, np.float32)
    run(launched(again), [result])
    assert (result == 33).all()
    first = Store(HELD["sum"], ZERO, E.cast("float32", X))
    with pytest.raises(InterpreterError, match="warp divergence: .*has ended"):
        run(launched(seq(first, again)), [result])


@BOTH
def test_a_meeting_orders_no_memory(run) -> None:
    shared = Buffer("s", "float32", 32, "shared")
    body = seq(
        Store(shared, X, E.const(1.0)), mma(), Store(HELD["sum"], ZERO, load(shared, 31 - X))
    )
    whole = launched(body)
    (kernel,) = whole.kernels
    raced = replace(whole, kernels=(replace(kernel, body=Allocate(shared, kernel.body)),))
    with pytest.raises(InterpreterError, match="another thread wrote this element"):
        run(raced, [np.zeros(OUT.size, np.float32)])


def test_virtual_threads_have_fragments_of_their_own() -> None:
    """Those that depend on them: of b and of the sum, not of a."""
    product = Product(virtual=True)
    whole = program(product)
    (kernel,) = whole.kernels
    sunk = replace(whole, kernels=(inject_virtual_threads(kernel),))
    verify(sunk)
    made = [s.buffer.size for s in statements(sunk.kernels[0].body) if isinstance(s, Allocate)]
    assert sorted(made) == [8, 2 * 4, 2 * 8]
    given = arrays(product)
    run_fast(sunk, given)
    assert np.array_equal(given[-1], expected(product, given))


def test_statements_move_to_other_buffers() -> None:
    instead = {b: Buffer(f"{b.name}.new", b.dtype, b.size, "local") for b in HELD.values()}
    (new,) = statements(rewritten(mma(), instead.__getitem__))
    assert isinstance(new, Mma)
    assert {r.buffer for r, _ in new.operands} == set(instead.values())
    shared = Buffer("s", "float32", 8, "shared")
    copy = AsyncCopy(Region(shared, ZERO, 4), Region(OUT, X, 4), X < 8)
    assert touched(copy) == (OUT,)


def test_text() -> None:
    assert str(mma()) == "m16n8k16.float16 d[0 +: 4] += fa[0 +: 8] * fb[0 +: 4]"


@pytest.mark.parametrize("nested", [1, 2])
def test_deep_loops_meet_and_copy_too(nested: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Python's limit on nested loops makes functions of the inner ones."""
    monkeypatch.setattr(fast_source, "MAX_NESTED", nested)
    given = arrays(Product())
    run_fast(program(Product()), given)
    assert np.array_equal(given[-1], expected(Product(), given))
    tiles = rings.arrays(Ring())
    run_fast(rings.program(Ring()), tiles)
    assert np.array_equal(tiles[-1], rings.expected(Ring()))


@pytest.mark.slow
@drawn(st.randoms(use_true_random=False), st.booleans())
@examples(40)
def test_both_interpreters_say_the_same_of_broken_kernels(rng, of_copies) -> None:
    """A statement is left out or done twice, anywhere."""
    of, kernel = (rings, Ring(2, 2, 2, 4, 2)) if of_copies else (products, Product(warps=1))
    whole = of.program(kernel)
    (launch,) = whole.kernels
    leaves = [s for s in statements(launch.body) if not children(s)]
    chosen, twice = rng.choice(leaves), rng.random() < 0.5

    def visit(s: Stmt) -> Stmt:
        if s is chosen:
            return seq(s, s) if twice else seq()
        return map_children(s, visit)

    broken = replace(whole, kernels=(replace(launch, body=visit(launch.body)),))
    told = [outcome(r, broken, of.arrays(kernel)) for r in (run, run_fast)]
    assert told[0] == told[1]
