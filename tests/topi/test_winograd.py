"""Winograd's convolutions: their matrices are exact, their kernels right, their additions few."""

import itertools
import re
from fractions import Fraction

import numpy as np
import pytest

from tilewright import te
from tilewright.base.errors import ExpressionError
from tilewright.codegen import generate
from tilewright.driver.build import build_artifact
from tilewright.lowering.pipeline import lower_schedule
from tilewright.runtime.device import device
from tilewright.runtime.trial import trial
from tilewright.schedule.default import generic_schedule
from tilewright.schedule.task import task_of_dag
from tilewright.targets.target import Target
from tilewright.te.cases import cases
from tilewright.te.dag import ComputeDAG
from tilewright.te.evaluate import approximations, random_inputs
from tilewright.topi.nn.winograd import MAX_POINTS, matrices, winograd
from tilewright_tvm import topi

SHAPES = [(m, r) for m, r in itertools.product(range(2, 7), range(2, 6)) if m + r - 2 <= MAX_POINTS]
CPU = "llvm -num-cores=2 -vector-bytes=32"


def dag_of(layout="NCHW", size=6, m=2, tiles_first=None, transformed=True, channels=(16, 24), n=1):
    """A convolution with bias and relu; its kernel is constant where it comes transformed."""
    ci, co = channels
    first = layout == "NCHW"
    data = te.placeholder((n, ci, size, size) if first else (n, size, size, ci), name="data")
    shape = (co, ci, 3, 3) if first else (3, 3, ci, co)
    if transformed:
        shape = (m + 2, m + 2, ci, co) if first else (m + 2, m + 2, co, ci)
    weight = te.placeholder(shape, name="weight", constant=transformed)
    bias = te.placeholder((co, 1, 1) if first else (co,), name="bias")
    made = winograd(data, weight, 1, m, layout, tiles_first, None, transformed)
    return ComputeDAG([data, weight, bias, topi.nn.relu(topi.add(made, bias))])


@pytest.mark.parametrize(("m", "r"), SHAPES)
def test_the_matrices_give_a_convolution(m, r):
    """Exactly, for every element of the data and of the kernel: the identity is bilinear."""
    found, alpha = matrices(m, r), m + r - 1
    for d, k, i in itertools.product(range(alpha), range(r), range(m)):
        made = sum(
            found.inverse[e][i] * found.kernel[e][k] * found.data[d][e] for e in range(alpha)
        )
        assert made == Fraction(int(d == i + k))
    numbers = [x for rows in (found.inverse, found.data) for row in rows for x in row]
    assert all(x.denominator & (x.denominator - 1) == 0 for x in numbers)


@pytest.mark.parametrize(("layout", "m", "size"), [("nchw", 2, 7), ("nhwc", 4, 9), ("nchw", 3, 5)])
def test_it_computes_what_the_direct_convolution_does(layout, m, size):
    data = te.placeholder((2, 5, size, size) if layout == "nchw" else (2, size, size, 5), name="d")
    weight = te.placeholder((4, 5, 3, 3) if layout == "nchw" else (3, 3, 5, 4), name="w")
    padding = (1, 0, 2, 1)
    direct = getattr(topi.nn, f"conv2d_{layout}")(data, weight, 1, padding)
    made = getattr(topi.nn, f"conv2d_winograd_{layout}")(data, weight, 1, padding, tile_size=m)
    inputs = random_inputs(ComputeDAG([data, weight, made]), 0)
    (wanted,) = approximations(ComputeDAG([data, weight, direct]), inputs)
    (found,) = approximations(ComputeDAG([data, weight, made]), inputs)
    assert found.value.shape == wanted.value.shape
    assert (np.abs(found.value - wanted.value) <= found.error + wanted.error).all()
    assert found.error.max() < 50 * wanted.error.max()  # it grows, but not without limit


