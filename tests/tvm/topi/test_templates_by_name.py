"""Templates by TVM's names: spaces knob for knob, right kernels, what they take and refuse.

GPU templates run on an OpenCL device, or on one of the kind TILEWRIGHT_DEVICE_KIND.
"""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from tilewright import te, topi
from tilewright.base.errors import SpaceError, TilewrightError
from tilewright.driver.build import build_artifact
from tilewright.runtime.device import cpu, device
from tilewright.runtime.trial import trial
from tilewright.schedule.sketch import Sketch
from tilewright.schedule.task import Task, task_of_dag
from tilewright.schedule.template import anchor_templates, sketch_of_anchor
from tilewright.schedule.tree.loop_tree import LoopTree
from tilewright.schedule.workload import plain
from tilewright.targets.target import Target
from tilewright.te.dag import ComputeDAG
from tilewright.te.evaluate import evaluate_with_tolerance, random_inputs
from tilewright.te.tensor import Tensor
from tilewright_tvm import autotvm

KIND = os.environ.get("TILEWRIGHT_DEVICE_KIND", "opencl")
GPU, CPU = Target(KIND), Target("llvm -num-cores=2 -vector-bytes=32")


def T(*shape: int) -> tuple[str, tuple[int, ...], str]:
    return "TENSOR", shape, "float32"


@dataclass(frozen=True)
class Case:
    """args: small ones, of a kernel that is run; lengths: of the knobs for them, in order"""

    args: tuple[Any, ...]
    lengths: dict[str, int]


