"""Products by matrix instructions in other forms: warps along two indices, virtual threads, sums
shared by warps, results that other atoms and other stages read; and what is refused."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from lowering.tensor_products import multiply
from lowering.test_fragments import TARGET, drawn, lowered
from tests import interpreter
from tests.specialise import specialised
from tilewright import te
from tilewright.base.errors import LegalityError, LoweringError, ScheduleError
from tilewright.ir.atoms import ATOMS
from tilewright.ir.fast_interpreter import run_fast
from tilewright.ir.stmt import Store, statements
from tilewright.lowering.pipeline import lower_schedule
from tilewright.schedule.schedule import Schedule, create_schedule
from tilewright.schedule.space.decision import var
from tilewright.schedule.thread_loops import fetch, lanes
from tilewright.schedule.tree.legality import check, judge
from tilewright.schedule.tree.loop_tree import LoopTree
from tilewright.schedule.tree.resources import Resources
from tilewright.targets.target import Target
from tilewright.te.tensor import Tensor

ATOM = "m16n8k16.float16"
Halves = tuple[Tensor, Tensor, Tensor, Tensor]


def halves(m: int, n: int, k: int, beyond: int = 0) -> Halves:
    """d = half(c), c = a b.  beyond: elements before and behind the terms, in rows of a."""
    a = te.placeholder((m, k + 2 * beyond), "float16", name="A")
    b = te.placeholder((k, n), "float16", name="B")
    r = te.reduce_axis((0, k), "r")

    def term(i, j):
        return a[i, r + beyond].astype("float32") * b[r, j].astype("float32")

    c = te.compute((m, n), lambda i, j: te.sum(term(i, j), axis=r), name="C")
    return a, b, c, te.compute((m, n), lambda i, j: c[i, j].astype("float16"), name="D")


def fragments(s: Schedule, c: Tensor, *operands: Tensor) -> list[Tensor]:
    s[c].set_scope("fragment")
    return [s.cache_read(t, "fragment", [c]) for t in operands]


def inner(s: Schedule, c: Tensor, held: list[Tensor], slices: int = 16) -> None:
    """The loops of a product in fragments, whose operands are fetched for each atom along k."""
    m, n = s[c].op.axis[-2:]
    _, steps = multiply(s, c, ATOM, m, n, s[c].op.reduce_axis[0], slices)
    for t in held:
        s[t].compute_at(s[c], steps)


def one_warp(a: Tensor, b: Tensor, c: Tensor, d: Tensor) -> Schedule:
    s = create_schedule(d.op)
    held = fragments(s, c, a, b)
    lane, _, _, _ = lanes(s[d], *s[d].op.axis, ATOM)
    s[c].compute_at(s[d], lane)
    inner(s, c, held)
    return s


def two_indices(a: Tensor, b: Tensor, c: Tensor, d: Tensor) -> Schedule:
    """Warps are threadIdx.y and z."""
    s = create_schedule(d.op)
    s[c].set_scope("fragment")
    tiles = [s.cache_read(t, "shared", [c]) for t in (a, b)]
    held = fragments(s, c, *tiles)
    i, j = s[d].op.axis
    wi, i = s[d].split(i, nparts=2)
    wj, j = s[d].split(j, nparts=2)
    s[d].reorder(wi, wj, i, j)
    s[d].bind(wi, "threadIdx.z")
    s[d].bind(wj, "threadIdx.y")
    lane, _, _, _ = lanes(s[d], i, j, ATOM)
    s[c].compute_at(s[d], lane)
    inner(s, c, held)
    for t in tiles:
        s[t].compute_at(s[c], s[c].leaf_iter_vars[0])
        x = s[t].fuse(*s[t].op.axis)
        for tag, count in (("threadIdx.x", 32), ("threadIdx.y", 2), ("threadIdx.z", 2)):
            x, bound = s[t].split(x, factor=count)
            s[t].bind(bound, tag)
    return s


def virtual(a: Tensor, b: Tensor, c: Tensor, d: Tensor) -> Schedule:
    """Each warp has two tiles, as virtual threads."""
    s = create_schedule(d.op)
    held = fragments(s, c, a, b)
    i, j = s[d].op.axis
    vi, i = s[d].split(i, nparts=2)
    wj, j = s[d].split(j, nparts=2)
    s[d].reorder(vi, wj, i, j)
    s[d].bind(vi, "vthread")
    s[d].bind(wj, "threadIdx.y")
    lane, _, _, _ = lanes(s[d], i, j, ATOM)
    s[c].compute_at(s[d], lane)
    inner(s, c, held)
    return s


def shared_sums(a: Tensor, b: Tensor, c: Tensor, d: Tensor) -> Schedule:
    """Warps share the terms: their sums meet on a board in shared memory."""
    s = create_schedule(d.op)
    ko, _ = s[c].split(s[c].op.reduce_axis[0], nparts=4)
    rf = s.rfactor(c, ko)
    held = fragments(s, rf, a, b)
    board = s.cache_read(rf, "shared", [c])
    block, rest = s[d].split(s[d].fuse(*s[d].op.axis), factor=512)
    s[d].bind(block, "blockIdx.x")
    rest, x = s[d].split(rest, factor=32)
    _, y = s[d].split(rest, factor=4)
    s[d].bind(x, "threadIdx.x")
    s[d].bind(y, "threadIdx.y")
    s[c].compute_at(s[d], x)
    s[board].compute_at(s[d], block)
    w, i, j = s[board].op.axis
    s[board].bind(w, "threadIdx.y")
    lane, _, _, _ = lanes(s[board], i, j, ATOM)
    s[rf].compute_at(s[board], lane)
    inner(s, rf, held)
    return s


def idle_warps(a: Tensor, b: Tensor, c: Tensor, d: Tensor) -> Schedule:
    """Four warps copy what two multiply."""
    s = create_schedule(d.op)
    s[c].set_scope("fragment")
    tiles = [s.cache_read(t, "shared", [c]) for t in (a, b)]
    held = fragments(s, c, *tiles)
    i, j = s[d].op.axis
    wi, i = s[d].split(i, factor=16)
    s[d].bind(wi, "threadIdx.y")
    lane, _, _, _ = lanes(s[d], i, j, ATOM)
    s[c].compute_at(s[d], lane)
    inner(s, c, held)
    for t in tiles:
        s[t].compute_at(s[c], s[c].leaf_iter_vars[0])
        fetch(s[t], 128, lanes=32)
    return s


def written(a: Tensor, b: Tensor, c: Tensor, d: Tensor) -> Schedule:
    """The sums are a cache of the output, fetched from far apart loops."""
    s = create_schedule(c.op)
    cache = s.cache_write(c, "fragment")
    held = fragments(s, cache, a, b)
    lane, _, _, _ = lanes(s[c], *s[c].op.axis, ATOM)
    s[cache].compute_at(s[c], lane)
    inner(s, cache, held, 32)
    s[held[0]].compute_at(s[cache], s[cache].leaf_iter_vars[0])
    return s


FORMS: dict[str, tuple[Callable[..., Schedule], Halves]] = {
    f.__name__: (f, halves(*sizes))
    for f, sizes in (
        (one_warp, (20, 9, 30)), (two_indices, (64, 32, 32)), (virtual, (64, 32, 32)),
        (shared_sums, (32, 16, 128)), (idle_warps, (32, 8, 32)), (written, (32, 16, 64)),
    )
}  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize(("form", "tensors"), FORMS.values(), ids=FORMS)
def test_a_product_in_this_form(form: Callable[..., Schedule], tensors: Halves) -> None:
    a, b, c, d = tensors
    out = c if form is written else d
    program = lowered(form(*tensors), [a, b, out])
    rng = np.random.default_rng(0)
    left, right = (drawn(t.shape, t.dtype, rng) for t in (a, b))
    expected = (left.astype(float) @ right.astype(float)).astype(out.dtype.storage)
    for run in (run_fast, interpreter.run):
        result = np.zeros(out.shape, out.dtype.storage)
        run(program, [left, right, result])
        np.testing.assert_array_equal(result, expected)


@pytest.mark.parametrize("k", [16, 21, 30])
def test_what_lies_beyond_the_terms_of_a_sum_is_not_multiplied_by_zero(k: int) -> None:
    a, b, c, d = halves(16, 8, k, beyond=3)
    program = lowered(one_warp(a, b, c, d), [a, b, d])
    rng = np.random.default_rng(0)
    left, right = (drawn(t.shape, t.dtype, rng) for t in (a, b))
    left[:, :3], left[:, -3:] = np.nan, np.inf
    expected = (left[:, 3:-3].astype(float) @ right.astype(float)).astype(np.float16)
    for run in (run_fast, interpreter.run):
        result = np.zeros(d.shape, np.float16)
        run(program, [left, right, result])
        np.testing.assert_array_equal(result, expected)


def test_tf32_operands_are_rounded_to_the_nearest() -> None:
    a, b = (te.placeholder((16, 8), "float32", name=n) for n in "AB")
    r = te.reduce_axis((0, 8), "r")
    c = te.compute((16, 16), lambda i, j: te.sum(a[i, r] * b[j, r], axis=r), name="C")
    d = te.compute((16, 16), lambda i, j: c[i, j] + 0.0, name="D")
    s = create_schedule(d.op)
    held = fragments(s, c, a, b)
    lane, _, _, _ = lanes(s[d], *s[d].op.axis, "m16n8k8.tf32")
    s[c].compute_at(s[d], lane)
    m, n = s[c].op.axis
    _, steps = multiply(s, c, "m16n8k8.tf32", m, n, s[c].op.reduce_axis[0], 8)
    for t in held:
        s[t].compute_at(s[c], steps)
    program = lowered(s, [a, b, d])
    left, right = (np.zeros((16, 8), np.float32) for _ in range(2))
    unit = 2.0**-10  # of the last place at 1
    left[:, 0] = [1 + k * unit / 8 for k in range(16)]
    right[:, 0] = 1
    for run in (run_fast, interpreter.run):
        result = np.zeros((16, 16), np.float32)
        run(program, [left, right, result])
        nearest = [1 + (k + 4) // 8 * unit for k in range(16)]  # halves go up
        np.testing.assert_array_equal(result[:, 3], nearest)


# -- refusals --------------------------------------------------------------------------------------


def refused(s: Schedule, words: str, kind: type[Exception] = ScheduleError) -> None:
    with pytest.raises(kind, match=words):
        tree = LoopTree(s)
        lower_schedule(s, TARGET, tree=tree, bounds=tree.bounds())


def test_readers_in_other_lanes_are_refused() -> None:
    a, b, c, d = halves(16, 8, 16)
    s = create_schedule(d.op)
    held = fragments(s, c, a, b)
    i, j = s[d].op.axis
    j, pair = s[d].split(j, factor=4)
    i, row = s[d].split(i, factor=16)
    s[d].reorder(row, j, i, pair)
    s[d].bind(lane := s[d].fuse(row, j), "threadIdx.x")
    s[c].compute_at(s[d], lane)
    inner(s, c, held)
    refused(s, r"read of C: lane .* holds the element, but thread_x reads it. Split m by 8")


def test_operands_that_are_no_fragments_are_refused() -> None:
    a, _, c, d = halves(16, 8, 16)
    s = create_schedule(d.op)
    held = fragments(s, c, a)
    lane, _, _, _ = lanes(s[d], *s[d].op.axis, ATOM)
    s[c].compute_at(s[d], lane)
    inner(s, c, held)
    refused(s, r"tensorize\(C.i.inner, .*it reads B in scope global.*s.cache_read\(B")


def test_a_fragment_that_no_atom_reads_is_refused() -> None:
    a, _, c, d = halves(16, 8, 16)
    s = create_schedule(d.op)
    held = s.cache_read(a, "fragment", [c])
    s[held].compute_at(s[c], s[c].op.axis[0])
    refused(s, "C reads this fragment without an atom. Tensorize C")


def test_one_fragment_for_both_operands_is_refused() -> None:
    a = te.placeholder((16, 16), "float16", name="A")
    r = te.reduce_axis((0, 16), "r")

    def term(i, j):
        return a[i, r].astype("float32") * a[j, r].astype("float32")

    c = te.compute((16, 16), lambda i, j: te.sum(term(i, j), axis=r), name="C")
    d = te.compute((16, 16), lambda i, j: c[i, j] + 1.0, name="D")
    s = create_schedule(d.op)
    held = fragments(s, c, a)
    lane, _, _, _ = lanes(s[d], *s[d].op.axis, ATOM)
    s[c].compute_at(s[d], lane)
    inner(s, c, held)
    refused(s, "one atom reads it as another part than the other does")


def test_types_of_another_atom_are_refused() -> None:
    a, b, c, d = halves(16, 8, 16)
    s = create_schedule(d.op)
    held = fragments(s, c, a, b)
    lane, _, _, _ = lanes(s[d], *s[d].op.axis, ATOM)
    s[c].compute_at(s[d], lane)
    m, n = s[c].op.axis
    multiply(s, c, "m16n8k16.bfloat16", m, n, s[c].op.reduce_axis[0], 16)
    for t in held:
        s[t].compute_at(s[c], s[c].leaf_iter_vars[1])
    refused(s, "A.fragment is float16, the atom multiplies bfloat16")


def test_sums_of_something_else_are_refused() -> None:
    a, b, _, _ = halves(16, 8, 16)
    r = te.reduce_axis((0, 16), "r")

    def term(i, j):
        return a[i, r].astype("float32") * b[r, j].astype("float32") + 1.0

    c = te.compute((16, 8), lambda i, j: te.sum(term(i, j), axis=r), name="C")
    d = te.compute((16, 8), lambda i, j: c[i, j] + 1.0, name="D")
    refused(one_warp(a, b, c, d), "it adds up .*, no product of two tensors")


def test_an_operand_that_is_shifted_inside_its_tile_is_refused() -> None:
    a = te.placeholder((18, 16), "float16", name="A")
    b = te.placeholder((3, 16, 8), "float16", name="B")
    r, q = te.reduce_axis((0, 16), "r"), te.reduce_axis((0, 3), "q")

    def term(i, j):
        return a[i + q, r].astype("float32") * b[q, r, j].astype("float32")

    c = te.compute((16, 8), lambda i, j: te.sum(term(i, j), axis=[r, q]), name="C")
    d = te.compute((16, 8), lambda i, j: c[i, j] + 1.0, name="D")
    s = create_schedule(d.op)
    held = fragments(s, c, a, b)
    lane, _, _, _ = lanes(s[d], *s[d].op.axis, ATOM)
    s[c].compute_at(s[d], lane)
    (m, n), (r, q) = s[c].op.axis, s[c].op.reduce_axis
    ko, _ = multiply(s, c, ATOM, m, n, r, 16, [q])
    for t in held:
        s[t].compute_at(s[c], ko)  # outside q
    refused(s, "A.fragment: an atom of C begins q elements inside a tile.*inside the loops that sh")


def test_threads_that_share_the_terms_and_padded_rows_are_refused() -> None:
    s = one_warp(*halves(16, 8, 32))
    stage = next(st for st in s.stages if st.name == "C")
    stage.bind(stage.leaf_iter_vars[0], "threadIdx.y")
    refused(s, "threadIdx.y shares its terms.*s.rfactor")
    s = one_warp(*halves(16, 8, 32))
    stage = next(st for st in s.stages if st.name == "C")
    stage.storage_align(stage.op.axis[0], 8, 1)
    refused(s, "its rows are padded")


def test_loops_of_an_operand_are_its_atoms() -> None:
    a, b, c, d = halves(16, 8, 16)
    s = one_warp(a, b, c, d)
    copy = next(st for st in s.stages if st.name == "A.fragment")
    copy.bind(copy.op.axis[0], "threadIdx.y")
    refused(s, "each thread would fill a part of its own copy")
    s = one_warp(a, b, c, d)
    copy = next(st for st in s.stages if st.name == "A.fragment")
    copy.split(copy.op.axis[0], factor=4)
    refused(s, "its own loops are split, bound or marked")


def test_steps_on_loops_inside_an_atom_are_refused() -> None:
    s = one_warp(*halves(16, 8, 16))
    stage = next(st for st in s.stages if st.name == "C")
    m, n, k = stage.inside
    before = str(s)
    for call in (
        lambda: stage.split(m, factor=4), lambda: stage.fuse(m, n), lambda: stage.unroll(k),
        lambda: stage.bind(n, "threadIdx.y"), lambda: stage.reorder(n, m),
        lambda: s.stages[0].compute_at(stage, m), lambda: stage.set_scope("local"),
        lambda: stage.tensorize(m, ATOM),
    ):  # fmt: skip
        with pytest.raises(ScheduleError):
            call()
    assert str(s) == before


@pytest.mark.parametrize("target", ["cuda -arch=sm_75", "opencl", "llvm"])
def test_devices_without_atoms_are_refused(target: str) -> None:
    schedule = one_warp(*halves(16, 8, 16))
    with pytest.raises(LegalityError, match=r"\(atom\)"):
        check(Resources(LoopTree(schedule).bounds(), Target(target)), "it")
    with pytest.raises(LoweringError, match="has no such instruction. It has "):
        lower_schedule(schedule, Target(target))


def test_the_device_kind_names_the_atoms_that_there_are() -> None:
    assert Target("cuda -arch=sm_80").atoms == tuple(ATOMS)


@pytest.mark.slow
def test_rows_may_be_as_many_as_a_call_says() -> None:
    rows = te.var("n")
    a = te.placeholder((rows, 32), "float16", name="A")
    b, r = te.placeholder((32, 8), "float16", name="B"), te.reduce_axis((0, 32), "r")

    def term(i, j):
        return a[i, r].astype("float32") * b[r, j].astype("float32")

    c = te.compute((rows, 8), lambda i, j: te.sum(term(i, j), axis=r), name="C")
    d = te.compute((rows, 8), lambda i, j: c[i, j].astype("float16"), name="D")
    s = create_schedule(d.op)
    held = fragments(s, c, a, b)
    i, j = s[d].op.axis
    block, i = s[d].split(i, factor=32)
    s[d].bind(block, "blockIdx.x")
    lane, _, _, _ = lanes(s[d], i, j, ATOM)
    s[c].compute_at(s[d], lane)
    inner(s, c, held)
    program = lower_schedule(s, TARGET, args=[a, b, d])
    rng = np.random.default_rng(0)
    left, right = drawn((45, 32), a.dtype, rng), drawn((32, 8), b.dtype, rng)
    result = np.zeros((45, 8), np.float16)
    run_fast(specialised(program, {"n": 45}), [left, right, result])
    expected = (left.astype(float) @ right.astype(float)).astype(np.float16)
    np.testing.assert_array_equal(result, expected)


def test_masks_refuse_what_does_not_fit_the_atom() -> None:
    """Open decisions: tiles of warps along m, slices along k, threads of the copy."""
    a, b, c, d = halves(64, 8, 64)
    s = create_schedule(d.op)
    s[c].set_scope("fragment")
    tile = s.cache_read(a, "shared", [c])
    held = fragments(s, c, tile, b)
    i, j = s[d].op.axis
    wi, i = s[d].split(i, factor=16)
    s[d].bind(wi, "threadIdx.y")
    lane, _, _, _ = lanes(s[d], i, j, ATOM)
    s[c].compute_at(s[d], lane)
    m, n = s[c].op.axis
    slices, steps = multiply(s, c, ATOM, m, n, s[c].op.reduce_axis[0], var("slices"))
    for t in held:
        s[t].compute_at(s[c], steps)
    s[tile].compute_at(s[c], slices)
    fetch(s[tile], 128, lanes=var("lanes"))
    tree = LoopTree(s)
    chosen = {"slices": np.array([16, 32, 24, 64, 16]), "lanes": np.array([32, 32, 32, 16, 64])}
    verdict = judge(Resources(tree.bounds(chosen), TARGET))
    assert verdict.refused["atom"].tolist() == [False, False, True, False, True]
    assert verdict.legal(5).tolist() == [True, True, False, True, False]
    for slices, count in ((16, 32), (64, 16)):
        program = lower_schedule(
            s, TARGET, tree=tree, bounds=tree.bounds({"slices": slices, "lanes": count})
        )
        assert program.kernels[0].block == (32, 128 // count, 1)
    with pytest.raises(LegalityError, match="split by 24, and k of .* is 16"):
        lower_schedule(s, TARGET, tree=tree, bounds=tree.bounds({"slices": 24, "lanes": 32}))


# -- what lies as a warp holds it ------------------------------------------------------------------


@pytest.mark.parametrize(("atom", "width"), [(ATOM, 8), ("m16n8k8.tf32", 4)])
def test_operands_in_the_order_of_lanes_come_by_16_bytes(atom: str, width: int) -> None:
    size, held = ATOMS[atom].extents, ATOMS[atom].a
    kind, (m, n, k) = str(held.dtype), (32, 8, 32)
    packed = te.placeholder((m // size["m"], k // size["k"], 32, width), kind, name="P")
    b, r = te.placeholder((k, n), kind, name="B"), te.reduce_axis((0, k), "r")

    def unpacked(i, j):
        return packed[
            i // size["m"], j // size["k"], *held.holder(i % size["m"], j % size["k"])
        ]  # fmt: skip

    def term(i, j):
        return a[i, r].astype("float32") * b[r, j].astype("float32")

    a = te.compute((m, k), unpacked, name="A")
    c = te.compute((m, n), lambda i, j: te.sum(term(i, j), axis=r), name="C")
    d = te.compute((m, n), lambda i, j: c[i, j] + 0.0, name="D")
    s = create_schedule(d.op)
    s[a].set_scope("fragment")
    other = fragments(s, c, b)
    lane, _, _, _ = lanes(s[d], *s[d].op.axis, atom)
    s[c].compute_at(s[d], lane)
    rows, columns = s[c].op.axis
    _, steps = multiply(s, c, atom, rows, columns, s[c].op.reduce_axis[0], size["k"])
    for t in (a, *other):
        s[t].compute_at(s[c], steps)
    program = lowered(s, [packed, b, d])
    filled = [x for x in statements(program.kernels[0].body) if isinstance(x, Store)]
    assert [x.index.lanes for x in filled if x.buffer.name == "A"] == [width]
    rng = np.random.default_rng(0)
    left, right = drawn((m, k), a.dtype, rng), drawn((k, n), b.dtype, rng)
    given = np.zeros(packed.shape, left.dtype)
    for i, j in np.ndindex(m, k):
        where, element = held.holder(i % size["m"], j % size["k"])
        given[i // size["m"], j // size["k"], where, element] = left[i, j]
    for run in (run_fast, interpreter.run):
        result = np.zeros(d.shape, np.float32)
        run(program, [given, right, result])
        np.testing.assert_array_equal(result, left.astype(np.float32) @ right.astype(np.float32))


def test_sums_are_an_operand_of_the_next_atom_in_the_same_lanes() -> None:
    """d = half(a b) g, all in registers."""
    a, b, c, half = halves(16, 32, 16)
    g, r = te.placeholder((32, 8), "float16", name="G"), te.reduce_axis((0, 32), "q")

    def term(i, j):
        return half[i, r].astype("float32") * g[r, j].astype("float32")

    e = te.compute((16, 8), lambda i, j: te.sum(term(i, j), axis=r), name="E")
    out = te.compute((16, 8), lambda i, j: e[i, j] * 2.0, name="F")
    s = create_schedule(out.op)
    first = fragments(s, c, a, b)
    second = fragments(s, e, g)
    s[half].set_scope("fragment")
    lane, _, _, _ = lanes(s[out], *s[out].op.axis, ATOM)
    s[c].compute_at(s[out], lane)
    s[e].compute_at(s[out], lane)
    inner(s, c, first)
    inner(s, e, [half, *second])
    program = lowered(s, [a, b, g, out])
    rng = np.random.default_rng(0)
    arrays = [drawn(t.shape, t.dtype, rng) for t in (a, b, g)]
    x, y, z = (array.astype(np.float64) for array in arrays)
    expected = (x @ y).astype(np.float16).astype(np.float64) @ z * 2
    for run in (run_fast, interpreter.run):
        result = np.zeros(out.shape, np.float32)
        run(program, [*arrays, result])
        np.testing.assert_allclose(result, expected, rtol=1e-6)