def test_a_kernel_transformed_before_gives_the_same():
    data, plain = te.placeholder((1, 3, 8, 8), name="d"), te.placeholder((4, 3, 3, 3), name="w")
    inputs = random_inputs(ComputeDAG([data, plain, topi.nn.conv2d_nchw(data, plain, 1, 1)]), 0)
    whole = topi.nn.conv2d_winograd_nchw(data, plain, 1, 1)
    (wanted,) = approximations(ComputeDAG([data, plain, whole]), inputs)
    packed = topi.nn.conv2d_winograd_weight_transform(plain, 4)  # [alpha, alpha, CO, CI]
    (u,) = approximations(ComputeDAG([plain, packed]), inputs[1:])
    kernel = te.placeholder((6, 6, 3, 4), name="u")
    again = topi.nn.conv2d_winograd_nchw_without_weight_transform(data, kernel, 1, 1)
    given = [inputs[0], u.value.transpose(0, 1, 3, 2)]
    (found,) = approximations(ComputeDAG([data, kernel, again]), given)
    assert (np.abs(found.value - wanted.value) <= found.error + wanted.error).all()


@pytest.mark.parametrize("m", [2, 4])
def test_whole_numbers_stay_exact(m):
    """With a kernel that is transformed already: one missing term shows, as in a direct one."""
    exact, random = reversed(cases(dag_of(m=m, size=8)))
    assert (np.asarray(exact.tolerance[0]) == 0).mean() > 0.9
    assert np.asarray(random.tolerance[0]).max() > 0


def test_how_much_it_rounds():
    """Sums of 256 channels in float32, against float64, beside those of a direct convolution."""
    rng = np.random.default_rng(0)
    data = rng.standard_normal((256, 100, 6, 6)).astype("float32")
    kernel = (rng.standard_normal((256, 3, 3)) / 48).astype("float32")
    windows = np.lib.stride_tricks.sliding_window_view(data, (3, 3), (2, 3))
    want = np.einsum("cpyxij,cij->pyx", windows.astype("float64"), kernel.astype("float64"))

    def summed(terms):
        total = np.zeros(terms[0].shape, "float32")
        for term in terms:
            total += term
        return total

    direct = summed([windows[c, ..., i, j] * kernel[c, i, j]
                    for c in range(256) for i in range(3) for j in range(3)])  # fmt: skip
    a, b, g = (np.array(x, "float64") for x in (
        matrices(4, 3).inverse, matrices(4, 3).data, matrices(4, 3).kernel,
    ))  # fmt: skip
    u = np.einsum("ey,cyx,wx->cew", g, kernel.astype("float64"), g).astype("float32")
    tiles = np.einsum("ye,cpyx->cpex", b.astype("float32"), data)
    tiles = np.einsum("xw,cpex->cpew", b.astype("float32"), tiles)
    product = summed([tiles[c] * u[c] for c in range(256)])
    rows = np.einsum("em,pew->pmw", a.astype("float32"), product)
    made = np.einsum("wn,pmw->pmn", a.astype("float32"), rows)
    growth = np.abs(made - want).max() / np.abs(direct - want).max()
    assert 1.5 < growth < 4


def test_transforms_are_additions():
    """Of constants only the sums remain: no choice, no zero, no loop over them."""
    m, target = 4, Target(CPU)
    (sketch,) = task_of_dag(dag_of(m=m, size=8, tiles_first=True), target).sketches
    text = generate(lower_schedule(sketch.close(sketch.fallback()), target), target).text
    first, *_, last = re.findall(r"^define void.*?^}", text, re.S | re.M)
    found = matrices(m, 3)
    data, inverse = ([sum(map(bool, c)) - 1 for c in zip(*rows, strict=True)]
                     for rows in (found.data, found.inverse))  # fmt: skip
    alpha = m + 2
    assert " select " not in first and " select " not in last
    assert 0 < additions(first) <= 2 * alpha * sum(data)
    behind = 2 * m * m * 24 // 8  # bias and relu
    assert 0 < additions(last) <= (alpha + m) * sum(inverse) + behind


def additions(text):
    return sum(text.count(word) for word in (" fadd ", " fsub ", "@llvm.fmuladd"))


CASES = [
    ("NCHW", 7, 2, None, True, 2), ("NCHW", 14, 4, True, True, 1), ("NHWC", 8, 4, None, True, 1),
    ("NHWC", 5, 2, False, True, 1), ("NCHW", 6, 4, None, False, 2), ("NHWC", 7, 4, None, False, 1),
]  # fmt: skip