CONV = (T(1, 6, 6, 8), T(8, 6, 3, 3), (1, 1), (1, 1, 1, 1), (1, 1), "float32")
NHWC = (T(1, 6, 8, 6), T(3, 3, 6, 8), (1, 1), (1, 1, 1, 1), (1, 1), "float32")
DEPTHWISE = (T(1, 8, 6, 8), T(8, 1, 3, 3), (1, 1), (1, 1, 1, 1), (1, 1), "float32")
DEPTHWISE_NHWC = (T(1, 6, 8, 8), T(3, 3, 8, 1), (1, 1), (1, 1, 1, 1), (1, 1), "float32")
DENSE = (T(8, 12), T(16, 12), None, "float32")
BATCH = (T(2, 8, 12), T(2, 6, 12), (2, 8, 6), "float32", False, True)
UNROLL = {"auto_unroll_max_step": 3, "unroll_explicit": 2}
F8, Y6 = {"tile_f": 20, "tile_y": 16, "tile_x": 20}, {"tile_rc": 4, "tile_ry": 2, "tile_rx": 2}
SPATIAL3 = {"tile_co": 10, "tile_oh": 9, "tile_ow": 10}
SPATIAL2 = {"tile_co": 4, "tile_oh": 4, "tile_ow": 4}
MARKS = {"ann_reduce": 4, "ann_spatial": 20}
CASES = {
    "conv1d_ncw.cuda": Case(
        (T(2, 6, 8), T(8, 6, 3), 1, 1, 1, "float32"),
        {"tile_n": 4, "tile_f": 20, "tile_x": 20, "tile_rc": 9, **UNROLL},
    ),
    "conv1d_nwc.cuda": Case(  # tile_rc is of the window: it comes first in this layout
        (T(2, 8, 6), T(3, 6, 8), 1, 1, 1, "float32"),
        {"tile_n": 4, "tile_x": 20, "tile_f": 20, "tile_rc": 3, **UNROLL},
    ),
    "group_conv1d_ncw.cuda": Case(
        (T(2, 6, 8), T(8, 3, 3), 1, 1, 1, 2, "float32"),
        {"tile_n": 4, "tile_f": 20, "tile_x": 20, "tile_rc": 3, **UNROLL},
    ),
    "group_conv1d_nwc.cuda": Case(
        (T(2, 8, 6), T(3, 3, 8), 1, 1, 1, 2, "float32"),
        {"tile_n": 4, "tile_x": 20, "tile_f": 20, "tile_rc": 3, **UNROLL},
    ),
    "conv1d_transpose_nchw.cuda": Case(
        (T(1, 6, 4), T(6, 8, 4), (2,), 1, "float32", (0,)),
        {"tile_n": 1, "tile_f": 20, "tile_x": 20, "tile_rc": 9, **UNROLL},
    ),
    "conv2d_nchw.cuda": Case(CONV, F8 | Y6 | UNROLL),
    "conv3d_ncdhw.cuda": Case(
        (T(1, 4, 3, 4, 4), T(8, 4, 2, 3, 3), 1, (1, 1, 1), 1, "float32"),
        {"tile_f": 20, "tile_d": 10, "tile_y": 10, "tile_x": 10, "tile_rc": 3, "tile_rd": 2,
         "tile_ry": 2, "tile_rx": 2, **UNROLL},
    ),
    "conv3d_ndhwc.cuda": Case(  # tile_rc, .. are of the window, tile_rx is of the channels
        (T(1, 3, 4, 6, 4), T(2, 3, 1, 4, 8), 1, (1, 1, 0), 1, 1, "float32"),
        {"tile_f": 20, "tile_d": 10, "tile_y": 10, "tile_x": 16, "tile_rc": 2, "tile_rd": 1,
         "tile_ry": 1, "tile_rx": 3, **UNROLL},
    ),
    "conv3d_transpose_ncdhw.cuda": Case(
        (T(1, 4, 2, 3, 3), T(4, 8, 2, 3, 4), (1, 2, 2), (0, 1, 1), "float32", (0, 0, 0)),
        {"tile_f": 20, "tile_d": 4, "tile_y": 4, "tile_x": 16, "tile_rc": 3, "tile_rd": 2,
         "tile_ry": 2, "tile_rx": 3, **UNROLL},
    ),
    "depthwise_conv2d_nchw.cuda": Case(DEPTHWISE, F8 | UNROLL),
    "group_conv2d_nchw.cuda": Case(
        (T(2, 8, 6, 8), T(8, 4, 3, 3), (1, 1), (1, 1, 1, 1), (1, 1), 2, "float32"),
        {"tile_n": 4, "tile_g": 2, **F8, "tile_f": 10, **Y6, "tile_rc": 3, **UNROLL, "fuse_yx": 2},
    ),
    "conv2d_transpose_nchw.cuda": Case(
        (T(1, 6, 3, 4), T(6, 8, 4, 4), (2, 2), (1, 1, 1, 1), "float32", (0, 0)),
        {"tile_n": 1, **F8, "tile_rc": 9, **UNROLL, "fuse_yx": 2},
    ),
    "conv2d_nchw_winograd.cuda": Case(
        (T(1, 6, 7, 6), T(8, 6, 3, 3), *CONV[2:]),
        {"tile_b": 1, "tile_y": 20, "tile_x": 40, "tile_rc": 4, **UNROLL},
    ),
    "conv2d_nchw_winograd_without_weight_transform.cuda": Case(
        (T(1, 6, 8, 8), T(6, 6, 6, 8), *CONV[2:]),
        {"tile_b": 1, "tile_y": 20, "tile_x": 10, "tile_rc": 4, **UNROLL},
    ),
    "conv2d_hwcn.cuda": Case(
        (T(4, 5, 6, 16), T(3, 3, 6, 8), 1, 1, 1, "float32"), {"tile_fi": 20, "tile_ni": 34}
    ),
    "conv2d_nhwc.gpu": Case(
        (T(8, 3, 4, 16), T(3, 3, 16, 16), 1, 1, 1, "float32"),
        {"tile_n": 3, "tile_c": 3, "num_thread_n": 3, "num_thread_c": 3, "vthread_n": 2,
         "vthread_c": 2, "step": 4, "vectorize": 5},
    ),
    "dense_small_batch.gpu": Case(DENSE, {"tile_k": 6}),
    "matmul_default.gpu": Case(
        (T(12, 8), T(12, 16), T(16), "float32", True, False), {"tile_k": 6}
    ),
    "dense_large_batch.gpu": Case(
        (T(8, 12), T(16, 12), None, "float32"), {"tile_x": 20, "tile_y": 35, "tile_k": 18}
    ),
    "batch_matmul.cuda": Case(
        BATCH, {"tile_y": 10, "tile_x": 9, "tile_k": 6, **UNROLL, "auto_unroll_max_step": 4}
    ),
    "conv2d_nchw_winograd.mali": Case(
        (T(1, 6, 8, 8), T(8, 6, 3, 3), (1, 1), (1, 1, 1, 1), (1, 1), "float32"),
        {"tile_bna": 4, "tile_bnb": 5, "tile_t1": 4, "tile_t2": 4, "c_unroll": 4, "yt": 6},
    ),
    "conv2d_nchw_spatial_pack.mali": Case(CONV, {**SPATIAL3, "reorder_0": 2, **MARKS}),
    "conv2d_nhwc_spatial_pack.mali": Case(NHWC, {**SPATIAL3, "reorder_conv": 4, **MARKS}),
    "depthwise_conv2d_nchw.mali": Case(
        DEPTHWISE, {"tile_c": 10, "tile_y": 9, "tile_x": 10, "ann_spatial": 20}
    ),
    "depthwise_conv2d_nhwc.mali": Case(
        DEPTHWISE_NHWC, {"tile_c": 10, "tile_y": 9, "tile_x": 10, "ann_spatial": 20}
    ),
    "dense.mali": Case(DENSE, {"tile_y": 10, "tile_x": 15, "c_unroll": 6}),
    "conv2d_NCHWc.x86": Case(
        (*CONV[:5], "NCHW", "NCHW", "float32"),
        {"tile_ic": 4, "tile_oc": 4, "tile_ow": 4, "unroll_kw": 2},
    ),
    "depthwise_conv2d_NCHWc.x86": Case(
        (*DEPTHWISE[:5], "NCHW", "NCHW", "float32"),
        {"tile_ic": 4, "tile_oc": 4, "tile_ow": 4, "unroll_kw": 2},
    ),
    "group_conv2d_nchw.x86": Case(
        (T(2, 8, 6, 8), T(8, 4, 3, 3), (1, 1), (1, 1, 1, 1), (1, 1), 2, "float32"),
        {"tile_ic": 4, "tile_oc": 4, "tile_ow": 4, "unroll_kw": 2},
    ),
    "conv3d_ncdhw.x86": Case(
        (T(1, 4, 3, 4, 16), T(8, 4, 2, 3, 3), 1, (1, 1, 1), 1, "float32"),
        {"tile_ic": 3, "tile_oc": 4, "tile_ow": 4, "unroll_kw": 2},
    ),
    "conv3d_ndhwc.x86": Case(
        (T(1, 3, 4, 16, 4), T(2, 3, 3, 4, 8), 1, (1, 1, 1), 1, "float32"),
        {"tile_ic": 3, "tile_oc": 4, "tile_ow": 4, "unroll_kw": 2},
    ),
    "dense_pack.x86": Case(DENSE, {"tile_y": 10, "tile_x": 15, "tile_k": 6, "tile_inner": 4}),
    "dense_nopack.x86": Case(DENSE, {"tile_y": 4, "tile_x": 5, "tile_k": 6}),
    "batch_matmul.x86": Case(BATCH, {"tile_y": 4, "tile_x": 4, "tile_k": 6}),
    "conv2d_nchw_spatial_pack.arm_cpu": Case(CONV, {**SPATIAL2, "reorder_0": 2, **MARKS}),
    "conv2d_nhwc_spatial_pack.arm_cpu": Case(
        NHWC, {**SPATIAL2, "reorder_conv": 4, **MARKS, "compat": 3}
    ),
    "conv2d_transpose_nchw.arm_cpu": Case(
        (T(1, 6, 3, 4), T(6, 8, 4, 4), (2, 2), (1, 1, 1, 1), "float32", (0, 0)),
        {**SPATIAL2, "reorder_0": 2, **MARKS},
    ),
    "depthwise_conv2d_nchw_spatial_pack.arm_cpu": Case(
        (T(1, 8, 6, 8), T(8, 2, 3, 3), *DEPTHWISE[2:]),
        {**SPATIAL2, "reorder_0": 2, "reorder_1": 3, **MARKS, "data_pad_inline": 5,
         "data_vec_inline": 4, "conv_inline": 4},
    ),
    "group_conv2d_nchw.arm_cpu": Case(
        (T(2, 8, 6, 8), T(8, 4, 3, 3), (1, 1), (1, 1, 1, 1), (1, 1), 2, "float32"),
        {"tile_ic": 4, "tile_oc": 4, "tile_ow": 4, "unroll_kw": 2},
    ),
    "conv2d_nchw_winograd.arm_cpu": Case(
        (T(1, 6, 7, 6), T(8, 6, 3, 3), *CONV[2:]),
        {"tile_p": 3, "tile_k": 4, "tile_c": 4, "ann_reduce": 2, "ann_spatial": 8},
    ),
    "depthwise_conv2d_nchw.arm_cpu": Case(
        DEPTHWISE, {"tile_c": 4, "tile_h": 4, "tile_w": 4, "ann": 20}
    ),
    "depthwise_conv2d_nhwc.arm_cpu": Case(
        DEPTHWISE_NHWC, {"tile_c": 4, "tile_h": 4, "tile_w": 4, "locate_output": 2}
    ),
}  # fmt: skip


