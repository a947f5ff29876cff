"""GPU templates: legal configurations of any shape give the reference; spaces stay sensible.

Kernels run on an OpenCL device; CUDA text is compiled where NVRTC is installed.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from tilewright import te, topi
from tilewright.base.errors import TargetError
from tilewright.driver.build import build_artifact, generate_source
from tilewright.driver.compilers import compile_source
from tilewright.runtime.device import opencl
from tilewright.runtime.trial import trial
from tilewright.schedule.sketch import Sketch
from tilewright.schedule.task import task_of_dag
from tilewright.schedule.template import fallback_schedule
from tilewright.schedule.tree.loop_tree import LoopTree
from tilewright.targets.target import Target
from tilewright.te.dag import ComputeDAG
from tilewright.te.evaluate import evaluate_with_tolerance, random_inputs
from tilewright.te.tensor import Tensor

OPENCL, CUDA = Target("opencl"), Target("cuda")
LAYERS = (  # ci, size, co, kernel, stride: the convolutions of ResNet-18
    (3, 224, 64, 7, 2), (64, 56, 64, 3, 1), (64, 56, 128, 3, 2), (64, 56, 128, 1, 2),
    (128, 28, 128, 3, 1), (128, 28, 256, 3, 2), (128, 28, 256, 1, 2), (256, 14, 256, 3, 1),
    (256, 14, 512, 3, 2), (256, 14, 512, 1, 2), (512, 7, 512, 3, 1),
)  # fmt: skip


def conv(
    shape: tuple[int, ...], co: int, kernel: int | tuple[int, int], stride: object = 1,
    pad: object = 0, dilation: object = 1, *, groups: int = 1, layout: str = "NCHW",
    constant: bool = True,
) -> Tensor:  # fmt: skip
    kh, kw = kernel if isinstance(kernel, tuple) else (kernel, kernel)
    ci = shape[layout.index("C")] // groups
    data = te.placeholder(shape, name="data")
    wanted = (co, ci, kh, kw) if layout == "NCHW" else (kh, kw, ci, co)
    weight = te.placeholder(wanted, name="weight", constant=constant)
    return topi.nn.conv2d(data, weight, stride, pad, dilation, data_layout=layout, groups=groups)


def depthwise(
    shape: tuple[int, ...], kernel: int, stride: int, pad: object, times: int, layout: str
) -> Tensor:
    data = te.placeholder(shape, name="data")
    channels = shape[layout.index("C")]
    wanted = (
        (channels, times, kernel, kernel) if layout == "NCHW" else (kernel, kernel, channels, times)
    )
    weight = te.placeholder(wanted, name="weight", constant=True)
    apply = topi.nn.depthwise_conv2d_nchw if layout == "NCHW" else topi.nn.depthwise_conv2d_nhwc
    return apply(data, weight, stride, pad)


def dense(m: int, n: int, k: int, constant: bool = True) -> Tensor:
    return topi.nn.dense(
        te.placeholder((m, k), name="data"),
        te.placeholder((n, k), name="weight", constant=constant),
    )


def inputs(*shapes: tuple[int, ...]) -> list[Tensor]:
    return [te.placeholder(shape, name=f"x{k}") for k, shape in enumerate(shapes)]


def bias_relu(x: Tensor, channel: int = 1) -> Tensor:
    shape = [n if d == channel else 1 for d, n in enumerate(x.shape)]
    return topi.nn.relu(topi.add(x, te.placeholder(shape, name="bias")))


def residual(x: Tensor) -> Tensor:
    """The sum is read twice."""
    total = topi.add(x, te.placeholder(x.shape, name="shortcut"))
    return topi.multiply(total, topi.sigmoid(total))


COMPUTATIONS: dict[str, Callable[[], Tensor]] = {
    "3x3": lambda: bias_relu(conv((1, 8, 7, 7), 12, 3, 1, 1)),
    "no epilogue": lambda: conv((1, 16, 9, 5), 8, 3, 2, 1),
    "1x1, batch 2": lambda: residual(conv((2, 24, 5, 6), 16, 1)),
    "odd everything": lambda: bias_relu(conv((1, 5, 11, 8), 7, (2, 3), (1, 2), (0, 1, 2, 1))),
    "dilated": lambda: conv((1, 4, 13, 12), 6, 3, 1, 2, 2),
    "weights given": lambda: bias_relu(conv((1, 8, 6, 6), 10, 3, 1, 1, constant=False)),
    "groups": lambda: bias_relu(conv((1, 12, 6, 7), 24, 3, 1, 1, groups=3)),
    "NHWC": lambda: bias_relu(conv((1, 7, 6, 8), 12, 3, 1, 1, layout="NHWC"), 3),
    "NHWC groups": lambda: conv((1, 5, 6, 8), 8, 3, 1, 1, groups=2, layout="NHWC"),
    "NCW": lambda: residual(topi.nn.conv(*inputs((2, 8, 13), (12, 8, 3)), 2, 1, data_layout="NCW")),
    "NDHWC groups": lambda: topi.nn.conv(
        *inputs((1, 3, 4, 5, 8), (3, 3, 3, 4, 6)), 1, 1, groups=2, data_layout="NDHWC"
    ),
    "transposed": lambda: residual(topi.nn.conv_transpose(*inputs((1, 8, 5, 6), (8, 6, 3, 3)), 2)),
    "transposed NDHWC": lambda: topi.nn.conv_transpose(
        *inputs((1, 2, 3, 4, 8), (8, 6, 2, 2, 2)), 2, data_layout="NDHWC"
    ),
    "depthwise": lambda: bias_relu(depthwise((1, 6, 9, 10), 3, 2, 1, 1, "NCHW")),
    "depthwise, two each": lambda: depthwise((1, 5, 7, 7), 3, 1, (0, 1, 2, 1), 2, "NCHW"),
    "depthwise NHWC": lambda: bias_relu(depthwise((2, 7, 6, 8), 3, 1, 1, 1, "NHWC"), 3),
    "depthwise NCW": lambda: residual(
        topi.nn.conv(*inputs((2, 6, 17), (6, 1, 5)), 1, 2, groups=6, data_layout="NCW")
    ),
    "depthwise NWC, two each": lambda: topi.nn.conv(
        *inputs((2, 15, 8), (3, 1, 16)), 2, 1, groups=8, data_layout="NWC"
    ),
    "depthwise NCDHW": lambda: bias_relu(
        topi.nn.conv(*inputs((2, 6, 4, 7, 9), (6, 1, 3, 3, 3)), 1, 1, 1, 6, "NCDHW")
    ),
    "depthwise NDHWC": lambda: topi.nn.conv(
        *inputs((1, 4, 5, 6, 8), (2, 3, 3, 1, 8)), 1, 1, groups=8, data_layout="NDHWC"
    ),
    "transposed groups": lambda: residual(
        topi.nn.conv_transpose(*inputs((1, 8, 5, 6), (8, 3, 4, 4)), 2, 1, groups=4)
    ),
    "transposed NWC groups": lambda: topi.nn.conv_transpose(
        *inputs((1, 9, 8), (8, 2, 4)), 2, 1, groups=2, data_layout="NWC"
    ),
    "transposed depthwise": lambda: topi.nn.conv_transpose(
        *inputs((1, 6, 5, 6), (6, 1, 3, 3)), 2, 1, groups=6
    ),
    "dense": lambda: bias_relu(dense(9, 21, 40)),
    "dense, weights given": lambda: dense(16, 12, 33, constant=False),
    "vector": lambda: bias_relu(dense(1, 37, 100)),
    "batch_matmul": lambda: topi.nn.batch_matmul(*inputs((3, 6, 16), (3, 5, 16))),
    "matmul": lambda: topi.matmul(*inputs((16, 6), (16, 10)), True, False),
}  # fmt: skip


def sketch_of(dag: ComputeDAG, target: Target) -> Sketch:
    (sketch,) = task_of_dag(dag, target).sketches
    return sketch


def resnet_layer(number: int) -> ComputeDAG:
    ci, size, co, kernel, stride = LAYERS[number]
    return ComputeDAG([bias_relu(conv((1, ci, size, size), co, kernel, stride, kernel // 2))])


@pytest.mark.sampled(10)
@pytest.mark.slow
@pytest.mark.skipif(not opencl().exist, reason="no OpenCL device here")
@pytest.mark.parametrize("name", COMPUTATIONS)
def test_random_legal_configurations_give_the_reference(name: str) -> None:
    dag = ComputeDAG([COMPUTATIONS[name]()])
    sketch = sketch_of(dag, OPENCL)
    inputs = random_inputs(dag, 1)
    expected, tolerance = evaluate_with_tolerance(dag, inputs)
    drawn = sketch.space.sample(300, np.random.default_rng(len(name)))
    schedules = [sketch.close(int(i)) for i in drawn[sketch.legal(drawn, sensible=False)][:1]]
    fallback = fallback_schedule(dag, OPENCL)
    assert schedules and fallback is not None
    for schedule in (*schedules, fallback):
        artifact = build_artifact(schedule, OPENCL)
        done = trial(artifact, opencl(), inputs, expected, tolerance, number=1, race=False)
        assert done.error is None, f"{done.message}\n{schedule}"


@pytest.mark.sampled(4)
@pytest.mark.slow
@pytest.mark.parametrize("name", COMPUTATIONS)
def test_masks_on_arrays_judge_as_single_candidates(name: str) -> None:
    sketch = sketch_of(ComputeDAG([COMPUTATIONS[name]()]), OPENCL)
    drawn = sketch.space.sample(24, np.random.default_rng(3))
    legal = sketch.legal(drawn, sensible=False)
    assert legal.any()
    assert legal.tolist() == [not sketch.explain(int(i)) for i in drawn]


@pytest.mark.sampled(2)
@pytest.mark.slow
@pytest.mark.parametrize("number", range(len(LAYERS)))
def test_resnet_layers_have_bounded_spaces_and_a_fallback(number: int) -> None:
    dag = resnet_layer(number)
    sketch = sketch_of(dag, CUDA)
    assert 100_000 < len(sketch.space) <= 50_000_000
    assert sketch.legal(sketch.space.sample(500, np.random.default_rng(0))).mean() > 0.3
    for target in (CUDA, OPENCL):
        assert fallback_schedule(dag, target) is not None


def flagship(**knobs: object) -> tuple[Sketch, int]:
    sketch = sketch_of(resnet_layer(10), CUDA)
    values = {name: knob[0].value for name, knob in sketch.space.space_map.items()}
    tiles = {"tile_f": [-1, 1, 8, 4], "tile_y": [-1, 7, 1], "tile_x": [-1, 1, 7]}
    return sketch, sketch.space.index_of({**values, **tiles, **knobs})


def test_reduction_split_over_blocks_and_threads_keeps_the_tile() -> None:
    sketch, index = flagship(split_k=8, threads_k=8, step_k=1)
    schedule = sketch.close(index)
    tree = LoopTree(schedule)
    bounds = tree.bounds()
    sums, last = tree.roots
    assert bounds.launch(sums) == {
        "blockIdx.x": 1, "blockIdx.y": 16, "blockIdx.z": 8, "threadIdx.x": 448,
    }  # fmt: skip
    assert last.stage.is_output
    accumulators = next(n for n in tree.nodes if n.scope == "local" and n.op.tag == "conv2d_nchw")
    assert bounds.elements(accumulators) == 28
    board = accumulators.parent
    assert board is not None and board.scope == "shared"
    assert bounds.region(board) == [8, 1, 1, 32, 7, 7]  # threads, blocks, then one block's outputs


def test_packed_weights_come_in_vectors_without_branches() -> None:
    sketch, index = flagship(split_k=16, step_k=8, auto_unroll_max_step=512)
    source = generate_source(sketch.close(index), CUDA, "conv")
    assert len(source.kernels) == 2 and [b.role for b in source.buffers].count("workspace") == 1
    weights = next(b for b in source.buffers if b.packing is not None)
    assert weights.shape == (512, 3, 3, 512)
    lines = [line.strip() for line in source.text.splitlines()]
    assert sum("float4" in line and "weight_packed" in line for line in lines) == 2
    inner = lines[
        lines.index("float pad_temp_shared_local[9];") : lines.index(
            "}", lines.index("float pad_temp_shared_local[9];")
        )
    ]
    assert not any("if (" in line for line in inner)


@pytest.mark.slow
def test_flagship_compiles_without_spills() -> None:
    sketch, index = flagship(split_k=8, threads_k=8, step_k=4, auto_unroll_max_step=512)
    source = generate_source(sketch.close(index), CUDA, "conv")
    try:
        artifact = compile_source(source, CUDA)
    except TargetError as error:
        pytest.skip(str(error))
    assert {r["spill_bytes"] for r in artifact.resources.values()} == {0}
    assert max(r["registers"] for r in artifact.resources.values()) <= 96
