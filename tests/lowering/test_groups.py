"""Products by groups of warps: what they compute, in both interpreters and numpy; refusals."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lowering.group_products import Product, product
from tests import interpreter
from tests.tiers import examples
from tilewright.base.errors import LegalityError, LoweringError, ScheduleError
from tilewright.codegen import generate, serial_threads
from tilewright.driver import nvrtc
from tilewright.ir.atoms import GROUP_ATOMS
from tilewright.ir.fast_interpreter import run_fast
from tilewright.ir.stmt import For, Mma, MmaEnd, Program, Show, Stmt, Wait, statements
from tilewright.ir.verifier import verify
from tilewright.lowering.pipeline import lower_schedule
from tilewright.schedule.tree.legality import check
from tilewright.schedule.tree.loop_tree import LoopTree
from tilewright.schedule.tree.resources import Resources
from tilewright.targets.target import Target

TARGET = Target("cuda -arch=sm_90 -precision=tf32")


def lowered(p: Product) -> Program:
    schedule, args = product(p)
    tree = LoopTree(schedule)
    bounds = tree.bounds()
    check(Resources(bounds, TARGET), "test")
    program = lower_schedule(schedule, TARGET, args=args, tree=tree, bounds=bounds)
    verify(program)
    return program


PRODUCTS = {
    "the example": Product(m=64, n=16, k=192),
    "two groups, each slice waited for": Product(
        n=16, k=128, atom="m64n8k16.bfloat16", block=(128, 16), groups=(2, 1), slots=2
    ),
    "groups side by side, two atoms below each other": Product(
        n=16, k=128, atom="m64n8k16.float16", block=(128, 16), groups=(1, 2), slots=4
    ),
    "one slot": Product(m=64, n=8, k=128, atom="m64n8k16.float16", block=(64, 8), slots=1),
    "rows of 64 bytes": Product(m=64, n=24, k=128, atom="m64n24k16.float16", block=(64, 24),
                                swizzle=64),
    "uneven": Product(m=50, n=13, k=136, atom="m64n8k16.float16", block=(64, 8), padded=True),
    "more blocks than rows": Product(m=72, n=8, k=64, atom="m64n8k16.float16", block=(128, 8),
                                     padded=True),
}  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("p", PRODUCTS.values(), ids=PRODUCTS)
def test_a_product_is_what_numpy_says(p: Product) -> None:
    agrees(p, run_fast, interpreter.run)


def agrees(p: Product, *runs) -> None:
    program = lowered(p)
    assert any(isinstance(s, Mma) for k in program.kernels for s in statements(k.body))
    rng = np.random.default_rng(0)
    kind = p.of.a.dtype.storage
    shapes = (p.m, p.k), (p.n, p.k), (p.n,)
    a, b, bias = ((rng.integers(-8, 9, n) / 8).astype(kind) for n in shapes)
    exact = a.astype(np.float64) @ b.astype(np.float64).T + bias.astype(np.float64)
    expected = np.maximum(exact, 0).astype(kind)
    for run in runs:
        result = np.zeros((p.m, p.n), kind)
        run(program, [a, b, bias, result])
        np.testing.assert_array_equal(result.astype(np.float32), expected.astype(np.float32))


@st.composite
def products(draw) -> Product:
    """Up to two blocks in each direction, which tiles need not fill."""
    kind = draw(st.sampled_from(["k16.float16", "k16.bfloat16", "k8.tf32", "k8.3xtf32"]))
    n = draw(st.sampled_from([8, 16, 24]))
    atom = f"m64n{n}{kind}"
    groups = draw(st.sampled_from([(1, 1), (2, 1), (1, 2)]))
    block = 64 * groups[0], n * groups[1] * draw(st.integers(1, 2))
    swizzle, slots = draw(st.sampled_from([32, 64, 128])), draw(st.integers(1, 4))
    padded = draw(st.booleans())
    row = swizzle // GROUP_ATOMS[atom].a.dtype.bytes
    k = row * draw(st.integers(1, 5))
    if padded:
        m, n = draw(st.integers(2, 2 * block[0])), draw(st.integers(2, 2 * block[1]))
        return Product(m, n, k, atom, block, groups, slots, swizzle, padded)
    m, n = block[0] * draw(st.integers(1, 2)), block[1] * draw(st.integers(1, 2))
    return Product(m, n, k, atom, block, groups, slots, swizzle, padded)


@pytest.mark.slow
@given(products())
@examples(12)
def test_products_of_any_size_are_what_numpy_says(p: Product) -> None:
    agrees(p, run_fast)


@pytest.mark.parametrize(("slots", "waits"), [(3, 0), (5, 2)])
def test_batches_are_in_flight_where_slots_have_room(slots: int, waits: int) -> None:
    """The wait for all of them stands behind products, in an iteration of its own: reads of sums
    were moved in front of one that stands alone behind the loop."""
    found = list(
        statements(lowered(replace(PRODUCTS["the example"], k=512, slots=slots)).kernels[0].body)
    )
    loop = next(
        s for s in found if isinstance(s, For) and any(isinstance(t, Show) for t in statements(s))
    )
    assert loop.extent == 7  # of eight slices

    def order(stmts: list[Stmt]) -> list[tuple[type[Stmt], int | None]]:
        kept = [s for s in stmts if isinstance(s, (Mma, MmaEnd, Wait, Show))]
        return [(type(s), getattr(s, "pending", None)) for s in kept]

    one, last = (
        [(Wait, waits), (Show, None), (Mma, None), (MmaEnd, pending)] for pending in (1, 0)
    )
    assert order(list(statements(loop))) == one and order(found) == one + last


def test_with_two_slots_each_batch_is_waited_for() -> None:
    found = list(
        statements(lowered(replace(PRODUCTS["the example"], k=512, slots=2)).kernels[0].body)
    )
    assert [s.pending for s in found if isinstance(s, MmaEnd)] == [0]
    assert sum(isinstance(s, Show) for s in found) == 1


@pytest.mark.slow
@pytest.mark.parametrize("p", [
    Product(512, 512, 512, "m64n128k16.float16", (128, 128), (2, 1), 4),
    Product(512, 512, 512, "m64n256k16.bfloat16", (128, 256), (2, 1), 3),
    Product(512, 512, 512, "m64n64k8.tf32", (128, 128), (2, 2), 4),
    Product(512, 512, 512, "m64n64k8.3xtf32", (128, 64), (2, 1), 4),
])  # fmt: skip
def test_nvrtc_accepts(p: Product) -> None:
    pytest.importorskip("cuda.bindings.nvrtc")
    source = generate(lowered(p), TARGET)
    made = nvrtc.build(source, TARGET)
    log = made.meta["log"].replace("C7517", "")  # a wait more behind the loop
    assert "warning" not in log and "C75" not in log
    assert all(own["spill_bytes"] == 0 for own in made.resources.values())
    turns = serial_threads.serialized(source)
    assert isinstance(turns, serial_threads.Source)
    assert "group = (tw_order[1] + 127) / 128 * 128, " in turns.text
    nvrtc.build(turns, TARGET)


@pytest.mark.parametrize(("change", "reason"), [
    ({"swizzle": 32, "k": 256}, None),
    ({"slots": 0}, "is no asynchronous copy of whole"),
    ({"n": 13, "block": (64, 16)}, "is no asynchronous copy of whole"),
    ({"k": 40}, "is no asynchronous copy of whole"),
])  # fmt: skip
def test_operands_that_are_not_as_a_group_reads_them_are_refused(change, reason) -> None:
    p = replace(PRODUCTS["the example"], **change)
    schedule, args = product(p)
    tree = LoopTree(schedule)
    resources = Resources(tree.bounds(), TARGET)
    if reason is None:
        check(resources, "it")
        return
    with pytest.raises(LegalityError, match=r"\(tiles\)"):
        check(resources, "it")
    with pytest.raises(LegalityError, match=f"tensorize.*{reason}.*swizzle"):
        lower_schedule(schedule, TARGET, args=args, tree=tree)


def test_fragments_are_no_operands_of_groups() -> None:
    schedule, _ = product(Product())
    tile, sums = (next(st for st in schedule.stages if st.name == n) for n in ("A.shared", "C"))
    own = schedule.cache_read(tile.tensor, "fragment", [sums.tensor])
    schedule[own].compute_at(sums, sums.leaf_iter_vars[1])
    with pytest.raises(ScheduleError, match="a group what lies in scope shared"):
        LoopTree(schedule)


@pytest.mark.parametrize("arch", ["sm_80", "sm_89", "sm_100"])
def test_other_architectures_have_none(arch: str) -> None:
    schedule, _ = product(Product())
    with pytest.raises(LegalityError, match=r"\(atom\)"):
        check(Resources(LoopTree(schedule).bounds(), Target(f"cuda -arch={arch}")), "it")
    with pytest.raises(LoweringError, match="has no such instruction"):
        lower_schedule(schedule, Target(f"cuda -arch={arch}"))


def test_operands_of_tf32_are_rounded_to_the_nearest() -> None:
    """The unit looks at 11 digits; what is beyond them is rounded, not cut."""
    p = Product(64, 8, 64, "m64n8k8.tf32", (64, 8), slots=2)
    program = lowered(p)
    unit = 2.0**-10  # of the last place at 1
    a, b = np.zeros((64, 64), np.float32), np.zeros((8, 64), np.float32)
    a[:, 33] = [1 + k * unit / 8 for k in range(64)]
    b[:, 33] = 1
    for run in (run_fast, interpreter.run):
        result = np.zeros((64, 8), np.float32)
        run(program, [a, b, np.zeros(8, np.float32), result])
        nearest = [1 + (k + 4) // 8 * unit for k in range(64)]  # halves go up
        np.testing.assert_array_equal(result[:, 3], nearest)


@pytest.mark.parametrize("loaders", [0, 1, 4])
@pytest.mark.parametrize("slots", [2, 4])
def test_groups_read_what_an_engine_brings(slots: int, loaders: int) -> None:
    p = Product(m=64, n=16, bulk=True, slots=slots, loaders=loaders)
    schedule, args = product(p)
    program = lower_schedule(schedule, TARGET, args=args)
    verify(program)
    rng = np.random.default_rng(0)
    a, b, bias = (rng.integers(-3, 4, n).astype("float16") for n in ((64, p.k), (16, p.k), (16,)))
    sums = a.astype("float32") @ b.astype("float32").T + bias.astype("float32")
    d = np.zeros((64, 16), "float16")
    run_fast(program, [a, b, bias, d])
    assert np.array_equal(d, np.maximum(sums, 0).astype("float16"))


@pytest.mark.parametrize(("slots", "loaders", "k"), [(3, 0, 256), (4, 4, 320), (3, 1, 192)])
def test_a_block_may_go_on_to_other_tiles(slots: int, loaders: int, k: int) -> None:
    """Groups are a slice behind, and say in the last one of a tile that all were read."""
    p = Product(m=64, n=48, k=k, bulk=True, slots=slots, loaders=loaders, again=2)
    agrees(p, run_fast)
    ends = [s.pending for s in statements(lowered(p).kernels[0].body) if isinstance(s, MmaEnd)]
    assert ends == [1, 0]