def target_of(name: str) -> Target:
    return CPU if name.endswith(("x86", "arm_cpu")) else GPU


def made(name: str, *args: Any) -> Task:
    return autotvm.task.create(name, args=args or CASES[name].args, target=target_of(name))


def run(sketch: Sketch, indices: list[int]) -> None:
    """The kernels of these configurations give the reference."""
    where = cpu() if sketch.target.kind == "llvm" else device(KIND)
    inputs = random_inputs(sketch.dag, 1)
    expected, tolerance = evaluate_with_tolerance(sketch.dag, inputs)
    assert indices
    for index in indices:
        schedule = sketch.close(index)
        artifact = build_artifact(schedule, sketch.target)
        done = trial(artifact, where, inputs, expected, tolerance, number=1, race=False)
        assert done.error is None, f"{done.message}\n{sketch.space.get(index)}\n{schedule}"


def legal(sketch: Sketch, count: int, seed: int = 0) -> list[int]:
    drawn = sketch.space.sample(200, np.random.default_rng(seed))
    return [int(i) for i in drawn[sketch.legal(drawn, sensible=False)][:count]]


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_knobs_have_the_names_the_order_and_the_lengths_of_the_originals(name: str) -> None:
    space = made(name).config_space
    found = {knob: len(values) for knob, values in space.space_map.items()}
    assert list(found.items()) == list(CASES[name].lengths.items())


