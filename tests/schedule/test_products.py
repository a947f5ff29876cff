"""Sums of products as whole matrix products: `as_product`, `pad`, and factors in another layout.

Random convolutions and products of every element type, groups, strides and layout, changed at
random, mean what they meant; a constant is stored before the program runs as a kernel would do it.
"""

from __future__ import annotations

import json
import random
from dataclasses import asdict

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from schedule.drawing import draw_products, draw_schedule
from schedule.test_schedules import assert_right, interpret, lowered
from strategies import matmul as product_dag
from tests.tiers import examples
from tilewright import te, topi
from tilewright.base import plain
from tilewright.base.artifact import Packing
from tilewright.base.errors import ScheduleError
from tilewright.codegen import generate
from tilewright.driver.compilers import compile_source
from tilewright.ir.atoms import ATOMS, places
from tilewright.ir.stmt import Program
from tilewright.lowering.pipeline import lower_schedule
from tilewright.runtime import artifact_file
from tilewright.runtime.device import device
from tilewright.runtime.module import Module
from tilewright.runtime.ndarray import array, empty
from tilewright.schedule.fragment_order import fragment_order
from tilewright.schedule.schedule import Schedule, create_schedule
from tilewright.targets.target import Target
from tilewright.te.dag import ComputeDAG
from tilewright.te.evaluate import agrees, evaluate, evaluate_with_tolerance, random_inputs
from tilewright.te.tensor import ComputeOp, PlaceholderOp

SEEDS = st.integers(0, 10**9)
TYPES = ("float32", "float16", "bfloat16", "int8")


def convolution(rng: random.Random) -> ComputeDAG:
    """Of one to three dimensions, with groups, strides and dilations, and something behind it."""
    rank = rng.choice((1, 2, 2, 2, 3))
    image = "DHW"[-rank:]
    layout = rng.choice((f"NC{image}", f"N{image}C"))
    groups, dtype = rng.choice((1, 1, 2, 3)), rng.choice(TYPES)
    kernel = {c: rng.randint(1, 3) for c in image} | {"I": rng.randint(1, 3)}
    kernel["O"] = groups * rng.randint(1, 4)
    size = {c: rng.randint(3, 6) for c in image} | {"N": rng.randint(1, 2)}
    size["C"] = groups * kernel["I"]
    names = rng.choice((f"OI{image}", f"{image}IO"))
    data = te.placeholder([size[c] for c in layout], dtype, name="data")
    weight = te.placeholder(
        [kernel[c] for c in names], dtype, name="weight", constant=rng.random() < 0.6
    )
    stride, padding, dilation = rng.randint(1, 2), rng.randint(0, 2), rng.choice((1, 1, 2))
    if all(size[c] + 2 * padding < (kernel[c] - 1) * dilation + 1 for c in image):
        dilation = 1
    padding = max(padding, dilation)
    sums = topi.nn.conv(data, weight, stride, padding, dilation, groups, layout, names)
    last = topi.nn.relu(sums) if rng.random() < 0.4 else sums
    return ComputeDAG([data, weight, last])


def transposed(rng: random.Random) -> ComputeDAG:
    """A convolution of which some terms do not count."""
    dtype, groups = rng.choice(TYPES[:3]), rng.choice((1, 1, 2))
    own, outputs, size = rng.randint(1, 3), rng.randint(1, 3), rng.randint(2, 4)
    data = te.placeholder((rng.randint(1, 2), own * groups, size, size), dtype, name="data")
    shape = (own * groups, outputs, rng.randint(1, 3), rng.randint(1, 3))
    weight = te.placeholder(shape, dtype, name="weight", constant=rng.random() < 0.5)
    made = topi.nn.conv_transpose(data, weight, rng.randint(1, 2), 0, groups=groups)
    return ComputeDAG([data, weight, made])


def depthwise(rng: random.Random) -> ComputeDAG:
    channels, times, size = rng.randint(1, 4), rng.randint(1, 2), rng.randint(3, 5)
    data = te.placeholder((1, channels, size, size), name="data")
    weight = te.placeholder((channels, times, 3, 3), name="weight", constant=rng.random() < 0.5)
    return ComputeDAG([data, weight, topi.nn.depthwise_conv2d_nchw(data, weight, 1, 1)])


