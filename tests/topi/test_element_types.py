"""Every operator in every element type it takes: against numpy, and through lowering."""

import re
from pathlib import Path

import numpy as np
import pytest

from tests.topi.operators import FLOATS, INTS, NUMBERS, ROWS
from tilewright import te
from tilewright.base.dtype import TYPES, DType
from tilewright.base.errors import ExpressionError
from tilewright.te import ComputeDAG
from tilewright.te.evaluate import agrees, evaluate_with_tolerance, random_inputs
from tilewright_tvm import topi
from tilewright_tvm.topi import of_networks as later

CASES = [(name, t) for name, row in ROWS.items() for t in row.types]
narrow = pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
nn = topi.nn


def tensors(*shapes, dtype="int8"):
    return [te.placeholder(s, dtype, name=f"p{n}") for n, s in enumerate(shapes)]


def stages(out):
    """The type of every stage, by its name."""
    return {op.name: str(op.dtype) for op in ComputeDAG(out).compute_ops}


@pytest.mark.sampled(163)
@pytest.mark.slow
@pytest.mark.parametrize(("name", "dtype"), CASES)
def test_equals_numpy(name, dtype):
    row = ROWS[name]
    dag = row.dag(dtype)
    for seed in range(3):
        arrays = random_inputs(dag, seed)
        (value,), (bound,) = evaluate_with_tolerance(dag, arrays)
        good = agrees(row.expected(dag, arrays), value, bound)
        assert good.all() and np.isinf(bound).mean() < 0.5


def test_every_operator_has_a_row():
    """By the names of its rows, or of the operators they are made of."""
    told = {
        "adaptive_pool", "batch_flatten", "cast", "conv1d_transpose_ncw", "conv2d",
        "conv2d_transpose_nchw", "conv3d", "conv3d_transpose_ncdhw", "depthwise_conv2d_NCHWc",
        "full",
        "get_pad_tuple", "global_pool", "greater", "group_conv2d_nhwc", "less_equal", "nn",
        "not_equal", "Resizing", "pool1d", "pool2d", "testing",
    }  # fmt: skip
    told |= {n for n in nn.__all__ if "winograd" in n}  # of float32: test_winograd.py
    told |= {"conv1d_ncw", "conv1d_nwc", "conv3d_ncdhw", "conv3d_ndhwc"}  # conv1d and conv3d
    told |= {n for names in later.NAMES.values() for n in names}  # a network's operators
    told.add("sparse_dense")  # of rows that data say: test_sparse.py
    told |= {"dense_narrow", "unpack_narrow"}  # of bytes: tests/graph/test_narrow.py
    told |= {"argwhere", "unique"}  # as many as data say: test_chosen.py
    told.add("reinterpret")  # of bits: tests/tvm/topi/test_on_tensors.py
    told.add("sort_by_key")  # two results: tests/tvm/test_testing.py
    told |= {n for n in nn.__all__ if n.startswith("bi") and n != "bias_add"}  # test_bits.py
    names = {*topi.__all__, *nn.__all__}
    assert names - told <= set(ROWS)


# -- results ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(("dtype", "result"), [
    ("bool", "int32"), ("int8", "int32"), ("uint8", "int32"), ("int32", "int32"),
    ("uint32", "uint32"), ("int64", "int64"), ("float16", "float16"), ("bfloat16", "bfloat16"),
    ("float32", "float32"), ("float64", "float64"),
])  # fmt: skip
def test_type_of_products(dtype, result):
    matrix, image = (
        tensors((3, 4), (3, 4), dtype=dtype),
        tensors((1, 4, 5, 5), (4, 4, 3, 3), dtype=dtype),
    )
    cube, depth = tensors((2, 3, 4), (2, 3, 4), dtype=dtype), te.placeholder((4, 1, 3, 3), dtype)
    for out in (
        nn.dense(*matrix), topi.matmul(*matrix, transp_b=True), nn.batch_matmul(*cube),
        nn.conv2d(*image, 1, 1), nn.depthwise_conv2d_nchw(image[0], depth, 1, 1),
    ):  # fmt: skip
        assert out.dtype == result
        assert out.op.attrs["workload"][-1] == result


