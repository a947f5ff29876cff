"""CPU templates: random configurations of every template, on odd shapes, compute what the DAG says.

The reference is the float64 evaluator; kernels run through LLVM in this process.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest

from tilewright import te, topi
from tilewright.driver.build import build
from tilewright.lowering.pipeline import lower_schedule
from tilewright.runtime.ndarray import array
from tilewright.schedule.default import default_schedule, generic_schedule
from tilewright.schedule.schedule import Schedule
from tilewright.schedule.template import anchor_sketches, fallback_schedule
from tilewright.schedule.tree.legality import judge
from tilewright.schedule.tree.loop_tree import LoopTree
from tilewright.schedule.tree.resources import Resources
from tilewright.targets.target import Target
from tilewright.te import ComputeDAG, Tensor
from tilewright.te.evaluate import evaluate_with_tolerance, random_inputs

TARGET = Target("llvm")
Epilogue = Callable[[Tensor, list[Tensor]], Tensor]


def none(x: Tensor, args: list[Tensor]) -> Tensor:
    return x


def bias_relu(x: Tensor, args: list[Tensor]) -> Tensor:
    channel = 1 if x.ndim == 4 else x.ndim - 1
    shape = [n if d == channel else 1 for d, n in enumerate(x.shape)]
    args.append(te.placeholder(shape, name="bias"))
    return topi.nn.relu(topi.add(x, args[-1]))


def residual(x: Tensor, args: list[Tensor]) -> Tensor:
    """Scale, shift, residual add (the sum is read twice), clip."""
    args.append(te.placeholder(x.shape, name="other"))
    total = topi.add(topi.multiply(x, 0.5), args[-1])
    return topi.clip(topi.add(total, topi.nn.relu(total)), -3.0, 3.0)


def prologue(x: Tensor) -> Tensor:
    return topi.nn.relu(topi.add(x, 0.25))


def dag_of(
    op: Callable[[Tensor, Tensor], Tensor],
    a: tuple[int, ...],
    b: tuple[int, ...],
    after: Epilogue = none,
    constant: bool = True,
    before: Callable[[Tensor], Tensor] | None = None,
) -> ComputeDAG:
    data = te.placeholder(a, name="data")
    weight = te.placeholder(b, name="weight", constant=constant)
    args = [data, weight]
    out = after(op(before(data) if before else data, weight), args)
    return ComputeDAG([*args, out])


def check(dag: ComputeDAG, schedule: Schedule, label: str) -> None:
    module = build(schedule, target=TARGET)
    inputs = random_inputs(dag, 7)
    given = iter(inputs)
    arrays = [
        array(next(given))
        if spec.role == "input"
        else array(np.full(spec.logical_shape, np.nan, spec.dtype))
        for spec in module.parameters
    ]
    module(*arrays)
    expected, tolerance = evaluate_with_tolerance(dag, inputs)
    outputs = [
        a.numpy()
        for a, spec in zip(arrays, module.parameters, strict=True)
        if spec.role == "output"
    ]
    for out, reference, bound in zip(outputs, expected, tolerance, strict=True):
        wrong = ~(np.abs(out - reference) <= bound)
        assert not wrong.any(), f"{label}: {int(wrong.sum())} of {wrong.size} elements are wrong"


def conv(
    stride: int = 1, padding: int = 0, dilation: int = 1, groups: int = 1, layout: str = "NCHW"
):  # type: ignore[no-untyped-def]
    return lambda a, b: topi.nn.conv2d(a, b, stride, padding, dilation, layout, groups=groups)


def depthwise(stride: int, padding: int, layout: str = "nchw"):  # type: ignore[no-untyped-def]
    operator = getattr(topi.nn, f"depthwise_conv2d_{layout}")
    return lambda a, b: operator(a, b, stride, padding)


def dense(data: Tensor, weight: Tensor) -> Tensor:
    return topi.nn.dense(data, weight)


def other_rank(layout: str, groups: int = 1):  # type: ignore[no-untyped-def]
    return lambda a, b: topi.nn.conv(a, b, 1, 1, 1, groups, layout)


def transposed(layout: str, stride: int, groups: int = 1):  # type: ignore[no-untyped-def]
    return lambda a, b: topi.nn.conv_transpose(a, b, stride, 1, groups=groups, data_layout=layout)


CASES = {
    "ncw": lambda: dag_of(other_rank("NCW"), (1, 5, 17), (18, 5, 3), residual),
    "ncw groups, weights given": lambda: dag_of(
        other_rank("NCW", 2), (2, 6, 21), (10, 3, 5), residual, False
    ),
    "nwc": lambda: dag_of(other_rank("NWC"), (1, 9, 5), (3, 5, 12), residual),
    "ncdhw": lambda: dag_of(other_rank("NCDHW"), (1, 3, 4, 5, 9), (17, 3, 3, 3, 3), residual),
    "ndhwc": lambda: dag_of(other_rank("NDHWC"), (1, 4, 3, 5, 3), (3, 2, 3, 3, 9), residual),
    "ncw transposed": lambda: dag_of(transposed("NCW", 2), (1, 4, 9), (4, 6, 4)),
    "nchw transposed": lambda: dag_of(transposed("NCHW", 2), (1, 4, 5, 9), (4, 6, 3, 3), residual),
    "nchw transposed, stride 1": lambda: dag_of(
        transposed("NCHW", 1, 2), (1, 4, 5, 9), (4, 3, 3, 3), residual
    ),
    "ncdhw transposed": lambda: dag_of(
        transposed("NCDHW", 3), (1, 3, 3, 4, 8), (3, 4, 4, 3, 3), residual
    ),
    "nchw 3x3": lambda: dag_of(conv(1, 1), (1, 5, 7, 7), (20, 5, 3, 3), bias_relu),
    "nchw 3 channels, 7x7, stride 2": lambda: dag_of(
        conv(2, 3), (1, 3, 19, 23), (18, 3, 7, 7), bias_relu
    ),
    "nchw dilated": lambda: dag_of(conv(1, 2, 2), (2, 3, 9, 11), (33, 3, 3, 3), residual),
    "nchw 1x1, stride 2": lambda: dag_of(conv(2), (1, 8, 14, 14), (24, 8, 1, 1), bias_relu),
    "nchw 1x1, prologue": lambda: dag_of(
        conv(), (1, 6, 5, 9), (17, 6, 1, 1), residual, before=prologue
    ),
    "nchw prologue": lambda: dag_of(conv(1, 1), (1, 4, 6, 10), (16, 4, 3, 3), before=prologue),
    "nchw weights given": lambda: dag_of(
        conv(1, 1), (1, 5, 13, 13), (7, 5, 3, 3), bias_relu, False
    ),
    "nchw 1x1 weights given": lambda: dag_of(conv(), (1, 5, 7, 7), (9, 5, 1, 1), none, False),
    "nchw few outputs": lambda: dag_of(conv(), (1, 4, 5, 5), (1, 4, 2, 2)),
    "nchw groups": lambda: dag_of(conv(1, 1, 1, 2), (1, 6, 8, 8), (16, 3, 3, 3), bias_relu),
    "nchw odd groups": lambda: dag_of(conv(1, 1, 1, 3), (1, 6, 9, 9), (15, 2, 3, 3), residual),
    "nhwc": lambda: dag_of(conv(1, 1, layout="NHWC"), (1, 7, 9, 5), (3, 3, 5, 20), residual),
    "nhwc weights given": lambda: dag_of(
        conv(2, 1, layout="NHWC"), (1, 9, 9, 5), (3, 3, 5, 19), none, False
    ),
    "nhwc groups": lambda: dag_of(conv(1, 1, 1, 2, "NHWC"), (1, 7, 7, 6), (3, 3, 3, 32), none),
    "depthwise": lambda: dag_of(depthwise(1, 1), (1, 10, 14, 14), (10, 1, 3, 3), bias_relu),
    "depthwise, stride 2": lambda: dag_of(depthwise(2, 1), (1, 5, 15, 17), (5, 1, 3, 3), residual),
    "depthwise, 2 per channel": lambda: dag_of(
        depthwise(1, 1), (1, 3, 7, 7), (3, 2, 3, 3), none, False
    ),
    "depthwise, unpadded": lambda: dag_of(depthwise(1, 0), (1, 3, 9, 21), (3, 1, 3, 3)),
    "depthwise nhwc": lambda: dag_of(
        depthwise(1, 1, "nhwc"), (1, 7, 9, 20), (3, 3, 20, 1), residual
    ),
    "depthwise nhwc, 2 per channel": lambda: dag_of(
        depthwise(2, 1, "nhwc"), (1, 9, 9, 3), (3, 3, 3, 2)
    ),
    "dense": lambda: dag_of(dense, (1, 77), (100, 77), bias_relu),
    "dense rows": lambda: dag_of(dense, (5, 33), (21, 33), residual),
    "dense weights given": lambda: dag_of(dense, (3, 50), (35, 50), bias_relu, False),
    "dense packed on each call": lambda: dag_of(dense, (37, 20), (45, 20), none, False),
    "matmul": lambda: dag_of(topi.matmul, (9, 31), (31, 45), residual, False),
    "matmul transposed": lambda: dag_of(
        lambda a, b: topi.matmul(a, b, True, True), (30, 11), (19, 30), none, False
    ),
    "blocks of one channel": lambda: dag_of(
        lambda a, b: topi.nn.conv2d_NCHWc(a, b, 2, 1, 1), (1, 3, 19, 23, 1), (2, 3, 3, 3, 1, 16)
    ),
    "batch_matmul": lambda: dag_of(topi.nn.batch_matmul, (3, 7, 20), (3, 18, 20), none, False),
    "batch_matmul shared": lambda: dag_of(topi.nn.batch_matmul, (3, 7, 20), (1, 18, 20), residual),
}
REFUSED = {"nchw few outputs": "conv2d_nchw.llvm"}


@pytest.mark.sampled(2)
@pytest.mark.slow
@pytest.mark.parametrize("case", CASES)
def test_random_configurations_are_right(case: str) -> None:
    dag = CASES[case]()
    sketches = anchor_sketches(dag, TARGET)
    assert sketches
    rng = np.random.default_rng(len(case))
    for sketch in sketches:
        indices = rng.permutation(len(sketch.space))[:400]
        fits = indices[sketch.legal(indices)]
        runs = indices[sketch.legal(indices, sensible=False)]
        assert len(fits)
        for index in (*fits[:2], *runs[-1:]):
            label = f"{case}, {sketch.origin}, {sketch.space.get(int(index))}"
            check(dag, sketch.close(int(index)), label)


@pytest.mark.sampled(8)
@pytest.mark.slow
@pytest.mark.parametrize("case", CASES)
def test_untuned_is_right_and_from_a_template(case: str) -> None:
    dag = CASES[case]()
    schedule = fallback_schedule(dag, TARGET)
    assert schedule is not None
    tree = LoopTree(schedule)
    verdict = judge(Resources(tree.bounds(), TARGET))
    assert verdict.legal(1).all()
    check(dag, schedule, case)


@pytest.mark.slow
@pytest.mark.parametrize("case", ["nchw 3x3", "nchw weights given", "depthwise", "dense", "matmul"])
def test_narrow_vectors(case: str) -> None:
    """A target with 16-byte vectors and 16 registers has spaces and fallbacks of its own."""
    target = Target("llvm -vector-bytes=16")
    dag = CASES[case]()
    schedule = fallback_schedule(dag, target)
    assert schedule is not None
    tree = LoopTree(schedule)
    assert tree.bounds() and judge(Resources(tree.bounds(), target)).sensible(1).all()
    check(dag, schedule, case)


def test_constant_weights_are_packed_and_others_are_not() -> None:
    packed = lower_schedule(default_schedule(CASES["nchw 3x3"](), TARGET), TARGET)
    assert [b.packing is not None for b in packed.args] == [False, True, False, False]
    given = lower_schedule(default_schedule(CASES["nchw weights given"](), TARGET), TARGET)
    assert not any(b.packing for b in given.args)


def test_inner_loops_of_overhanging_tiles_have_no_guard() -> None:
    """20 channels in vectors of 16, 7 columns in tiles of 4: only the stores are guarded."""
    dag = CASES["nchw 3x3"]()
    sketch = anchor_sketches(dag, TARGET)[0]
    config = {
        "tile_f": 1,
        "tile_y": 2,
        "tile_x": 4,
        "block_c": 1,
        "reduction": "channels",
        "order": "fyx",
        "unroll": 0,
    }
    program = lower_schedule(sketch.close(sketch.space.index_of(config)), TARGET)
    text = str(program)
    update = next(line for line in text.splitlines() if "for rx in" in line)
    inside = text[text.index(update) :]
    before_stores = inside[: inside.index("compute_1[")].rpartition("\n")[0]
    assert "if " not in before_stores.rpartition("for i")[0]


def test_registers_are_a_mask() -> None:
    sketch = anchor_sketches(dag_of(conv(1, 1), (1, 8, 28, 28), (64, 8, 3, 3)), TARGET)[0]
    config = {
        "tile_f": 4,
        "tile_y": 2,
        "tile_x": 28,
        "block_c": 1,
        "reduction": "channels",
        "order": "fyx",
        "unroll": 0,
    }
    index = np.array([sketch.space.index_of(config)])
    assert sketch.legal(index, sensible=False).all()
    assert not sketch.legal(index).any()
    assert sketch.refusals(index) == {"registers": 1}


@pytest.mark.slow
@pytest.mark.parametrize(
    "shape, least, most",
    [
        ((512, 7, 512, 3, 1), 300, 100_000),
        ((64, 56, 64, 3, 1), 300, 100_000),
        ((3, 224, 64, 7, 3), 300, 100_000),
    ],
)
def test_sizes_of_spaces(shape: tuple[int, ...], least: int, most: int) -> None:
    ci, size, co, k, padding = shape
    dag = dag_of(conv(1, padding), (1, ci, size, size), (co, ci, k, k))
    for sketch in anchor_sketches(dag, TARGET):
        assert least <= len(sketch.space) <= most
        indices = np.random.default_rng(0).integers(0, len(sketch.space), 2000)
        assert sketch.legal(indices).mean() > 0.1


@pytest.mark.parametrize("case", REFUSED)
def test_refused_template_leaves_the_others(case: str) -> None:
    origins = [s.origin for s in anchor_sketches(CASES[case](), TARGET)]
    assert origins and f"template:{REFUSED[case]}" not in origins


def convolved() -> list[Tensor]:
    data, weight = (
        te.placeholder((1, 4, 6, 6), name="d"),
        te.placeholder((8, 4, 3, 3), name="w", constant=True),
    )
    return [data, weight, topi.nn.conv2d_nchw(data, weight, 1, 1)]


def test_a_second_output_or_reduction_gets_the_generic_schedule() -> None:
    data, weight, out = convolved()
    both = ComputeDAG([data, weight, out, topi.nn.relu(out)])
    pooled = ComputeDAG([data, weight, topi.max(out, (2, 3))])
    for dag in (both, pooled):
        assert not anchor_sketches(dag, TARGET)
        check(dag, default_schedule(dag, TARGET), "no template")


def test_what_moves_elements_is_computed_behind_the_anchor() -> None:
    data, weight, out = convolved()
    dag = ComputeDAG([data, weight, topi.transpose(topi.nn.relu(out), (0, 2, 3, 1))])
    assert anchor_sketches(dag, TARGET)
    check(dag, default_schedule(dag, TARGET), "turned")


def softmax_like(x: Tensor) -> Tensor:
    return topi.nn.softmax(x, 1)


GENERIC: dict[str, Callable[[], list[Tensor]]] = {
    "relu of 7x7": lambda: (lambda x: [x, topi.nn.relu(x)])(te.placeholder((1, 5, 7, 7), name="x")),
    "bias": lambda: (lambda x, b: [x, b, topi.add(x, b)])(
        te.placeholder((2, 5, 7, 7), name="x"), te.placeholder((5, 1, 1), name="b")
    ),
    "outer sum": lambda: (lambda x, b: [x, b, topi.add(x, b)])(
        te.placeholder((6, 1), name="x"), te.placeholder((1, 37), name="b")
    ),
    "transpose": lambda: (lambda x: [x, topi.transpose(x, (1, 0))])(
        te.placeholder((19, 21), name="x")
    ),
    "flatten": lambda: (lambda x: [x, topi.nn.flatten(x)])(te.placeholder((2, 3, 5, 7), name="x")),
    "max pool": lambda: (lambda x: [x, topi.nn.pool2d(x, 3, 2, 1, 1, "max")])(
        te.placeholder((1, 3, 15, 15), name="x")
    ),
    "average pool": lambda: (lambda x: [x, topi.nn.pool2d(x, 2, 2, 1, 0, "avg")])(
        te.placeholder((1, 3, 14, 14), name="x")
    ),
    "global pool": lambda: (lambda x: [x, topi.nn.global_pool(x, "avg")])(
        te.placeholder((1, 9, 7, 7), name="x")
    ),
    "softmax": lambda: (lambda x: [x, topi.nn.softmax(x)])(te.placeholder((3, 50), name="x")),
    "softmax over channels": lambda: (lambda x: [x, softmax_like(x)])(
        te.placeholder((2, 9, 20), name="x")
    ),
    "sum of all": lambda: (lambda x: [x, topi.sum(x)])(te.placeholder((10, 77), name="x")),
    "rows": lambda: (lambda x: [x, topi.max(x, axis=1)])(te.placeholder((3, 100), name="x")),
    "columns": lambda: (lambda x: [x, topi.sum(x, axis=0)])(te.placeholder((13, 40), name="x")),
    "dense": lambda: (lambda x, w: [x, w, topi.nn.relu(dense(x, w))])(
        te.placeholder((3, 40), name="x"), te.placeholder((9, 40), name="w")
    ),
    "conv2d": lambda: (lambda x, w: [x, w, topi.nn.relu(topi.nn.conv2d_nchw(x, w, 1, 1))])(
        te.placeholder((1, 3, 9, 9), name="x"), te.placeholder((5, 3, 3, 3), name="w")
    ),
    "padding of blocks of one": lambda: (lambda x: [x, topi.nn.pad(x, (0, 1, 1, 0))])(
        te.placeholder((3, 7, 40, 1), name="x")
    ),
    "bias of blocks of one": lambda: (lambda x, b: [x, b, topi.add(x, b)])(
        te.placeholder((2, 5, 9, 1), name="x"), te.placeholder((5, 1, 1), name="b")
    ),
    "scalar": lambda: (lambda x: [x, topi.multiply(x, 2.0)])(te.placeholder((), name="x")),
}


@pytest.mark.slow
@pytest.mark.parametrize("case", GENERIC)
def test_generic_schedule_is_right(case: str) -> None:
    dag = ComputeDAG(GENERIC[case]())
    check(dag, generic_schedule(dag, TARGET), case)


@pytest.mark.parametrize(
    "case",
    [
        "relu of 7x7", "bias", "flatten", "max pool", "softmax", "global pool",
        "padding of blocks of one", "bias of blocks of one",
    ],
)  # fmt: skip
def test_generic_schedule_uses_vectors(case: str) -> None:
    dag = ComputeDAG(GENERIC[case]())
    kernel = lower_schedule(generic_schedule(dag, TARGET), TARGET)
    wide = "ramp(" in str(kernel) or " +: " in str(kernel)
    assert wide == (case != "global pool")  # 7 elements side by side fill no two vectors


@pytest.mark.parametrize("order", ["fyx", "y|fx"])
def test_padding_of_blocks_of_one_channel_is_computed_in_vectors(order: str) -> None:
    """Where it is a stage of its own and where each task computes its part."""
    dag = CASES["blocks of one channel"]()
    (sketch,) = anchor_sketches(dag, TARGET)
    space = sketch.space
    index = next(k for k in range(len(space)) if space.get(k)["order"].val == order)
    text = str(sketch.close(index)).partition("data_pad:")[2].partition("data_pad[")[0]
    assert "vectorized for i3.inner in 4" in text


@pytest.mark.slow
def test_nothing_reads_behind_an_input() -> None:
    """Inputs end where they end: only workspaces grow for overhanging tiles."""
    for case in CASES:
        program = lower_schedule(default_schedule(CASES[case](), TARGET), TARGET)
        for buffer in program.args:
            assert buffer.size == math.prod(buffer.shape)


def test_results_do_not_depend_on_what_the_output_held() -> None:
    dag = CASES["nchw 3x3"]()
    module = build(default_schedule(dag, TARGET), target=TARGET)
    inputs = [array(x) for x in random_inputs(dag, 1)]
    results = []
    for held in (1.0, np.nan):
        out = array(np.full(dag.outputs[0].shape, held, "float32"))
        module(*inputs, out)
        results.append(out.numpy())
    assert np.isfinite(results[0]).all()
    np.testing.assert_array_equal(*results)
