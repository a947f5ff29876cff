"""Facts of kernels with matrix instructions: counted by hand, by lane, and in the model's order."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from lowering.tensor_products import Product as Lowered
from lowering.tensor_products import product
from search.atom_products import Product
from tilewright import te
from tilewright.base.dtype import FLOAT32
from tilewright.base.errors import LegalityError
from tilewright.cost.addresses import Point
from tilewright.cost.atom_facts import in_rows, operand_of
from tilewright.cost.features import ATOM_COLUMNS, FEATURES, describe, features_and_seconds
from tilewright.cost.gpu_facts import GpuKernel
from tilewright.cost.machine_model import Times, analyse, predict_seconds
from tilewright.ir.atoms import ATOMS, places
from tilewright.ir.expr import Expr
from tilewright.ir.stmt import LoadRows, statements
from tilewright.lowering.pipeline import lower_schedule
from tilewright.schedule.schedule import Schedule, create_schedule
from tilewright.schedule.task import create
from tilewright.schedule.tree.legality import check, judge
from tilewright.schedule.tree.loop_tree import LoopTree
from tilewright.schedule.tree.resources import Resources
from tilewright.schedule.tree.touch import anatomy
from tilewright.targets.target import Target
from tilewright.te.chains import longest_in_unit

GPU = Target("cuda -arch=sm_90")


def resources(of: Product, target: Target = GPU) -> Resources:
    return Resources(LoopTree(of.schedule()).bounds(), target)


def analysed(of: Product, target: Target = GPU) -> tuple[GpuKernel, Times]:
    (kernel,), (times,) = analyse(resources(of, target), 1)
    assert isinstance(kernel, GpuKernel)
    return kernel, times


def number(x: Any) -> float:
    return float(np.ravel(x)[0])


def seconds(of: Product, target: Target = GPU) -> float:
    return number(analysed(of, target)[1].total)


# -- by hand ---------------------------------------------------------------------------------------


def test_atoms_sums_and_terms() -> None:
    """A warp has 32 x 32 sums: 2 x 4 atoms for each of 16 steps through the reduction."""
    kernel, _ = analysed(Product())
    assert kernel.threads == 128 and kernel.warps == 4 and kernel.blocks == 16
    assert kernel.atoms == 2 * 4 * 16
    assert kernel.accumulators == 8 and kernel.terms == 256
    assert kernel.atom_fma * 32 == kernel.atoms * 16 * 8 * 16
    assert kernel.fma == 0, "loops inside an atom are no instructions"
    assert kernel.anchor_share == 1 and kernel.executed == kernel.work
    assert kernel.tile == 32, "sums of a lane"
    cycle = 2 * 128 * 132 / GPU.limits.rate(FLOAT32)
    assert kernel.tensor / cycle == pytest.approx(4 * 128 * 1.68)


def test_what_lies_beyond_the_tensors_is_no_useful_share() -> None:
    """60 of 64 rows, 256 columns."""
    kernel, _ = analysed(Product(m=60, rows=64))
    assert number(kernel.anchor_share) == pytest.approx(60 / 64)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32"])
@pytest.mark.parametrize(("pad", "loads"), [(0, 2), (2, 6)])
def test_loads_of_operands_are_rows_or_words(dtype: str, pad: int, loads: int) -> None:
    """Rows that begin at 16 bytes come a tile at once; else the lanes load four words of an atom's
    first operand and two of its second, of any type: a pair of halves lies side by side."""
    of = Product(rows=16, columns=8, warps=(1, 1), dtype=dtype, pad=pad, k=128, depth=32)
    kernel, _ = analysed(of)
    assert kernel.atoms == 128 // ATOMS[of.atom].extents["k"]
    assert number(kernel.operands) == loads * kernel.atoms


@pytest.mark.parametrize(("columns", "loads"), [(8, 1), (16, 1), (24, 3), (32, 2)])
def test_small_tiles_come_in_pairs_where_their_number_is_even(columns: int, loads: int) -> None:
    """Of the second operand; the first, of four matrices, is a load by itself."""
    of = Product(n=columns, rows=16, columns=columns, warps=(1, 1), k=128)
    kernel, _ = analysed(of)
    assert number(kernel.operands) == (1 + loads) * 128 // 16
    program = lower_schedule(of.schedule(), GPU)
    found = [s for s in statements(program.kernels[0].body) if isinstance(s, LoadRows)]
    assert max(s.to.count for s in found) == 8  # elements of a lane: four matrices
    assert min(s.to.count for s in found) == (8 if columns % 16 == 0 else 4)


def test_one_accumulator_waits_for_its_latency_and_four_do_not() -> None:
    one, _ = analysed(Product(rows=16, columns=8, warps=(1, 1)))
    four, _ = analysed(Product(rows=16, columns=32, warps=(1, 1)))
    assert number(one.tensor_wait) == pytest.approx(27.5 * one.atoms)
    assert number(four.tensor_wait) == pytest.approx(27.5 / 4 * four.atoms)


def by_lanes(packed: bool) -> Schedule:
    """A product whose first operand a warp takes from global memory: in rows, or in the order in
    which its lanes hold it."""
    m, n, k = 512, 56, 512
    w = te.placeholder((m // 16, k // 8, 8, 4, 2, 2) if packed else (m, k), "float32", name="W")

    def element(i: Expr, r: Expr) -> Expr:
        places = (i // 16, r // 8, i % 8, r % 4, r % 8 // 4, i % 16 // 8) if packed else (i, r)
        return w[places]

    a = te.compute((m, k), element, name="A")
    b = te.placeholder((k, n), "float32", name="B")
    axis = te.reduce_axis((0, k), "r")
    c = te.compute((m, n), lambda i, j: te.sum(a[i, axis] * b[axis, j], axis=axis), name="C")
    s = create_schedule([c.op])
    sums = s.cache_write(c, "fragment")
    s[a].set_scope("fragment")
    held = s.cache_read(b, "fragment", [sums])
    i, j = s[c].op.axis
    block, i = s[c].split(i, factor=16)
    tile_i, row = s[c].split(i, factor=8)
    tile_j, j = s[c].split(j, factor=8)
    column, two = s[c].split(j, factor=2)
    s[c].reorder(block, tile_i, tile_j, row, column, two)
    s[c].bind(block, "blockIdx.x")
    s[c].bind(s[c].fuse(row, column), "threadIdx.x")
    s[sums].compute_at(s[c], block)
    (rows, columns), (r,) = s[sums].op.axis, s[sums].op.reduce_axis
    step, r = s[sums].split(r, factor=8)
    tile_i, rows = s[sums].split(rows, factor=16)
    tile_j, columns = s[sums].split(columns, factor=8)
    s[sums].reorder(step, tile_i, tile_j, rows, columns, r)
    s[sums].tensorize(rows, "m16n8k8.tf32")
    for stage in (a, held):
        s[stage].compute_at(s[sums], step)
    return s


def test_what_lies_in_the_order_of_lanes_is_loaded_at_once() -> None:
    """Of a step 16 bytes a lane instead of four words in eight rows; besides seven atoms' columns,
    two words a lane, each from four rows of one sector."""
    found = {}
    for packed in (True, False):
        (kernel,), _ = analyse(Resources(LoopTree(by_lanes(packed)).bounds(), GPU), 1)
        load = kernel.global_load
        found[packed] = number(load.requests), number(load.passes)
    steps, others = 64, 7 * 2
    assert found[True] == (steps * (1 + others), steps * (16 + 4 * others))
    assert found[False] == (steps * (4 + others), steps * (4 * 8 + 4 * others))


# -- by lane ---------------------------------------------------------------------------------------


def passes_of(of: Product, stride: int) -> float:
    """Wavefronts of all loads of operands by one warp for one step: words that lanes address in one
    bank, counted one by one."""
    atom = ATOMS[of.atom]
    size = 2 if of.dtype != "float32" else 4
    down, across = of.warps
    total = 0
    for fragment, count, turned in (
        (atom.a, of.rows // down // 16, False), (atom.b, of.columns // across // 8, True),
    ):  # fmt: skip
        rows, columns = places(fragment)
        rows, columns = (columns, rows) if turned else (rows, columns)
        if stride * size % 16 == 0:  # rows of 16 bytes: one of each four lanes says where
            for element in range(0, fragment.elements, 4 // size):
                starts = (rows[::4, element] * stride + columns[::4, element]) * size // 16
                if of.swizzle:
                    starts ^= starts // 8 % (of.swizzle // 16)
                total += count * int(np.bincount(starts % 8).max())
            continue
        for element in range(0, fragment.elements, 4 // size):
            words = (rows[:, element] * stride + columns[:, element]) * size // 4
            banks = [set(words[words % 32 == bank].tolist()) for bank in range(32)]
            total += count * max(map(len, banks))
    return total


@pytest.mark.parametrize("dtype", ["float16", "float32"])
@pytest.mark.parametrize("pad", [0, 2, 4, 8, 10, 16, 24])
def test_conflicts_are_those_of_the_lanes(dtype: str, pad: int) -> None:
    of = Product(rows=64, columns=64, pad=pad, dtype=dtype, k=64, depth=32)
    kernel, _ = analysed(of)
    stride = 32 + pad if pad else 32
    steps = 64 // ATOMS[of.atom].extents["k"]
    assert number(kernel.shared_load.passes) == 4 * steps * passes_of(of, stride)


@pytest.mark.parametrize("dtype", ["float16", "float32"])
@pytest.mark.parametrize("swizzle", [32, 64, 128])
@pytest.mark.parametrize("depth", [32, 64])
def test_a_swizzle_takes_rows_apart(dtype: str, swizzle: int, depth: int) -> None:
    of = Product(rows=64, columns=64, pad=0, dtype=dtype, k=64, depth=depth, swizzle=swizzle)
    kernel, _ = analysed(of)
    steps = 64 // ATOMS[of.atom].extents["k"]
    passes = number(kernel.shared_load.passes)
    assert passes == 4 * steps * passes_of(of, depth)
    if depth * of.bytes == swizzle == 128:  # each small matrix in one pass
        padded, _ = analysed(of.with_(swizzle=0, pad=16 // of.bytes))
        assert passes == number(padded.shared_load.passes)


FORMS = {
    "halves": Lowered(), "halves, kn": Lowered(order="kn"), "halves, nk": Lowered(order="nk"),
    "bfloat16": Lowered(atom="m16n8k16.bfloat16"), "tf32, kn": Lowered(atom="m16n8k8.tf32"),
    "tf32, nk": Lowered(atom="m16n8k8.tf32", order="nk"), "not staged": Lowered(staged=False),
    "3xtf32": Lowered(atom="m16n8k8.3xtf32", order="nk"),
    "bytes, nk": Lowered(atom="m16n8k32.int8", order="nk", skew=16),
    "bytes, kn": Lowered(atom="m16n8k32.uint8.int8", skew=16),
}  # fmt: skip


@pytest.mark.parametrize("name", FORMS)
def test_what_comes_in_rows_is_what_lowering_loads_so(name: str) -> None:
    """Of each operand: by the same statement."""
    schedule, arguments = product(FORMS[name])
    target = Target("cuda -arch=sm_90 -precision=tf32")
    tree = LoopTree(schedule)
    bounds = tree.bounds()
    program = lower_schedule(schedule, target, args=arguments, tree=tree, bounds=bounds)
    loaded = {
        s.to.buffer.name
        for kernel in program.kernels for s in statements(kernel.body) if isinstance(s, LoadRows)
    }  # fmt: skip
    told, origin = set(), Point(bounds, {})
    for node in tree.nodes:
        held = operand_of(node)
        for touch in anatomy(tree).reads[node] if held is not None else ():
            if touch.scope == "shared" and bool(in_rows(held, touch, origin)[0]):
                told.add(node.name)
    assert loaded == told
    assert bool(told) is (name != "not staged")


# -- populations -----------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", ["float16", "float32"])
def test_one_candidate_has_the_features_of_its_row(dtype: str) -> None:
    target = GPU if dtype == "float16" else Target("cuda -arch=sm_90 -precision=tf32")
    task = create("tests/search/atom_product", (256, 192, 128, dtype), target)
    (sketch,) = task.sketches
    indices = np.arange(len(sketch.space))
    assert sketch.legal(indices).sum() > 50
    for group in sketch.groups(indices):
        rows, found = features_and_seconds(group)
        assert np.isfinite(rows).all() and (found > 0).all()
        for k in range(0, len(group.rows), 37):
            tree = LoopTree(sketch.close(int(indices[group.rows[k]])))
            row, alone = describe(Resources(tree.bounds(), task.target), 1)
            np.testing.assert_allclose(row[0], rows[k], rtol=1e-5, atol=1e-5)
            np.testing.assert_allclose(alone[0], found[k], rtol=1e-9)
        moving = {n for n, column in zip(FEATURES, rows.T, strict=True) if np.ptp(column) > 0}
        assert set(ATOM_COLUMNS) - {"log_atom_terms"} <= moving, "the reduction is one chain"


# -- what the model prefers ------------------------------------------------------------------------


def test_large_products_want_large_tiles() -> None:
    """By mma.sync, a product of 4096 is bound by what is loaded for an atom."""
    large = Product(4096, 4096, 4096)
    times = [seconds(large.with_(rows=n, columns=n)) for n in (32, 64, 128)]
    assert times[0] > 1.3 * times[1] > 1.3 * times[2]


def test_small_products_want_as_many_blocks_as_cores() -> None:
    small = Product(1024, 1024, 1024)
    assert seconds(small.with_(rows=64, columns=128)) < seconds(small.with_(rows=128, columns=256))


def test_rows_without_conflicts_are_faster() -> None:
    of = Product(1024, 1024, 1024, rows=64, columns=128)
    assert seconds(of) < 0.9 * seconds(of.with_(pad=0))


def test_a_warp_wants_several_sums_and_a_core_several_warps() -> None:
    of = Product(2048, 2048, 512, rows=64, columns=64)
    assert seconds(of.with_(warps=(2, 2))) < seconds(of.with_(warps=(4, 8)))
    of = Product(1024, 1024, 1024, rows=64, columns=128)
    assert seconds(of.with_(warps=(2, 2))) < seconds(of.with_(warps=(1, 1)))


def test_few_sums_of_many_terms_want_slices_but_not_any_number() -> None:
    """512 channels of 7 x 7, in windows of 3 x 3 of 512: 16 tiles, where there are 132 cores."""
    of = Product(512, 56, 4608, rows=32, columns=56, warps=(2, 1))

    def whole(slices: int) -> float:
        _, times = analyse(resources(of.with_(slices=slices)), 1)
        return sum(number(t.total) for t in times)

    one, some, many = (whole(n) for n in (1, 16, 144))
    assert some < 0.2 * one and some < 0.8 * many


def test_halves_take_half_the_atoms_of_tf32() -> None:
    of = Product(1024, 1024, 1024)
    halves, whole = analysed(of), analysed(of.with_(dtype="float32", pad=4))
    assert halves[0].atoms * 2 == whole[0].atoms
    assert number(halves[1].total) < number(whole[1].total)


@pytest.mark.parametrize("arch", ["sm_80", "sm_86", "sm_89"])
def test_every_device_with_atoms_has_rates(arch: str) -> None:
    of = Product(1024, 1024, 1024)
    _, times = analysed(of, Target(f"cuda -arch={arch}"))
    peak = of.m * of.n * of.k * 2 / number(times.tensor)
    known = {"sm_80": 312e12, "sm_86": 40.6e12, "sm_89": 165e12}[arch]
    waves = number(times.tail)  # cores that have nothing to do
    assert peak / waves == pytest.approx(known, rel=0.02)


# -- masks -----------------------------------------------------------------------------------------


def reasons(of: Product, target: Target = GPU) -> set[str]:
    verdict = judge(resources(of, target))
    tables = (verdict.refused, verdict.discouraged)
    return {name for masks in tables for name, mask in masks.items() if bool(np.any(mask))}


def test_a_device_without_the_instruction_refuses() -> None:
    assert not reasons(Product())
    for text in ("cuda -arch=sm_75", "opencl"):
        assert "atom" in reasons(Product(), Target(text))


def test_products_of_float32_are_cut_where_the_target_allows_it_only() -> None:
    """Refused, not discouraged: a log of a stranger may name such a schedule for any target, and
    long sums of rounded operands are within the bound of float32."""
    of = Product(dtype="float32", pad=4)
    assert reasons(of) == {"precision"}
    with pytest.raises(LegalityError, match="-precision="):
        check(resources(of), "of")
    assert not reasons(of, Target("cuda -arch=sm_90 -precision=tf32"))


def test_a_sum_in_one_accumulator_may_be_only_so_long() -> None:
    most = int(longest_in_unit(6400, "float32"))
    assert "precision" not in reasons(Product(k=most // 32 * 32))
    assert "precision" in reasons(Product(k=8192))


def test_predictions_rank_a_population() -> None:
    """The best by the model has warps of several sums and fills the cores."""
    task = create("tests/search/atom_product", (1024, 1024, 1024, "float16"), GPU)
    (sketch,) = task.sketches
    indices = np.flatnonzero(sketch.legal(np.arange(len(sketch.space))))
    (group,) = sketch.groups(indices)
    found = predict_seconds(group)
    best = sketch.space.get(int(indices[group.rows[np.argmin(found)]]))
    values = {name: entity.value for name, entity in best.items()}
    assert values["rows"] * values["columns"] >= 32 * 32
    assert values["rows"] * values["columns"] // (values["down"] * values["across"]) >= 16 * 32