@pytest.mark.parametrize(("dtype", "out_dtype"), [
    ("float16", "float32"), ("bfloat16", "float32"), ("int8", "int64"), ("int8", "float32"),
    ("float16", "float16"), ("int16", "int64"), ("float32", "float64"),
])  # fmt: skip
def test_out_dtype(dtype, out_dtype):
    a, b = tensors((3, 40), (5, 40), dtype=dtype)
    out = nn.dense(a, b, out_dtype=out_dtype)
    assert out.dtype == out_dtype
    assert out.op.accumulator == DType(out_dtype).accumulator
    dag = ComputeDAG([a, b, out])
    x, y = random_inputs(dag, 0)
    (value,), (bound,) = evaluate_with_tolerance(dag, [x, y])
    assert agrees(topi.testing.dense(x, y, out_dtype=out_dtype), value, bound).all()


def test_uint8_times_int8_needs_the_type_of_the_result():
    a, b = te.placeholder((3, 4), "uint8", name="a"), te.placeholder((5, 4), "int8", name="b")
    with pytest.raises(ExpressionError, match=r"element types differ.*out_dtype"):
        nn.dense(a, b)
    dag = ComputeDAG([a, b, nn.dense(a, b, out_dtype="int32")])
    x, y = random_inputs(dag, 0)
    (value,), _ = evaluate_with_tolerance(dag, [x, y])
    assert np.array_equal(value, x.astype(int) @ y.astype(int).T)


@narrow
def test_intermediates_of_narrow_floats_are_float32(dtype):
    *c, x = tensors((4,), (4,), (4,), (4,), (2, 4, 6, 6), dtype=dtype)
    assert stages(nn.softmax(x)) == {
        "T_softmax_maxelem": dtype, "T_softmax_exp": "float32", "T_softmax_expsum": "float32",
        "T_softmax_norm": dtype,
    }  # fmt: skip
    assert stages(nn.log_softmax(x))["T_softmax_expsum"] == "float32"
    assert stages(nn.batch_norm(x, *c)[0]) == {
        "T_bn_scale": "float32", "T_bn_shift": "float32", "ScaleShift": dtype,
    }  # fmt: skip
    assert stages(nn.pool2d(x, 2, 2, 1, 0, "avg")) == {"pool_sum": "float32", "pool_avg": dtype}
    assert stages(nn.global_pool(x, "avg"))["adaptive_pool_sum"] == "float32"
    assert stages(topi.mean(x)) == {"p4_red": "float32", "T_divide": dtype}


def test_means_of_float16_do_not_overflow():
    x = te.placeholder((4, 4096), "float16", name="x")
    dag = ComputeDAG([x, topi.mean(x, 1)])
    value, bound = (r[0] for r in evaluate_with_tolerance(dag, [np.full((4, 4096), 100.0)]))
    assert (value == 100).all() and (bound < 0.2).all()


def test_batch_norm_keeps_the_type_of_its_data():
    (x,), c = (
        tensors((2, 4, 3, 3), dtype="float16"),
        tensors((4,), (4,), (4,), (4,), dtype="float32"),
    )
    assert nn.batch_norm(x, *c)[0].dtype == "float16"


@pytest.mark.parametrize("source", TYPES)
@pytest.mark.parametrize("target", TYPES)
def test_cast(source, target):
    (x,) = tensors((40,), dtype=source)
    out = topi.cast(x, target)
    assert out.dtype == target
    if out is x:
        return
    dag = ComputeDAG([x, out])
    (array,) = random_inputs(dag, 0)
    (value,), (bound,) = evaluate_with_tolerance(dag, [array])
    with np.errstate(all="ignore"):
        known = np.isfinite(bound)
        assert agrees(array.astype(DType(target).storage), value, bound)[known].all()
        assert known.mean() > 0.3