def product(rng: random.Random) -> ComputeDAG:
    m, n, k = (rng.randint(1, 9) for _ in range(3))
    dtype, how = rng.choice(TYPES[:3]), rng.choice(("nn", "nt", "tn", "tt"))
    end = rng.choice(("", "relu", "bias_relu"))
    return product_dag(m, n, k, rng.choice((0, 0, 2)), how, end, dtype)


def drawn(seed: int) -> tuple[random.Random, ComputeDAG]:
    rng = random.Random(seed)
    makers = (convolution, product, transposed, depthwise)
    (make,) = rng.choices(makers, (6, 3, 1, 1))
    return rng, make(rng)


@pytest.mark.slow
@given(SEEDS)
@examples(30)
def test_matrix_products_are_the_sums_that_they_stand_for(seed: int) -> None:
    rng, dag = drawn(seed)
    s = Schedule(dag)
    draw_products(s, rng, 1.0)
    check(dag, lower_schedule(s, Target("llvm")), seed)
    again = Schedule.replay(dag, s.to_json())
    assert str(again) == str(s)
    exec(s.to_python(), {"te": te}, {"s": (told := Schedule(dag)), **variables(dag)})
    assert told.steps == s.steps


def variables(dag: ComputeDAG) -> dict[str, te.Tensor]:
    return {name: op.output_tensor for op, name in dag.unique_names().items()}


@pytest.mark.slow
@given(SEEDS)
@examples(30)
def test_whatever_is_scheduled_behind_them(seed: int) -> None:
    rng, dag = drawn(seed)
    gpu = rng.random() < 0.6
    s = draw_schedule(dag, rng, gpu=gpu)
    program = lowered(s, "cuda" if gpu else "llvm")
    if program is not None:
        check(dag, program, seed)


def check(dag: ComputeDAG, program: Program, seed: int = 0) -> None:
    inputs = random_inputs(dag, seed)
    assert_right(dag, program, interpret(program, inputs), inputs)


@pytest.mark.slow
@given(SEEDS)
@examples(60)
def test_constants_are_stored_as_a_kernel_would_store_them(seed: int) -> None:
    rng, dag = drawn(seed)
    s = Schedule(dag)
    draw_products(s, rng, 1.0)
    for stage in s.stages:
        packing = stage.op.attrs.get("packing") if isinstance(stage.op, ComputeOp) else None
        if packing is None:
            continue
        of = stage.op.input_tensors[0]
        if not isinstance(of.op, PlaceholderOp):
            continue
        (value,) = random_inputs(ComputeDAG([of, whole(stage.op)]), seed)
        (wanted,) = evaluate(ComputeDAG([of, whole(stage.op)]), [value])
        stored = packing.apply(value)
        assert stored.shape == stage.op.shape == packing.packed_shape
        assert np.array_equal(stored.astype(np.float64), np.asarray(wanted, np.float64))
        assert plain.read(Packing, json.loads(json.dumps(asdict(packing)))) == packing


def whole(op: ComputeOp) -> te.Tensor:
    return ComputeOp("stored", op.axis, op.body).output_tensor


def test_packings_of_older_files_are_read() -> None:
    old = plain.read(Packing, {"shape": [3, 5], "blocks": [1, 2], "order": [1, 0, 3]})
    assert old == Packing((3, 5), (1, 2), (1, 0, 3))
    stored = old.apply(np.arange(15).reshape(3, 5))
    assert stored.shape == (3, 3, 2) and stored[2, 1].tolist() == [9, 0]