@pytest.mark.sampled(2)
@pytest.mark.slow
@pytest.mark.parametrize("kind", ["llvm", "opencl"])
@pytest.mark.parametrize(("layout", "size", "m", "tiles_first", "transformed", "n"), CASES)
def test_kernels_are_right(kind, layout, size, m, tiles_first, transformed, n):
    """Those of the template and of the default schedule, with bias and relu in the last nest."""
    if not device(kind).exist:
        pytest.skip(f"no {kind} device here")
    dag = dag_of(layout, size, m, tiles_first, transformed, n=n)
    task = task_of_dag(dag, kind)
    (sketch,) = task.sketches
    random, exact = cases(dag)
    for schedule in (sketch.close(sketch.fallback()), generic_schedule(dag, task.target)):
        made = build_artifact(schedule, task.target)
        done = trial(
            made, device(kind), exact.inputs, exact.expected, exact.tolerance, also=[random]
        )
        assert done.error is None, done.message


@pytest.mark.sampled(2)
@pytest.mark.slow
@pytest.mark.parametrize("target", [CPU, "cuda", "opencl"])
def test_members_of_the_space_lower(target):
    (sketch,) = task_of_dag(
        dag_of(size=14, m=4, tiles_first=target == CPU), Target(target)
    ).sketches
    drawn = sketch.space.sample(64, np.random.default_rng(0))
    for index in drawn[sketch.legal(drawn)][:4].tolist():
        program = lower_schedule(sketch.close(index), Target(target))
        assert len(program.kernels) in (3, 4) and generate(program, Target(target)).text


def test_one_kernel_for_a_transform_of_matrices_as_tensors():
    """A computation of one's own, with the attribute of TVM's auto-scheduler."""
    _, b, _ = topi.nn.winograd_transform_matrices(2, 3)
    data = te.placeholder((4, 4, 10), name="data")
    k = te.reduce_axis((0, 4), "k")
    made = te.compute((4, 4, 10), lambda e, u, c: te.sum(data[k, u, c] * b[k, e], axis=k))
    inputs = random_inputs(ComputeDAG([data, made]), 0)
    (found,) = approximations(ComputeDAG([data, made]), inputs)
    rows = np.array(matrices(2, 3).data, "float64")
    np.testing.assert_allclose(found.value, np.einsum("kuc,ke->euc", inputs[0], rows))


REFUSED = [
    ({"strides": 2}, "strides=2 is not 1"),
    ({"dilation": (1, 2)}, r"dilation=\(1, 2\) is not 1"),
    ({"tile_size": 1}, "tile_size=1 is not an int of at least 2"),
    ({"tile_size": 12}, "is not offered"),
    ({"weight": (4, 8, 3, 2)}, "the kernel is not square"),
    ({"weight": (4, 7, 3, 3)}, "the kernel reads 7 channels, data has 8"),
    ({"dtype": "int8"}, "is not whole"),
]


@pytest.mark.parametrize(("given", "reason"), REFUSED)
def test_what_has_no_form_of_winograds_is_refused(given, reason):
    options = dict(given)
    dtype = options.pop("dtype", "float32")
    data = te.placeholder((1, 8, 8, 8), dtype, name="d")
    weight = te.placeholder(options.pop("weight", (4, 8, 3, 3)), dtype, name="w")
    with pytest.raises(ExpressionError, match=reason):
        topi.nn.conv2d_winograd_nchw(data, weight, **{"padding": 1, **options})


def test_an_unknown_layout_and_a_template_for_another_computation():
    data, weight = te.placeholder((1, 8, 8, 8), name="d"), te.placeholder((4, 8, 3, 3), name="w")
    with pytest.raises(ExpressionError, match="data layout 'NCHW4c' is unknown"):
        winograd(data, weight, data_layout="NCHW4c")
    a, b = (te.placeholder((4, 4, 8, 8), name=n) for n in "ab")
    k = te.reduce_axis((0, 8), "k")
    alone = te.compute(
        (4, 4, 8, 8), lambda e, u, i, j: te.sum(a[e, u, i, k] * b[e, u, k, j], axis=k),
        tag="winograd_cp",
    )  # fmt: skip
    assert task_of_dag(ComputeDAG([a, b, alone]), "llvm").sketches == []