# -- refusals --------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", ["int8", "int32", "bool"])
@pytest.mark.parametrize("operator", [
    nn.softmax, nn.log_softmax, lambda x: topi.mean(x), lambda x: nn.global_pool(x, "avg"),
    lambda x: nn.pool2d(x, 2, 2, 1, 0, "avg"),
    lambda x: nn.batch_norm(x, *tensors((4,), (4,), (4,), (4,)))[0],
], ids=["softmax", "log_softmax", "mean", "global_pool", "pool2d", "batch_norm"])  # fmt: skip
def test_what_has_fractions_says_what_to_cast(operator, dtype):
    with pytest.raises(ExpressionError, match=rf'{dtype} is not whole.*topi.cast\(x, "float32"\)'):
        operator(*tensors((1, 4, 6, 6), dtype=dtype))


@pytest.mark.parametrize(("dtype", "out_dtype"), [
    ("float32", "float16"), ("float32", "int32"), ("int8", "int8"), ("int8", "int16"),
    ("int32", "int16"), ("float64", "float32"), ("uint32", "int32"),
])  # fmt: skip
def test_out_dtype_narrower_than_the_sum(dtype, out_dtype):
    with pytest.raises(ExpressionError, match=f"out_dtype='{out_dtype}' is narrower"):
        nn.dense(*tensors((3, 4), (3, 4), dtype=dtype), out_dtype=out_dtype)


def test_float16_with_bfloat16():
    a, b = te.placeholder((3, 4), "float16", name="a"), te.placeholder((3, 4), "bfloat16", name="b")
    for build in (
        lambda: a + b, lambda: nn.dense(a, b, out_dtype="float32"), lambda: topi.where(a, a, b),
        lambda: topi.concatenate([a, b]),
    ):  # fmt: skip
        with pytest.raises(ExpressionError, match="no common type"):
            build()


def test_int8_sums_that_int32_cannot_hold():
    shape = (1, 1 << 18)
    with pytest.raises(ExpressionError, match=r'may exceed what int32 holds.*out_dtype="int64"'):
        nn.dense(*tensors(shape, shape))
    assert nn.dense(*tensors(shape, shape), out_dtype="int64").dtype == "int64"
    with pytest.raises(ExpressionError, match="may exceed what int32 holds"):
        nn.dense(*tensors((1, 2), (1, 2), dtype="int16"))


@pytest.mark.parametrize("number", [300, -129])
def test_numbers_beyond_int8(number):
    (x,) = tensors((3,))
    for build in (lambda: x + number, lambda: topi.full((3,), "int8", number)):
        with pytest.raises(ExpressionError, match="int8 holds -128 to 127"):
            build()


def test_division_of_integers():
    a, b = tensors((3,), (3,))
    assert topi.divide(a, b).dtype == "int8"  # rounded towards zero, as C does
    with pytest.raises(ExpressionError, match="ambiguous"):
        a / b


# -- the page --------------------------------------------------------------------------------------

CLASSES = {
    "all": TYPES, "integers and floats": NUMBERS, "floats": FLOATS, "integers": INTS,
    "bool": ("bool",), "integers and bool": (*INTS, "bool"),
}  # fmt: skip


def test_the_page_names_every_operator_with_its_types():
    page = Path(__file__).parents[2] / "docs" / "element-types.md"
    cells = re.findall(r"^\| ([a-z ]+) \| (.+) \|$", page.read_text(), re.MULTILINE)
    told = {name: CLASSES[c] for c, names in cells if c in CLASSES for name in names.split(", ")}
    variants = {"add a number", "dense with bias", "tanh of int", "power of a fraction"}
    variants |= {
        "take round about",
        "topk in blocks",
        *(name for name in ROWS if name.startswith("scatter_elements ")),
    }
    variants |= {
        "dft, imaginary part",
        "resize between elements",
        "grid_sample nearest",
        "grid_sample bicubic",
    }
    for name in ROWS.keys() - variants:
        assert set(told[name]) >= set(ROWS[name].types), name
        assert set(told[name]) - set(ROWS[name].types) <= {"int16", "uint16"}, name