def weights() -> tuple[ComputeDAG, Schedule]:
    """A convolution whose weights are stored in the order of an atom's lanes."""
    data = te.placeholder((1, 5, 6, 6), name="data")
    weight = te.placeholder((20, 5, 3, 3), name="weight", constant=True)
    sums = topi.nn.conv2d_nchw(data, weight, 1, 1)
    s = create_schedule(sums.op)
    _, f, y, x = sums.op.axis
    made = s.as_product(sums, m=[f], n=[y, x], k=sums.op.reduce_axis)
    *_, m, n = s[made].op.axis
    made = s.pad(made, {m: 16, n: 8, s[made].op.reduce_axis[0]: 8})
    (stored,) = (st.tensor for st in s.stages if st.name == "weight.matrix")
    assert stored.shape == (32, 48)
    s.pack(stored, *fragment_order(ATOMS["m16n8k8.tf32"].a))
    return ComputeDAG([data, weight, sums]), s


@pytest.mark.slow
def test_weights_are_packed_before_the_program_runs_and_in_its_file() -> None:
    dag, s = weights()
    program = lower_schedule(s, Target("llvm"))
    stored = next(b for b in program.args if b.packing is not None)
    assert stored.packing.shape == (20, 5, 3, 3) and stored.shape[:2] == (2, 6)
    assert all("weight" not in k.name for k in program.kernels)
    check(dag, program)
    made = compile_source(generate(program, Target("llvm")), Target("llvm"))
    module = Module(artifact_file.from_bytes(artifact_file.to_bytes(made)), device("llvm"))
    inputs = random_inputs(dag, 1)
    result = empty(dag.outputs[0].shape, "float32", device("llvm"))
    module(*(array(x, device("llvm")) for x in inputs), result)
    np.testing.assert_allclose(result.numpy(), evaluate(dag, inputs)[0], rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("name", ATOMS)
@pytest.mark.parametrize("operand", ["a", "b", "sum"])
def test_a_lane_finds_its_elements_side_by_side(name: str, operand: str) -> None:
    fragment = getattr(ATOMS[name], operand)
    rows, columns = (int(at.max()) + 1 for at in places(fragment))
    matrix = np.arange(6 * rows * columns).reshape(2 * rows, 3 * columns)
    blocks, order = fragment_order(fragment)
    layout = Packing(matrix.shape, (rows, columns), tuple(order), tuple(map(tuple, blocks)))
    lanes = layout.apply(matrix).reshape(2, 3, 32, fragment.elements)
    at, across = places(fragment)
    for i, j in np.ndindex(2, 3):
        assert np.array_equal(lanes[i, j], matrix[rows * i + at, columns * j + across])


def test_elements_of_two_atoms_lie_together() -> None:
    fragment = ATOMS["m16n8k16.float16"].b
    matrix = np.arange(64 * 8).reshape(64, 8)
    blocks, order = fragment_order(fragment, atoms={"k": 2})
    layout = Packing(matrix.shape, (32, 8), tuple(order), tuple(map(tuple, blocks)))
    lanes = layout.apply(matrix).reshape(2, 32, 2, 4)
    at, across = places(fragment)
    for i, second in np.ndindex(2, 2):
        assert np.array_equal(lanes[i, :, second], matrix[32 * i + 16 * second + at, across])


def test_fragment_order_refuses_what_is_no_matrix() -> None:
    fragment = ATOMS["m16n8k8.tf32"].a
    with pytest.raises(ScheduleError, match="two dimensions"):
        fragment_order(fragment, 2, (0, 0))
    with pytest.raises(ScheduleError, match="3 atoms along k"):
        fragment_order(fragment, atoms={"k": 3})


def interpreted(s: Schedule, inputs: list[np.ndarray]) -> np.ndarray:
    return interpret(lower_schedule(s, Target("llvm")), inputs)[0]


@pytest.mark.parametrize("operand", [0, 1])
def test_what_is_added_is_zero_in_both_factors(operand: int) -> None:
    """No product of zero with an infinity, or with the neighbours of a window."""
    rng = np.random.default_rng(3)
    data = te.placeholder((1, 7, 9), name="data")
    weight = te.placeholder((5, 7, 3), name="weight")
    sums = topi.nn.conv1d(data, weight, 1, 0)
    inputs = [rng.normal(size=t.shape).astype("float32") for t in (data, weight)]
    inputs[operand].flat[20] = np.inf
    wanted = interpreted(create_schedule(sums.op), inputs)
    assert np.isfinite(wanted).any() and not np.isfinite(wanted).all()
    s = create_schedule(sums.op)
    _, f, x = sums.op.axis
    rc, rx = sums.op.reduce_axis
    s.pad(sums, {f: 4, x: 8, rc: 4})
    assert np.array_equal(interpreted(s, inputs), wanted, equal_nan=True)
    s = create_schedule(sums.op)
    made = s.as_product(sums, m=[f], n=[x], k=[rc, rx])
    *_, m, n = s[made].op.axis
    s.pad(made, {m: 4, n: 8, s[made].op.reduce_axis[0]: 16})
    assert np.array_equal(interpreted(s, inputs), wanted, equal_nan=True)


def test_a_constant_that_others_read_is_not_stored_anew() -> None:
    weight = te.placeholder((5, 6), name="weight", constant=True)
    data = te.placeholder((3, 6), name="data")
    sums = topi.nn.dense(data, weight)
    total = te.compute((3, 5), lambda i, j: sums[i, j] + weight[j, i], name="total")
    dag = ComputeDAG([data, weight, total])
    s = Schedule(dag)
    _, j = sums.op.axis
    s.pad(sums, {j: 4})
    program = lower_schedule(s, Target("llvm"))
    assert not any(b.packing for b in program.args)
    check(dag, program)


def test_a_constant_that_is_read_in_part_is_not_stored_anew() -> None:
    weight = te.placeholder((5, 2, 4), name="weight", constant=True)
    data = te.placeholder((3, 2, 3), name="data")
    a, b = te.reduce_axis((0, 2), "a"), te.reduce_axis((0, 3), "b")
    sums = te.compute(
        (3, 5), lambda i, j: te.sum(data[i, a, b] * weight[j, a, b], axis=[a, b]), name="sums"
    )
    dag = ComputeDAG([data, weight, sums])
    i, j = sums.op.axis
    for whole_first in (False, True):
        s = Schedule(dag)
        if whole_first:
            s.pad(sums, {b: 4})
        else:
            s.as_product(sums, m=[i], n=[j], k=[a, b])
        program = lower_schedule(s, Target("llvm"))
        assert not any(b.packing for b in program.args)
        check(dag, program)


def test_extents_that_calls_give_stay_open() -> None:
    batch = te.var("n")
    data = te.placeholder((batch, 3, 6, 6), name="data")
    weight = te.placeholder((4, 3, 3, 3), name="weight", constant=True)
    sums = topi.nn.conv2d_nchw(data, weight, 1, 1)
    dag = ComputeDAG([data, weight, sums])
    s = Schedule(dag)
    nn, f, y, x = sums.op.axis
    for refused in (
        lambda: s.as_product(sums, m=[f], n=[nn, y, x], k=sums.op.reduce_axis),
        lambda: s.pad(sums, {nn: 8}),
    ):
        with pytest.raises(ScheduleError, match="the extent of nn is a variable"):
            refused()
    made = s.as_product(sums, m=[f], n=[y, x], k=sums.op.reduce_axis)
    *_, m, n = s[made].op.axis
    assert n.name != "n", "that is the variable"
    s.pad(made, {m: 16, n: 8, s[made].op.reduce_axis[0]: 16})
    program = lower_schedule(s, Target("llvm"))
    assert any(b.packing for b in program.args)
    module = Module(compile_source(generate(program, Target("llvm")), Target("llvm")))
    for count in (1, 3):
        inputs = random_inputs(closed := dag.at(n=count), count)
        result = empty(closed.outputs[0].shape, "float32", device("llvm"))
        module(*(array(value, device("llvm")) for value in inputs), result)
        (wanted,), (bound,) = evaluate_with_tolerance(closed, inputs)
        assert agrees(result.numpy(), wanted, bound).all()


def test_a_multiple_is_a_number() -> None:
    dag, s = weights()
    sums = dag.outputs[0]
    with pytest.raises(ScheduleError, match="not an integer"):
        s.pad(sums, {sums.op.axis[1]: None})
