"""Steps of Ansor's records: replayed, they are the schedule that was meant, and compute the right
thing; what has no meaning here is refused by name."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from schedule.ansor_logs import (
    MATMUL,
    SEED001,
    SMALL_TILES,
    Steps,
    conv2d_gpu,
    conv2d_layer,
    matmul,
)
from schedule.computations import softmax
from tilewright import te
from tilewright.base.errors import ScheduleError
from tilewright.driver.build import build
from tilewright.ir.fast_interpreter import run_fast
from tilewright.lowering.pipeline import lower_schedule
from tilewright.runtime.device import device
from tilewright.runtime.ndarray import array, empty
from tilewright.schedule.schedule import Schedule, create_schedule
from tilewright.schedule.steps.loops import Annotate
from tilewright.schedule.tree.legality import judge
from tilewright.schedule.tree.loop_tree import LoopTree
from tilewright.schedule.tree.resources import Resources
from tilewright.targets.target import Target
from tilewright.te.dag import ComputeDAG
from tilewright.te.evaluate import evaluate_with_tolerance, random_inputs
from tilewright.te.tensor import Tensor
from tilewright_tvm.logs.ansor_steps import ansor_order, replay_ansor

GPU = Target("cuda -arch=sm_90")


def row_sums(n: int, m: int, k: int) -> list[Tensor]:
    a = te.placeholder((n, m, k), name="A")
    x, y = te.reduce_axis((0, m), name="x"), te.reduce_axis((0, k), name="y")
    return [a, te.compute((n,), lambda i: te.sum(a[i, x, y], axis=[x, y]), name="B")]


def scaled(n: int, m: int) -> list[Tensor]:
    a = te.placeholder((n, m), name="A")
    return [a, te.compute((n, m), lambda i, j: te.exp(a[i, j]) * 0.5, name="B")]


# rfactor on the inner part, as Ansor does for vectors, and on the outer one, for threads
RFACTOR_INNER: Steps = [
    ["FU", 1, [1, 2]], ["SP", 1, 1, 60, [8], 1], ["RF", 1, 2, 1], ["RE", 1, [0, 2, 1]],
    ["CA", 1, 2, 0], ["AN", 2, 0, 3], ["AN", 1, 2, 2], ["PR", 1, 0, "auto_unroll_max_step$16"],
]  # fmt: skip
RFACTOR_OUTER: Steps = [
    ["FU", 1, [1, 2]], ["SP", 1, 1, 60, [12], 1], ["RF", 1, 1, 1], ["FU", 1, [0, 1]],
    ["AN", 1, 0, 3], ["PR", 2, 0, "auto_unroll_max_step$16"],
]  # fmt: skip
ELEMENTWISE: Steps = [["FU", 1, [0, 1]], ["SP", 1, 0, 0, [8], 1], ["AN", 1, 0, 3], ["AN", 1, 1, 2]]
PARTS: Steps = [["SP", 2, 0, 24, [2, 3], 0], ["RE", 2, [0, 3, 1, 4, 2]], ["AN", 2, 0, 3]]
# all reductions of softmax across 16 threads, the sums beside the division that reads them
SOFTMAX: Steps = [
    ["SP", 3, 1, 50, [16], 1], ["AN", 3, 2, 6], ["SP", 4, 1, 50, [16], 1], ["AN", 4, 2, 6],
    ["CA", 3, 4, 0], ["CI", 2], ["SP", 1, 1, 50, [16], 1], ["AN", 1, 2, 6], ["CA", 1, 4, 0],
    ["AN", 4, 0, 5],
]  # fmt: skip
ALIGNED: Steps = [
    ["CHR", 0, "shared", [2]], ["CHR", 2, "shared", [3]], ["SP", 4, 0, 24, [4, 2], 1],
    ["SP", 4, 3, 20, [5, 2], 1], ["SP", 4, 6, 16, [4], 1], ["RE", 4, [0, 3, 1, 4, 6, 7, 2, 5]],
    ["CA", 1, 4, 4], ["CA", 3, 4, 4], ["SA", 1, 0, 8, 1], ["FU", 1, [0, 1]],
    ["FFSP", 1, 0, [2, 3], 0, 1], ["AN", 1, 1, 6], ["FU", 3, [0, 1]],
    ["FFSP", 3, 0, [2, 3], 0, 1], ["AN", 3, 1, 6], ["FU", 4, [0, 1]], ["AN", 4, 0, 5],
    ["FU", 4, [1, 2]], ["AN", 4, 1, 6],
]  # fmt: skip

CPU_CASES: dict[str, tuple[list[Tensor], Steps]] = {
    "matmul": (matmul(32, 48, 24), MATMUL),
    "rfactor inner": (row_sums(7, 12, 5), RFACTOR_INNER),
    "rfactor outer": (row_sums(7, 12, 5), RFACTOR_OUTER),
    "elementwise": (scaled(6, 20), ELEMENTWISE),
    "parts": (matmul(24, 20, 16), PARTS),
}
GPU_CASES: dict[str, tuple[list[Tensor], Steps]] = {
    "conv2d": (
        conv2d_layer(1, 7, 7, 32, 8, 3, 3, (1, 1), (1, 1)), conv2d_gpu(8, 32, SMALL_TILES, (2, 9))
    ),
    "softmax": (softmax(5, 50), SOFTMAX),
    "aligned": (matmul(24, 20, 16), ALIGNED),
}  # fmt: skip


def replayed(tensors: list[Tensor], steps: Steps, target: Target) -> Schedule:
    """Legal, and the same from its own steps."""
    dag = ComputeDAG(tensors)
    s = replay_ansor(dag, json.loads(json.dumps(steps)), target)
    tree = LoopTree(s)
    assert judge(Resources(tree.bounds(), target)).reasons() == []
    again = Schedule.replay(ComputeDAG.from_json(dag.to_json()), s.to_json())
    assert str(lower_schedule(again, target)) == str(lower_schedule(s, target))
    return s


def assert_right(dag: ComputeDAG, outputs: list[np.ndarray], inputs: list[np.ndarray]) -> None:
    for out, expected, bound in zip(outputs, *evaluate_with_tolerance(dag, inputs), strict=True):
        assert (np.abs(out.reshape(expected.shape) - expected) <= bound).all()


def built_and_run(s: Schedule, kind: str) -> None:
    dag, dev = s.dag, device(kind)
    inputs = random_inputs(dag, 3)
    values = iter(inputs)
    outputs = set(dag.outputs)
    arrays = [
        empty(t.shape, t.dtype, dev) if t in outputs else array(next(values), dev) for t in dag.args
    ]
    build(s, list(dag.args), kind)(*arrays)
    assert_right(dag, [a.numpy() for a, t in zip(arrays, dag.args, strict=True) if t in outputs],
                 inputs)  # fmt: skip


@pytest.mark.parametrize("name", CPU_CASES)
def test_a_record_for_cpus_becomes_a_right_kernel(name: str) -> None:
    built_and_run(replayed(*CPU_CASES[name], Target("llvm")), "llvm")


@pytest.mark.slow
@pytest.mark.parametrize("name", GPU_CASES)
def test_a_record_for_gpus_means_the_computation(name: str) -> None:
    """The interpreter checks bounds, races and barriers, too."""
    s = replayed(*GPU_CASES[name], GPU)
    program = lower_schedule(s, GPU)
    inputs = random_inputs(s.dag, 3)
    values = iter(inputs)
    arrays = [
        next(values) if role == "input" else np.full(b.shape, np.nan, b.dtype)
        for b, role in zip(program.args, program.roles, strict=True)
    ]
    run_fast(program, arrays)
    outputs = [a for a, role in zip(arrays, program.roles, strict=True) if role == "output"]
    assert_right(s.dag, outputs, inputs)


@pytest.mark.slow
@pytest.mark.opencl
@pytest.mark.parametrize("name", GPU_CASES)
def test_a_record_for_gpus_becomes_a_right_kernel(name: str) -> None:
    if not device("opencl").exist:
        pytest.skip("there is no OpenCL device")
    built_and_run(replayed(*GPU_CASES[name], Target("opencl")), "opencl")


def test_follow_splits_merge_what_their_source_has_inside() -> None:
    s = replay_ansor(ComputeDAG(matmul(32, 48, 24)), MATMUL)
    extent = LoopTree(s).bounds().extent
    copy, local = s.find("C"), s.find("C.local")
    assert [extent[ax] for ax in copy.leaf_iter_vars] == [2 * 2 * 2 * 3, 8, 8]
    assert [extent[ax] for ax in local.leaf_iter_vars] == [1, 1, 1, 1, 6, 4, 1, 4, 2, 8]


def test_vectors_that_a_gpu_cannot_access_become_unrolled_loops() -> None:
    dag = ComputeDAG(conv2d_layer(1, 7, 7, 512, 512, 3, 3, (1, 1), (1, 1)))

    def annotations(target: Target | None) -> list[str]:
        s = replay_ansor(dag, SEED001, target)
        return [step.how for step in s.steps if isinstance(step, Annotate)]

    assert annotations(None) == ["vectorize", "vectorize"]
    assert annotations(GPU) == ["vectorize", "unroll"]  # 2 elements, 9 elements


# -- schedules that Ansor printed ------------------------------------------------------------------


def printed(text: str, tensors: list[Tensor], **more: Tensor) -> Schedule:
    """Run the text on our `te`."""
    dag = ComputeDAG(tensors)
    names = {t.op.name: t for op in dag.ops for t in [op.output_tensor]}
    s = create_schedule([tensors[-1].op])
    exec(text, {"te": te}, {"s": s, **names, **more})
    return s


def seed001_text() -> str:
    """As the tutorial shows it.  Two of its stages are called `compute`, so that the second is
    called relu here: no Python namespace could hold both."""
    lines = []
    for line in (Path(__file__).parent / "seed001_schedule.txt").read_text().splitlines():
        line = line.replace("s[compute].compute_at(s[compute], compute_i3_o_i)",
                            "s[compute].compute_at(s[relu], compute_i3_o_i)")  # fmt: skip
        if re.search(r"\bcompute_i\d", line) and "compute_at" not in line:
            line = re.sub(r"\bcompute\b", "relu", line)
        lines.append(line)
    return "\n".join(lines)


def seed001_schedule(text: str) -> Schedule:
    tensors = conv2d_layer(1, 7, 7, 512, 512, 3, 3, (1, 1), (1, 1))
    relu = tensors[-1]
    conv = relu.op.input_tensors[0].op.input_tensors[0]
    return printed(text, tensors, compute=conv, relu=relu)


# The page of the tutorial lost the lines without a blank in them.
LOST = ["s[T_add].compute_inline()", "s[pad_temp].compute_inline()"]


def test_the_schedule_that_the_tutorial_prints_runs() -> None:
    text = seed001_text()
    assert len(seed001_schedule(text).steps) == 57  # a line each, less six that name axes
    s = seed001_schedule("\n".join([text, *LOST]))
    tree = LoopTree(s)
    assert judge(Resources(tree.bounds(), GPU)).reasons() == []
    lower_schedule(s, GPU)


def test_the_printed_schedule_is_what_its_record_builds() -> None:
    vectors = [
        f"s[{c}].vectorize({c}_ax0_ax1_fused_ax2_fused_ax3_fused_i)"
        for c in ("kernel_shared", "pad_temp_shared")
    ]
    s = seed001_schedule("\n".join([seed001_text(), *LOST, *vectors]))
    r = replay_ansor(s.dag, SEED001)
    assert sorted(map(str, s.to_json())) == sorted(map(str, r.to_json()))
    assert str(lower_schedule(s, GPU)) == str(lower_schedule(r, GPU))


@pytest.mark.opencl
@pytest.mark.slow
def test_the_printed_schedule_computes_the_right_thing() -> None:
    if not device("opencl").exist:
        pytest.skip("there is no OpenCL device")
    built_and_run(seed001_schedule("\n".join([seed001_text(), *LOST])), "opencl")


# In Ansor's spelling: one-element lists and tuples, axes of new stages, True.
PRINTED_MATMUL = """\
C_i, C_j, C_k = tuple(C.op.axis) + tuple(C.op.reduce_axis)
C_local, = s.cache_write([C], "local")
C_local_i_c, C_local_j_c, C_local_k = tuple(C_local.op.axis) + tuple(C_local.op.reduce_axis)
C_local_i_c_o_i, C_local_i_c_i = s[C_local].split(C_local_i_c, factor=2)
C_local_i_c_o_o_i, C_local_i_c_o_i = s[C_local].split(C_local_i_c_o_i, factor=4)
C_local_i_c_o_o_o, C_local_i_c_o_o_i = s[C_local].split(C_local_i_c_o_o_i, factor=2)
C_local_j_c_o_i, C_local_j_c_i = s[C_local].split(C_local_j_c, factor=8)
C_local_j_c_o_o_i, C_local_j_c_o_i = s[C_local].split(C_local_j_c_o_i, factor=1)
C_local_j_c_o_o_o, C_local_j_c_o_o_i = s[C_local].split(C_local_j_c_o_o_i, factor=3)
C_local_k_o, C_local_k_i = s[C_local].split(C_local_k, factor=4)
s[C_local].reorder(C_local_i_c_o_o_o, C_local_j_c_o_o_o, C_local_i_c_o_o_i, C_local_j_c_o_o_i, \
C_local_k_o, C_local_i_c_o_i, C_local_j_c_o_i, C_local_k_i, C_local_i_c_i, C_local_j_c_i)
C_i_o_i, C_i_i = s[C].split(C_i, factor=8)
C_i_o_o, C_i_o_i = s[C].split(C_i_o_i, factor=2)
C_j_o_i, C_j_i = s[C].split(C_j, factor=8)
C_j_o_o, C_j_o_i = s[C].split(C_j_o_i, factor=3)
s[C].reorder(C_i_o_o, C_j_o_o, C_i_o_i, C_j_o_i, C_i_i, C_j_i)
s[C_local].compute_at(s[C], C_j_o_i)
C_i_o_o_j_o_o_fused_i_o_i_fused_j_o_i_fused = s[C].fuse(C_i_o_o, C_j_o_o, C_i_o_i, C_j_o_i)
s[C].parallel(C_i_o_o_j_o_o_fused_i_o_i_fused_j_o_i_fused)
s[C_local].pragma(C_local_i_c_o_o_o, "auto_unroll_max_step", 64)
s[C_local].pragma(C_local_i_c_o_o_o, "unroll_explicit", True)
s[C_local].vectorize(C_local_j_c_i)
s[C].vectorize(C_j_i)
"""
PRINTED_RFACTOR = """\
B_i, B_x, B_y = tuple(B.op.axis) + tuple(B.op.reduce_axis)
B_x_y_fused = s[B].fuse(B_x, B_y)
B_x_y_fused_o, B_x_y_fused_i = s[B].split(B_x_y_fused, factor=8)
B_rf = s.rfactor(B, B_x_y_fused_i, 1)
B_rf_i, B_rf_x_y_fused_i, B_rf_x_y_fused_o = tuple(B_rf.op.axis) + tuple(B_rf.op.reduce_axis)
B_i, B_x_y_fused_i_v = tuple(s[B].op.axis) + tuple(s[B].op.reduce_axis)
s[B_rf].reorder(B_rf_i, B_rf_x_y_fused_o, B_rf_x_y_fused_i)
s[B_rf].compute_at(s[B], B_i)
s[B].parallel(B_i)
s[B_rf].vectorize(B_rf_x_y_fused_i)
s[B_rf].pragma(B_rf_i, "auto_unroll_max_step", 16)
s[B_rf].pragma(B_rf_i, "unroll_explicit", True)
"""


@pytest.mark.parametrize(
    ("text", "case"), [(PRINTED_MATMUL, "matmul"), (PRINTED_RFACTOR, "rfactor inner")]
)
def test_text_in_ansors_spelling_builds_the_kernel_of_its_record(text: str, case: str) -> None:
    tensors, steps = CPU_CASES[case]
    s, r = printed(text, tensors), replay_ansor(ComputeDAG(tensors), steps)
    target = Target("llvm")
    assert str(lower_schedule(s, target)) == str(lower_schedule(r, target))


@pytest.mark.parametrize("change", ["split", "fuse"])
def test_what_is_computed_at_a_loop_follows_it(change: str) -> None:
    """As in TVM: into the inner part of a split, to the fused loop from its innermost part."""

    def program(attach_first: bool) -> str:
        a, _, c = matmul(6, 4, 8)
        s = create_schedule(c.op)
        copy = s.cache_read(a, "local", [c])
        i, j = s[c].op.axis
        if attach_first:
            s[copy].compute_at(s[c], j)
        inner = s[c].split(j, factor=3)[1] if change == "split" else s[c].fuse(i, j)
        if not attach_first:
            s[copy].compute_at(s[c], inner)
        return str(lower_schedule(s, Target("llvm")))

    assert program(True) == program(False)


# -- the order of stages ---------------------------------------------------------------------------


def names(tensors: list[Tensor]) -> list[str]:
    return [op.name for op in ansor_order(ComputeDAG(tensors))]


def test_stages_are_numbered_as_ansor_numbers_them() -> None:
    layer = conv2d_layer(1, 7, 7, 4, 4, 3, 3, (1, 1), (1, 1))
    assert names(layer)[:6] == ["data", "pad_temp", "kernel", "compute", "bias", "T_add"]
    assert names(softmax(3, 4)) == ["A", "top", "e", "total", "out"]
    a, b = te.placeholder((4,), name="A"), te.placeholder((4,), name="B")
    x = te.compute((4,), lambda i: a[i] + b[i], name="X")
    y = te.compute((4,), lambda i: a[i] * 2.0, name="Y")
    z = te.compute((4,), lambda i: x[i] * y[i], name="Z")
    # depth-first from Z, last inputs first: Z Y A X B; ready operations in the reverse order
    assert names([a, b, z]) == ["B", "A", "X", "Y", "Z"]
    assert [st.name for st in create_schedule(z.op).stages] != names([a, b, z])


# -- what is refused -------------------------------------------------------------------------------

REFUSED: dict[str, tuple[Any, str]] = {
    "unknown code": (["CP", 2], "unknown step code 'CP'"),
    "no list": ("CI", "unknown step code None"),
    "short": (["FU", 2], "malformed FU step"),
    "types": (["RE", 2, "012"], "malformed RE step"),
    "stage": (["CI", 9], "no stage 9. There are 0:A 1:B 2:C"),
    "iterator": (["AN", 2, 3, 1], "no iterator 3 in a stage of 3. C has i j k"),
    "tensorize": (["AN", 2, 0, 11], "tensorize has no meaning"),
    "annotation": (["AN", 2, 0, 12], "unknown annotation 12"),
    "open": (["SP", 2, 0, 32, [2, None], 1], "a length is open"),
    "extent": (["SP", 2, 0, 64, [2], 1], "it splits a loop of 64, C.i has 32"),
    "no split": (["FSP", 2, 0, 0, 1], "step 0 is no split. Splits so far: none"),
    "order": (["RE", 2, [0, 0, 1]], "no order of the 3 iterators of C"),
    "pragma": (["PR", 2, 0, "debug_skip_region"], "pragma 'debug_skip_region'"),
    "scope": (["CHR", 0, "texture", [2]], "unknown scope"),
    "input": (["CI", 0], "an input has no loops"),
    "reduction": (["AN", 2, 2, 3], "a reduction loop cannot run its iterations at once"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_step_without_meaning_is_named(name: str) -> None:
    step, reason = REFUSED[name]
    with pytest.raises(ScheduleError, match=re.escape(reason)) as refused:
        replay_ansor(ComputeDAG(matmul(32, 48, 24)), [["AN", 2, 0, 0], step])
    assert refused.value.place.startswith(f"Ansor step 1 {json.dumps(step)[:4]}")


def test_a_level_that_a_split_lacks_is_refused() -> None:
    dag = ComputeDAG(matmul(32, 48, 24))
    split: list[Any] = ["SP", 2, 0, 32, [2, 4], 1]
    for step in (["FFSP", 2, 3, [0], 2, 1], ["FSP", 2, 3, 0, 4], ["FSP", 2, 3, 0, 0]):
        with pytest.raises(ScheduleError, match="Ansor step 1"):
            replay_ansor(dag, [split, step])