@pytest.mark.sampled(7)
@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_random_legal_configurations_give_the_reference(name: str) -> None:
    if target_of(name) is GPU and not device(KIND).exist:
        pytest.skip(f"no {KIND} device here")
    (sketch,) = made(name).sketches
    run(sketch, legal(sketch, 1, seed=len(name)))


@pytest.mark.sampled(12)
@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_masks_on_arrays_judge_as_single_candidates(name: str) -> None:
    (sketch,) = made(name).sketches
    drawn = sketch.space.sample(16, np.random.default_rng(3))
    mask = sketch.legal(drawn, sensible=False)
    assert mask.tolist() == [not sketch.explain(int(i)) for i in drawn]


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_lines_of_autotvm_mean_the_configuration_that_they_spell_out(name: str) -> None:
    """By the entities, whatever index stands before them."""
    target = {"llvm": "llvm", "opencl": "opencl", "cuda": "cuda"}[target_of(name).kind]
    space = made(name).config_space
    index = int(space.sample(1, np.random.default_rng(5))[0])
    entities = [[knob, e.kind, e.value] for knob, e in space.get(index).items()]
    line = json.dumps(
        {
            "input": [f"{target} -keys=x", name, plain(CASES[name].args), {}],
            "config": {"index": 7, "code_hash": None, "entity": entities},
            "result": [[0.001], 0, 1.5, 1600000000.0], "version": 0.2, "tvm_version": "0.14.0",
        }
    )  # fmt: skip
    given, result = autotvm.record.decode(line)
    assert (given.task.name, given.config.index, result.costs) == (name, index, (0.001,))


def test_later_versions_of_a_task_have_groups() -> None:
    name = "conv3d_ncdhw.cuda"
    *args, dtype = CASES[name].args
    assert made(name, *args, 1, dtype).key == made(name).key
    with pytest.raises(SpaceError, match="not one that it schedules"):
        made(name, args[0], T(8, 2, 2, 3, 3), *args[2:], 2, dtype)


def bias_relu(x: Tensor, channel: int) -> Tensor:
    shape = [n if d == channel else 1 for d, n in enumerate(x.shape)]
    return topi.nn.relu(topi.add(x, te.placeholder(shape, name="bias")))


@pytest.mark.sampled(6)
@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_what_follows_in_a_network_joins_the_kernel(name: str) -> None:
    if target_of(name) is GPU and not device(KIND).exist:
        pytest.skip(f"no {KIND} device here")
    (plain,) = made(name).dag.outputs
    channel = {"nhwc": 3, "hwcn": 2, "depthwise_conv2d_nhwc": 3}.get(
        name.partition(".")[0].replace("_spatial_pack", "").rpartition("_")[2], 1
    )
    dag = ComputeDAG([bias_relu(plain, channel)])
    registered = {t.name: t for t in anchor_templates(dag, target_of(name)) if not t.offered}
    sketch = sketch_of_anchor(registered[name], dag, target_of(name))
    assert [len(k) for k in sketch.space.space_map.values()] == [*CASES[name].lengths.values()]
    run(sketch, legal(sketch, 1, seed=7))


