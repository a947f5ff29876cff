"""Every illegal request is refused at the call, with the place, the reason and a way out."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from schedule.computations import conv2d, matmul, softmax
from tilewright import te
from tilewright.base.errors import LegalityError, LoweringError, ScheduleError
from tilewright.driver.build import generate_source
from tilewright.lowering.pipeline import lower_schedule
from tilewright.schedule.schedule import MOST_STEPS, Schedule, create_schedule
from tilewright.schedule.steps import step_from_json
from tilewright.schedule.thread_loops import lanes
from tilewright.schedule.tree import legality
from tilewright.schedule.tree.loop_tree import LoopTree
from tilewright.schedule.tree.resources import Resources
from tilewright.targets.target import Target
from tilewright.te.dag import ComputeDAG
from tilewright.te.tensor import ComputeOp, Tensor

Setup = tuple[Schedule, Tensor, Tensor, Tensor]


def mm() -> Setup:
    a, b, c = matmul(8, 6, 4)
    return create_schedule([c.op]), a, b, c


def split_zero(s: Schedule, a: Tensor, b: Tensor, c: Tensor) -> None:
    s[c].split(s[c].op.axis[0], factor=0)


def split_both(s: Schedule, a: Tensor, b: Tensor, c: Tensor) -> None:
    s[c].split(s[c].op.axis[0], factor=2, nparts=2)


def split_nothing(s: Schedule, a: Tensor, b: Tensor, c: Tensor) -> None:
    s[c].split(s[c].op.axis[0])


def split_twice(s: Schedule, a: Tensor, b: Tensor, c: Tensor) -> None:
    axis = s[c].op.axis[0]
    s[c].split(axis, factor=2)
    s[c].split(axis, factor=2)


def split_foreign(s: Schedule, a: Tensor, b: Tensor, c: Tensor) -> None:
    s[c].split(te.reduce_axis((0, 4), "foreign"), factor=2)


def split_bound(s: Schedule, a: Tensor, b: Tensor, c: Tensor) -> None:
    s[c].bind(s[c].op.axis[0], te.thread_axis("blockIdx.x"))
    s[c].split(s[c].op.axis[0], factor=2)


def split_input(s: Schedule, a: Tensor, b: Tensor, c: Tensor) -> None:
    s[a].split(s[c].op.axis[0], factor=2)


def fuse_attach_axis(s: Schedule, a: Tensor, b: Tensor, c: Tensor) -> None:
    copy = s.cache_read(a, "local", [c])
    s[copy].compute_at(s[c], s[c].op.axis[0])
    s[c].fuse(*s[c].op.axis)


def fuse_apart(s: Schedule, a: Tensor, b: Tensor, c: Tensor) -> None:
    i, j = s[c].op.axis
    s[c].fuse(j, i)


def fuse_kinds(s: Schedule, a: Tensor, b: Tensor, c: Tensor) -> None:
    s[c].fuse(s[c].op.axis[1], s[c].op.reduce_axis[0])


def reorder_twice(s: Schedule, a: Tensor, b: Tensor, c: Tensor) -> None:
    i, _ = s[c].op.axis
    s[c].reorder(i, i)


def bind_unknown(s: Schedule, a: Tensor, b: Tensor, c: Tensor) -> None:
    s[c].bind(s[c].op.axis[0], "warpIdx.x")


def bind_taken(s: Schedule, a: Tensor, b: Tensor, c: Tensor) -> None:
    for axis in s[c].op.axis:
        s[c].bind(axis, "threadIdx.x")


def bind_again(s: Schedule, a: Tensor, b: Tensor, c: Tensor) -> None:
    s[c].unroll(s[c].op.axis[0])
    s[c].bind(s[c].op.axis[0], "threadIdx.x")


def bind_reduction_to_blocks(s: Schedule, a: Tensor, b: Tensor, c: Tensor) -> None:
    s[c].bind(s[c].op.reduce_axis[0], "blockIdx.x")


def vectorize_reduction(s: Schedule, a: Tensor, b: Tensor, c: Tensor) -> None:
    s[c].vectorize(s[c].op.reduce_axis[0])


def annotate_twice(s: Schedule, a: Tensor, b: Tensor, c: Tensor) -> None:
    s[c].parallel(s[c].op.axis[0])
    s[c].unroll(s[c].op.axis[0])


def pragma_unknown(s: Schedule, a: Tensor, b: Tensor, c: Tensor) -> None:
    s[c].pragma(s[c].op.axis[0], "prefetch", 1)


def pragma_negative(s: Schedule, a: Tensor, b: Tensor, c: Tensor) -> None:
    s[c].pragma(s[c].op.axis[0], "auto_unroll_max_step", -1)


def attach_output(s: Schedule, a: Tensor, b: Tensor, c: Tensor) -> None:
    copy = s.cache_write(c, "local")
    s[c].compute_at(s[copy], s[copy].op.axis[0])


def attach_to_stranger(s: Schedule, a: Tensor, b: Tensor, c: Tensor) -> None:
    left, right = s.cache_read(a, "local", [c]), s.cache_read(b, "local", [c])
    s[left].compute_at(s[right], s[right].op.axis[0])


def inline_output(s: Schedule, a: Tensor, b: Tensor, c: Tensor) -> None:
    s[c].compute_inline()


def inline_reduction(s: Schedule, a: Tensor, b: Tensor, c: Tensor) -> None:
    s[s.cache_write(c, "local")].compute_inline()


def inline_scheduled(s: Schedule, a: Tensor, b: Tensor, c: Tensor) -> None:
    copy = s.cache_read(a, "local", [c])
    s[copy].split(s[copy].op.axis[0], factor=2)
    s[copy].compute_inline()


def scope_unknown(s: Schedule, a: Tensor, b: Tensor, c: Tensor) -> None:
    s.cache_write(c, "texture")


def scope_of_output(s: Schedule, a: Tensor, b: Tensor, c: Tensor) -> None:
    s[c].set_scope("shared")


def cache_read_no_readers(s: Schedule, a: Tensor, b: Tensor, c: Tensor) -> None:
    s.cache_read(a, "shared", [])


def cache_read_stranger(s: Schedule, a: Tensor, b: Tensor, c: Tensor) -> None:
    copy = s.cache_read(a, "shared", [c])
    s.cache_read(b, "shared", [copy])


def cache_write_late(s: Schedule, a: Tensor, b: Tensor, c: Tensor) -> None:
    s[c].split(s[c].op.axis[0], factor=2)
    s.cache_write(c, "local")


def rfactor_spatial(s: Schedule, a: Tensor, b: Tensor, c: Tensor) -> None:
    s.rfactor(c, s[c].op.axis[0])


def rfactor_late(s: Schedule, a: Tensor, b: Tensor, c: Tensor) -> None:
    s[c].split(s[c].op.axis[0], factor=2)
    s.rfactor(c, s[c].op.reduce_axis[0])


def rfactor_place(s: Schedule, a: Tensor, b: Tensor, c: Tensor) -> None:
    s.rfactor(c, s[c].op.reduce_axis[0], 5)


def align_output(s: Schedule, a: Tensor, b: Tensor, c: Tensor) -> None:
    s[c].storage_align(s[c].op.axis[0], 8, 1)


def align_wrong(s: Schedule, a: Tensor, b: Tensor, c: Tensor) -> None:
    copy = s.cache_read(a, "shared", [c])
    s[copy].storage_align(s[copy].op.axis[0], 8, 8)


def order_output(s: Schedule, a: Tensor, b: Tensor, c: Tensor) -> None:
    s[c].storage_order(s[c].op.axis[0])


def order_twice(s: Schedule, a: Tensor, b: Tensor, c: Tensor) -> None:
    copy = s[s.cache_read(a, "shared", [c])]
    copy.storage_order(copy.op.axis[0], copy.op.axis[0])


def order_loop(s: Schedule, a: Tensor, b: Tensor, c: Tensor) -> None:
    copy = s[s.cache_read(a, "shared", [c])]
    copy.storage_order(copy.split(copy.op.axis[0], factor=2)[0])


def pack_computed(s: Schedule, a: Tensor, b: Tensor, c: Tensor) -> None:
    s.pack(c, [2, 1], [0, 1, 2])


def pack_order(s: Schedule, a: Tensor, b: Tensor, c: Tensor) -> None:
    s.pack(a, [2, 1], [0, 1])


def stage_unknown(s: Schedule, a: Tensor, b: Tensor, c: Tensor) -> None:
    s.find("D")


def tensor_unknown(s: Schedule, a: Tensor, b: Tensor, c: Tensor) -> None:
    s[te.placeholder((3,), name="elsewhere")].unroll(s[c].op.axis[0])


def size_not_whole(s: Schedule, a: Tensor, b: Tensor, c: Tensor) -> None:
    s[c].split(s[c].op.axis[0], factor=6 / 4)


def with_copy_in(s: Schedule, a: Tensor, c: Tensor) -> None:
    """A copy of `a`, computed inside `c`."""
    copy = s.cache_read(a, "local", [c])
    s[copy].compute_at(s[c], s[c].op.axis[0])


def inline_host(s: Schedule, a: Tensor, b: Tensor, c: Tensor) -> None:
    first = s.cache_read(a, "local", [c])
    with_copy_in(s, a, first)
    s[first].compute_inline()


def cache_write_host(s: Schedule, a: Tensor, b: Tensor, c: Tensor) -> None:
    with_copy_in(s, a, c)
    s.cache_write(c, "local")


def rfactor_host(s: Schedule, a: Tensor, b: Tensor, c: Tensor) -> None:
    with_copy_in(s, a, c)
    s.rfactor(c, s[c].op.reduce_axis[0])


def cache_read_partly_stranger(s: Schedule, a: Tensor, b: Tensor, c: Tensor) -> None:
    copy = s.cache_read(a, "local", [c])
    s.cache_read(b, "shared", [c, copy])


REFUSALS: dict[Callable[[Schedule, Tensor, Tensor, Tensor], None], str] = {
    split_zero: r"split\(C.i, factor=0\): factor must be at least 1. "
    r"C has axes i:8 j:6 r:4. Try factor=8",
    split_both: "give either factor or nparts",
    split_nothing: "give either factor or nparts",
    split_twice: "i was split or fused and is no loop any more",
    split_foreign: "foreign:4 is of no stage here, not of C",
    split_bound: "i is already blockIdx.x. Split and fuse before annotating",
    split_input: "an input has no loops to schedule. Schedule its cache_read stage",
    fuse_attach_axis: "A.local is computed at i. Fuse before compute_at",
    fuse_apart: "not neighbours in loop order",
    fuse_kinds: "spatial and reduction axes do not fuse",
    reorder_twice: "an axis is named twice",
    bind_unknown: "unknown thread tag",
    bind_taken: "another axis of C is bound to it. Fuse the two axes",
    bind_again: "i is already unroll",
    bind_reduction_to_blocks: "a reduction loop binds to threadIdx only. Use rfactor",
    vectorize_reduction: "a reduction loop cannot run its iterations at once",
    annotate_twice: "i is already parallel",
    pragma_unknown: "unknown pragma",
    pragma_negative: "must not be negative",
    attach_output: "an output must be complete when the kernel ends",
    attach_to_stranger: "B.local does not use A.local",
    inline_output: "an output has to be stored",
    inline_reduction: "a reduction cannot be repeated at every reader",
    inline_scheduled: "already has scheduled loops",
    scope_unknown: "unknown scope",
    scope_of_output: "an output is global",
    cache_read_no_readers: "no readers given",
    cache_read_stranger: "A.shared does not read B",
    cache_read_partly_stranger: "A.local does not read B",
    size_not_whole: "size 1.5: not an integer. Use //",
    inline_host: "A.local_1 is computed at ax0, which goes away. Call compute_root on A.local_1",
    cache_write_host: "A.local is computed at i, which goes away",
    rfactor_host: "A.local is computed at i, which goes away",
    cache_write_late: "already has scheduled loops. Call cache_write first",
    rfactor_spatial: "not a reduction axis",
    rfactor_late: "a spatial loop is already scheduled",
    rfactor_place: "factor_axis=5 is outside 0..2",
    align_output: "the layout of an output belongs to its user",
    order_output: "the layout of an output belongs to its user",
    order_twice: "an axis is named twice",
    order_loop: "not a root axis of the stage",
    align_wrong: "needs factor >= 1 and 0 <= offset < factor",
    pack_computed: "only inputs can be packed. Use cache_read",
    pack_order: "2 block sizes and an order of",
    stage_unknown: "no such stage",
    tensor_unknown: "no stage of this schedule computes it",
}


@pytest.mark.parametrize("request_", REFUSALS, ids=lambda f: f.__name__)
def test_refused_at_the_call(request_: Callable[[Schedule, Tensor, Tensor, Tensor], None]) -> None:
    s, a, b, c = mm()
    with pytest.raises(ScheduleError, match=REFUSALS[request_]) as caught:
        request_(s, a, b, c)
    assert caught.value.place and caught.value.reason
    assert state(s) == state(Schedule.replay(s.dag, s.steps))  # the refused step left no trace


def state(s: Schedule) -> list[object]:
    """Everything steps change, as text."""
    return [
        (st.name, str(st.op.body) if isinstance(st.op, ComputeOp) else "", st.scope, st.attach_kind,
         str(st.attach), str(st.all_iter_vars), str(st.leaf_iter_vars), str(st.binds),
         str(st.annotations), str(st.pragmas), str(st.aligned),
         st.order)
        for st in s.stages
    ]  # fmt: skip


def test_unreadable_step() -> None:
    with pytest.raises(ScheduleError, match="not a step"):
        step_from_json(["tensorize", "C"])
    with pytest.raises(ScheduleError, match="not a step"):
        step_from_json(["split", "C"])
    with pytest.raises(ScheduleError, match="not a step"):
        step_from_json([["split"], "C", "i", 2, None])
    with pytest.raises(ScheduleError, match=r"factor must be Size \| None, not '2'"):
        step_from_json(["split", "C", "i", "2", None])
    with pytest.raises(ScheduleError, match=r"axes must be tuple\[str, ...\], not \(1, 'j'\)"):
        step_from_json(["reorder", "C", [1, "j"]])
    for huge in (10**18, -(10**18), 1e18, [10**18]):
        with pytest.raises(ScheduleError, match=r"factor must be Size \| None.*at most 2147483648"):
            step_from_json(["split", "C", "i", huge, None])
    deep: list[object] = []
    for _ in range(5000):
        deep = [deep]
    for odd in (deep, {"choice": deep}, {"choice": ["var", []]}, {"choice": ["floordiv", 1, 0]}):
        with pytest.raises(ScheduleError, match="not a step|must be"):
            step_from_json(["split", "C", "i", odd, None])


def test_a_schedule_without_end() -> None:
    s, _, _, c = mm()
    steps = [["compute_root", s[c].name]] * (MOST_STEPS + 1)
    with pytest.raises(ScheduleError, match="at most 2000"):
        Schedule.replay(s.dag, steps)


def test_local_buffer_on_its_own() -> None:
    s, _, _, c = mm()
    s.cache_write(c, "local")
    with pytest.raises(ScheduleError, match="ends with its kernel.*Attach it with compute_at"):
        LoopTree(s)


def test_global_buffer_inside_blocks() -> None:
    s, a, _, c = mm()
    copy = s.cache_read(a, "global", [c])
    s[c].bind(s[c].op.axis[0], "blockIdx.x")
    s[copy].compute_at(s[c], s[c].op.axis[0])
    with pytest.raises(ScheduleError, match="would be written by all of them"):
        LoopTree(s)


def test_attached_where_a_reader_is_outside() -> None:
    *_, conv = conv2d(1, 2, 5, 5, 4, 3, 3, pad=1)
    s = create_schedule([conv.op])
    copy = s.cache_write(conv, "global")
    s.find("pad_temp").compute_at(s[conv], s[conv].op.axis[1])
    with pytest.raises(ScheduleError, match="reads pad_temp outside that loop"):
        LoopTree(s)
    assert s[copy].attach_kind == "root"


def test_spatial_loop_inside_a_reduction_over_threads() -> None:
    s, _, _, c = mm()
    i, j = s[c].op.axis
    k = s[c].op.reduce_axis[0]
    s[c].reorder(i, k, j)
    s[c].bind(k, "threadIdx.x")
    with pytest.raises(LoweringError, match="spatial loops first"):
        lower_schedule(s, Target("cuda"))


@pytest.mark.parametrize(
    ("extents", "reason"),
    [
        ({"threadIdx.x": 2048}, "threads"),
        ({"threadIdx.z": 128}, "block_dim"),
        ({"blockIdx.y": 70000}, "grid_dim"),
    ],
)
def test_limits_of_blocks_and_grids(extents: dict[str, int], reason: str) -> None:
    ((tag, size),) = extents.items()
    a = te.placeholder((size,), name="A")
    c = te.compute((size,), lambda i: a[i] + 1.0, name="C")
    s = create_schedule([c.op])
    s[c].bind(s[c].op.axis[0], tag)
    tree = LoopTree(s)
    with pytest.raises(LegalityError, match=reason):
        legality.check(Resources(tree.bounds(), Target("cuda")), "C")


def test_limit_of_shared_memory() -> None:
    a, _, c = matmul(64, 64, 4096)
    s = create_schedule([c.op])
    copy = s.cache_read(a, "shared", [c])
    s[c].bind(s[c].op.axis[0], "threadIdx.x")
    s[copy].compute_at(s[c], s[c].op.axis[0])
    tree = LoopTree(s)
    with pytest.raises(LegalityError, match=r"more shared memory.*shared_bytes=1048576"):
        legality.check(Resources(tree.bounds(), Target("cuda")), "C")


def test_too_many_registers_is_discouraged_not_refused() -> None:
    _, _, c = matmul(64, 64, 8)
    s = create_schedule([c.op])
    local = s.cache_write(c, "local")
    s[c].bind(s[c].op.axis[0], "threadIdx.x")
    s[local].compute_at(s[c], s[c].op.axis[0])
    tree = LoopTree(s)
    small = Target("cuda -registers-per-thread=64")
    verdict = legality.judge(Resources(tree.bounds(), small))
    assert verdict.reasons() == []
    assert bool(verdict.discouraged["registers"])
    assert not verdict.sensible(1)[0]


def test_vector_wider_than_an_access() -> None:
    a = te.placeholder((64,), name="A")
    c = te.compute((64,), lambda i: a[i] + 1.0, name="C")
    for width, discouraged, refused in ((4, False, []), (8, True, []), (1024, True, ["vector"])):
        s = create_schedule([c.op])
        outer, inner = s[c].split(s[c].op.axis[0], factor=width)
        s[c].vectorize(inner)
        s[c].bind(outer, "threadIdx.x")
        verdict = legality.judge(Resources(LoopTree(s).bounds(), Target("cuda")))
        assert verdict.reasons() == refused
        assert bool(verdict.discouraged["vector"]) == discouraged


def test_vector_wider_than_the_registers_of_a_cpu() -> None:
    for factor, refused in ((256, []), (512, ["vector"])):
        a = te.placeholder((1 << 20,), name="A")
        c = te.compute((1 << 20,), lambda i, a=a: a[i] + 1.0, name="C")
        s = create_schedule([c.op])
        s[c].vectorize(s[c].split(s[c].op.axis[0], factor=factor)[1])
        resources = Resources(LoopTree(s).bounds(), Target("llvm"))
        assert legality.judge(resources).reasons() == refused


def test_a_register_tile_far_beyond_the_registers() -> None:
    for rows, refused in ((8, []), (64, ["spills"])):
        _, _, c = matmul(64, 64, 64)
        s = create_schedule([c.op])
        tile = s.cache_write(c, "local")
        outer, _ = s[c].split(s[c].op.axis[0], factor=rows)
        s[tile].compute_at(s[c], outer)
        i, j = s[tile].op.axis
        s[tile].reorder(s[tile].op.reduce_axis[0], i, j)
        inner = s[tile].split(j, factor=16)[1]
        s[tile].vectorize(inner)
        resources = Resources(LoopTree(s).bounds(), Target("llvm"))
        assert legality.judge(resources).reasons() == refused


def test_loops_that_run_for_nothing() -> None:
    for target in ("llvm", "cuda"):
        for factor, refused in ((1 << 20, []), (1 << 30, ["work"])):
            s, _, _, c = mm()
            s[c].split(s[c].op.axis[0], factor=factor)
            resources = Resources(LoopTree(s).bounds(), Target(target))
            assert legality.judge(resources).reasons() == refused


def test_scratch_larger_than_the_stack() -> None:
    tensors = softmax(4, 100_000)
    s = Schedule(ComputeDAG(tensors))
    out, e = s.find("out"), s.find("e")
    e.compute_root()
    s.find("total").compute_at(out, out.op.axis[0])
    copy = s.cache_read(e.tensor, "local", [s.find("total").tensor])
    s[copy].compute_at(s.find("total"), s.find("total").op.axis[0])
    tree = LoopTree(s)
    assert legality.judge(Resources(tree.bounds(), Target("llvm"))).reasons() == ["stack"]


def test_straight_line_code_that_takes_long_to_compile() -> None:
    _, _, c = matmul(64, 64, 64)
    s = create_schedule([c.op])
    for axis in (*s[c].op.axis, *s[c].op.reduce_axis):
        s[c].unroll(axis)
    tree = LoopTree(s)
    assert legality.judge(Resources(tree.bounds(), Target("llvm"))).reasons() == ["unrolled_body"]


def test_loops_that_a_target_does_not_have() -> None:
    s, _, _, c = mm()
    s[c].parallel(s[c].op.axis[0])
    with pytest.raises(LoweringError, match=r"parallel\(C.i\): cuda kernels.*Bind the loop"):
        lower_schedule(s, Target("cuda"))
    s, _, _, c = mm()
    s[c].bind(s[c].op.axis[0], "threadIdx.x")
    with pytest.raises(LoweringError, match=r"bind\(C.i, threadIdx.x\): llvm kernels.*Use paral"):
        lower_schedule(s, Target("llvm"))


def test_arguments_of_lower() -> None:
    s, a, _, c = mm()
    with pytest.raises(LoweringError, match="B: it is an input and not among the arguments"):
        lower_schedule(s, Target("llvm"), "main", [a, c])
    with pytest.raises(LoweringError, match="A: it is listed twice"):
        lower_schedule(s, Target("llvm"), "main", [a, a, c])
    other = te.compute((4,), lambda i: a[i, 0], name="other")
    with pytest.raises(LoweringError, match="other: this schedule does not compute it"):
        lower_schedule(s, Target("llvm"), "main", [*s.dag.args, other])


@pytest.mark.parametrize(
    "step", [lambda s: s.pipeline(None), lambda s: s.pipeline(2, None), lambda s: s.swizzle(None),
             lambda s: s.storage_align(s.op.axis[0], None, 0)],
)  # fmt: skip
def test_a_size_that_is_none(step: Callable[..., None]) -> None:
    """Only of the two sizes of a split one may be left out."""
    s, a, _, c = mm()
    copy = s.cache_read(a, "shared", [c])
    with pytest.raises(ScheduleError, match="size None: not an integer"):
        step(s[copy])
    assert not s[copy].is_copied


def by_atoms() -> tuple[Schedule, list[Tensor], list[Tensor]]:
    """A product of halves by matrix instructions: tiles in shared memory, and what lanes hold."""
    a, b = (te.placeholder((16, 32), "float16", name=name) for name in "AB")
    k = te.reduce_axis((0, 32), "k")
    c = te.compute((16, 16), lambda i, j: te.sum(a[i, k] * b[j, k], axis=k, acc_dtype="float32"))
    s = create_schedule(c.op)
    sums = s.cache_write(c, "fragment")
    lane, *_ = lanes(s[c], *s[c].op.axis, "m16n8k16.float16")
    s[sums].compute_at(s[c], lane)
    (i, j), (r,) = s[sums].op.axis, s[sums].op.reduce_axis
    (io, i), (jo, j) = s[sums].split(i, factor=16), s[sums].split(j, factor=8)
    ro, r = s[sums].split(r, factor=16)
    s[sums].reorder(io, jo, ro, i, j, r)
    tiles = [s.cache_read(t, "shared", [sums]) for t in (a, b)]
    held = [s.cache_read(t, "fragment", [sums]) for t in tiles]
    for tensor in (*tiles, *held):
        s[tensor].compute_at(s[sums], ro)
    s[sums].tensorize(i, "m16n8k16.float16")
    return s, tiles, held


@pytest.mark.parametrize("loop", [0, 1])
def test_nothing_is_computed_inside_the_loops_of_an_operand(loop: int) -> None:
    """Lanes fetch what an atom takes at once: one step of a loop would not be enough."""
    s, (tile, _), (held, _) = by_atoms()
    s[tile].compute_at(s[held], held.op.axis[loop])
    with pytest.raises(ScheduleError, match="not fetched loop by loop. Compute A.shared where"):
        lower_schedule(s, Target("cuda"))


def test_what_a_device_lacks_is_told_before_what_is_too_large() -> None:
    """`build` and `lower` say the same of an instruction, and what to do instead."""
    s, _, _ = by_atoms()
    for build in (lower_schedule, generate_source):
        build(s, Target("cuda -arch=sm_80"))
        with pytest.raises(LoweringError, match=r"has none: .* build for cuda -arch=sm_80"):
            build(s, Target("opencl"))
        with pytest.raises(LoweringError, match=r"It has m1n1k4.int8, .*; or leave tensorize out"):
            build(s, Target("cuda -arch=sm_75"))
    with pytest.raises(LegalityError, match=r"\(atom\).* split m, n and k by multiples"):
        legality.check(Resources(LoopTree(s).bounds(), Target("opencl")), "c")