@pytest.mark.parametrize("name", ["conv2d_nchw.cuda", "conv2d_NCHWc.x86"])
def test_sums_of_bytes_have_the_templates_without_int8_in_their_names(name: str) -> None:
    if target_of(name) is GPU and not device(KIND).exist:
        pytest.skip(f"no {KIND} device here")
    data, kernel, *rest = CASES[name].args
    bytes_of = [(*tensor[:2], "int8") for tensor in (data, kernel)]
    (sketch,) = made(name, *bytes_of, *rest[:-1], "int32").sketches
    run(sketch, legal(sketch, 1))


def test_no_task_has_them_unasked_and_they_are_told_apart_from_templates_of_ours() -> None:
    task = made("conv2d_nhwc.gpu")
    (sketch,) = task.sketches
    assert sketch.origin == "template:tvm.conv2d_nhwc.gpu"
    origins = [s.origin for s in task_of_dag(task.dag, GPU).sketches]
    assert origins == ["template:conv2d_nhwc.gpu"]


def test_a_layer_of_resnet_has_its_space_and_an_index_is_its_values() -> None:
    """The last of them: 220 * 4 * 4 * 10 * 2 * 2 * 3 * 2."""
    args = (T(1, 512, 7, 7), T(512, 512, 3, 3), (1, 1), (1, 1, 1, 1), (1, 1), "float32")
    task = autotvm.task.create("conv2d_nchw.cuda", args=args, target="cuda")
    space = task.config_space
    assert len(space) == 844800
    values = {
        "tile_f": [-1, 1, 64, 1], "tile_y": [-1, 1, 1, 7], "tile_x": [-1, 1, 7, 1],
        "tile_rc": [-1, 2], "tile_ry": [-1, 3], "tile_rx": [-1, 1], "auto_unroll_max_step": 512,
        "unroll_explicit": 0,
    }  # fmt: skip
    chosen = space.get(space.index_of(values))
    assert chosen["tile_f"].size == [8, 1, 64, 1] and chosen["tile_rc"].size == [256, 2]
    # the first knob varies fastest, a split's innermost loop slowest
    assert space.point2knob(space.index_of(values))[1:4] == [3, 2, 1]
    tree = LoopTree(task.sketches[0].close(space.index_of(values)))
    (root,) = tree.roots
    launch = {name: n for name, n in tree.bounds().launch(root).items() if n > 1}
    assert launch == {"blockIdx.z": 8, "threadIdx.z": 64, "threadIdx.x": 7}
    shared = [node for node in tree.nodes if node.scope == "shared"]
    # two channels, three rows and a column of the window; rows that they read
    elements = sorted(tree.bounds().elements(node) for node in shared)
    assert elements == [2 * 9 * 7, 64 * 2 * 3]


@pytest.mark.parametrize(
    ("name", "args", "length"),
    [
        # 56 x 56, 64 channels: 28 pairs for 64 in four loops, 8 for 56 in two, ...
        ("conv2d_nchw_spatial_pack.arm_cpu",
         (T(1, 64, 56, 56), T(64, 64, 3, 3), (1, 1), (1, 1, 1, 1), (1, 1), "float32"),
         7 * 8 * 8 * 2 * 4 * 20),
        ("conv2d_nchw_winograd.arm_cpu",
         (T(1, 64, 56, 56), T(64, 64, 3, 3), (1, 1), (1, 1, 1, 1), (1, 1), "float32"),
         5 * 5 * 5 * 2 * 8),
        ("depthwise_conv2d_nchw_spatial_pack.arm_cpu",
         (T(1, 32, 112, 112), T(32, 1, 3, 3), (1, 1), (1, 1, 1, 1), (1, 1), "float32"),
         6 * 10 * 10 * 2 * 3 * 4 * 20 * 5 * 4 * 4),
        ("conv2d_transpose_nchw.arm_cpu",
         (T(1, 512, 4, 4), T(512, 256, 4, 4), (2, 2), (1, 1, 1, 1), "float32", (0, 0)),
         9 * 4 * 4 * 2 * 4 * 20),
        ("conv3d_ndhwc.cuda",
         (T(1, 16, 56, 56, 64), T(3, 3, 3, 64, 64), (1, 1, 1), (1, 1, 1), (1, 1, 1), 1, "float32"),
         84 * 35 * 80 * 80 * 2 * 2 * 2 * 7 * 3 * 2),
    ],
)  # fmt: skip
def test_layers_of_networks_have_the_spaces_of_the_originals(
    name: str, args: tuple[Any, ...], length: int
) -> None:
    assert len(made(name, *args).config_space) == length


@pytest.mark.long
def test_untuned_configurations_of_them_are_legal_and_right() -> None:
    for name in ("depthwise_conv2d_nchw_spatial_pack.arm_cpu", "conv2d_nchw_winograd.arm_cpu"):
        (sketch,) = made(name).sketches
        index = sketch.fallback()
        assert index is not None
        run(sketch, [index])


@pytest.mark.sampled(3)
@pytest.mark.slow
@pytest.mark.parametrize("where", range(0, 80, 3))
def test_data_of_a_depthwise_convolution_may_be_copied_and_padded_anywhere(where: int) -> None:
    """Every place of each, with tiles that do not cover rows and columns alike."""
    (sketch,) = made("depthwise_conv2d_nchw_spatial_pack.arm_cpu").sketches
    index = sketch.fallback()
    assert index is not None
    chosen = {name: entity.value for name, entity in sketch.space.get(index).items()}
    names = ("data_pad_inline", "data_vec_inline", "conv_inline")
    places = dict(zip(names, (where % 5, where // 5 % 4, where // 20), strict=True))
    tile = {"tile_co": [-1, 4], "tile_oh": [-1, 3], "tile_ow": [-1, 4]}
    run(sketch, [sketch.space.index_of(chosen | tile | places)])


def test_blocks_of_channels_are_those_of_the_data() -> None:
    blocked = (T(1, 2, 6, 8, 4), T(1, 2, 3, 3, 4, 8), (1, 1), (1, 1), (1, 1), "NCHW4c", "NCHW8c")
    task = made("conv2d_NCHWc.x86", *blocked, "float32")
    (sketch,) = task.sketches
    fitting = {"tile_ic": [-1, 4], "tile_oc": [-1, 8], "tile_ow": [-1, 4], "unroll_kw": True}
    run(sketch, [sketch.space.index_of(fitting)])
    other = sketch.space.index_of(fitting | {"tile_oc": [-1, 4]})
    with pytest.raises(TilewrightError, match="the data lie in blocks of 8"):
        sketch.close(other)
    assert sketch.legal(np.array([other])).tolist() == [False]


@pytest.mark.parametrize(
    ("name", "args", "words"),
    [
        ("conv2d_nchw.cuda", CONV[:2], "missing"),
        ("conv2d_nchw.cuda", (T(1, 6, 6, 8), 5, *CONV[2:]), "weights are a tensor"),
        ("conv2d_nchw.cuda", (T(1, 6, 6, 8), T(8, 5, 3, 3), *CONV[2:]), "reads 5 channels"),
        ("conv2d_nchw.cuda", (T(1, 6, 6), T(8, 6, 3, 3), *CONV[2:]), "data"),
        ("dense.mali", ("x", *DENSE[1:]), "data is a str, not a tensor"),
        ("group_conv2d_nchw.cuda", (*CONV[:5], 1, "float32"), "not one that it schedules"),
        ("depthwise_conv2d_NCHWc.x86", (*DEPTHWISE[:5], "NCHW", "NCHW", "float99"), "float99"),
        ("conv2d_nchw_winograd_nnpack.arm_cpu", CONV, "Use conv2d_nchw_winograd.arm_cpu"),
        ("conv2d_NCHWc_int8.x86", CONV, "out_dtype='int32'"),
        ("dense_cublas.cuda", DENSE, "libraries of others"),
        ("conv3d_ncdhw_winograd.cuda", CONV, "Use conv3d_ncdhw.cuda"),
        ("conv2d_nhwc_tensorcore.cuda", NHWC, "float32 means float32"),
    ],
)  # fmt: skip
def test_wrong_arguments_are_one_error(name: str, args: tuple[Any, ...], words: str) -> None:
    with pytest.raises(TilewrightError, match=words):
        autotvm.task.create(name, args=args, target=target_of(name))


def test_a_template_is_refused_on_a_target_that_it_is_not_for() -> None:
    with pytest.raises(SpaceError, match=r"it is not for llvm. Use a target of cuda, opencl"):
        autotvm.task.create("conv2d_nchw.cuda", args=CONV, target="llvm")
    with pytest.raises(SpaceError, match=r"Registered: conv2d_nchw\.cuda"):
        autotvm.task.create("conv2d_nchw.cudo", args=CONV, target="llvm")
