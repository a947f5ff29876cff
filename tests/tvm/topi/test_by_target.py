"""Schedules and helpers under the names of TVM's topi: right for each operator and target."""

from __future__ import annotations

import numpy as np
import pytest

import tilewright_tvm
from strategies import assert_computes
from tests.specialise import specialised
from tilewright import build, device, lower, te
from tilewright.base.errors import ExpressionError
from tilewright.targets.target import Target
from tilewright.te.dag import ComputeDAG
from tilewright_tvm import nd, topi
from tilewright_tvm.topi import by_target, utils


@pytest.mark.slow
@pytest.mark.parametrize("folder", by_target.TARGETS)
@pytest.mark.parametrize("name", ["injective", "reduce", "softmax", "dense"])
def test_a_schedule_by_name_computes_what_it_is_for(folder: str, name: str) -> None:
    a, w = te.placeholder((6, 10), name="A"), te.placeholder((7, 10), name="W")
    outputs = {
        "injective": lambda: topi.nn.relu(topi.add(a, 1.0)), "reduce": lambda: topi.sum(a, axis=1),
        "softmax": lambda: topi.nn.softmax(a), "dense": lambda: topi.nn.dense(a, w),
    }  # fmt: skip
    out = outputs[name]()
    s = getattr(getattr(topi, folder), f"schedule_{name}")([out])
    assert_computes(lower(s, target=by_target.TARGETS[folder]), s.dag)


def test_the_target_in_force_is_scheduled_for() -> None:
    a = te.placeholder((64,), name="A")
    out = topi.exp(a)
    with Target("cuda"):
        assert topi.generic.schedule_injective(out).binds_threads
    assert not topi.generic.schedule_injective(out).binds_threads
    assert topi.cuda.schedule_injective(out).binds_threads
    assert topi.testing.get_injective_schedule("opencl")(out).binds_threads
    one = te.create_schedule(out.op)
    assert topi.cuda.schedule_injective_from_existing(one, out) is one and one.binds_threads


def test_names_that_tvm_does_not_have_are_pythons_error() -> None:
    for name in ("schedule_nonsense", "nonsense", "schedule_"):
        with pytest.raises(AttributeError, match=f"topi.cuda has no attribute '{name}'"):
            getattr(topi.cuda, name)
    assert topi.x86.conv2d_nchw is topi.nn.conv2d_nchw is topi.cuda.conv2d_nchw
    assert topi.testing.dispatch("cuda", {"generic": 1, "gpu": 2}) == 2
    assert topi.testing.dispatch("llvm", {"generic": 1, "gpu": 2}) == 1
    with pytest.raises(ExpressionError, match="there is no entry for any of"):
        topi.testing.dispatch("llvm", {"gpu": 2})


def test_files_of_tvms_folders_are_imported_from() -> None:
    from tilewright_tvm.topi.cuda.depthwise_conv2d import schedule_depthwise_conv2d_nhwc
    from tilewright_tvm.topi.nn.util import get_pad_tuple  # its name before TVM 0.8

    from tilewright_tvm.topi.generic import conv2d

    assert get_pad_tuple is topi.nn.utils.get_pad_tuple
    assert conv2d.schedule_conv2d_nhwc is topi.generic.schedule_conv2d_nhwc
    a = te.placeholder((8,), name="A")
    assert schedule_depthwise_conv2d_nhwc(topi.exp(a)).binds_threads
    with pytest.raises(ImportError, match="cannot import name 'nonsense'"):
        from tilewright_tvm.topi.x86.conv2d import nonsense  # noqa: F401


def test_pads_by_the_names_of_tvm() -> None:
    pads = topi.nn.utils
    assert pads.get_pad_tuple((1, 2), (3, 3)) == (1, 2, 1, 2)
    assert pads.get_pad_tuple("SAME", (4, 3)) == (2, 1, 1, 1)
    assert pads.get_pad_tuple1d("SAME", 4) == (2, 1)
    assert pads.get_pad_tuple1d((3, 1), (5,)) == (3, 1)
    assert pads.get_pad_tuple3d(1, (3, 3, 3)) == (1,) * 6
    assert pads.get_pad_tuple_generic("SAME", (2, 5)) == ((1, 2), (0, 2))
    with pytest.raises(ExpressionError, match="padding='ALL'.*unknown padding 'ALL'"):
        pads.get_pad_tuple("ALL", (3, 3))


def test_numpy_and_an_operator_are_compared() -> None:
    a = np.arange(6, dtype="float32").reshape(2, 3)
    how = "llvm", device("llvm"), topi.exp, topi.generic.schedule_injective
    topi.testing.compare_numpy_tvm([a], np.exp(a), *how)
    with pytest.raises(AssertionError, match="Not equal to tolerance"):
        topi.testing.compare_numpy_tvm([a], np.exp(a) + 1, *how)


def test_helpers_of_shapes() -> None:
    n = te.var("n")
    assert utils.get_const_tuple((te.const(3), n, 4)) == (3, n, 4)
    layouts = ("NCHW", "NCHW16c", "NCHW1n16c", "NHWC")
    assert [utils.nchw_pack_layout(x) for x in layouts] == [False, False, True, False]
    assert [utils.nchw_xc_layout(x) for x in layouts] == [False, True, False, False]
    assert utils.get_const_int(te.const(3) * 2) == 6 and utils.get_const_float(te.const(2.5)) == 2.5
    assert utils.equal_const_int(te.const(3), 3) and not utils.equal_const_int(n, 3)
    assert utils.get_shape((3, 2, 32, 48, 16), "NCHW16c", "NC16cWH") == (3, 2, 16, 48, 32)
    with pytest.raises(ExpressionError, match="have not the same axes"):
        utils.get_shape((1, 16, 2, 2), "NCHW", "NCHW16c")
    assert utils.prod(()) == 1 and utils.prod((2, te.const(3))) == 6
    assert utils.ravel_index([1, 2], [4, 5]) == 7
    assert [utils.simplify(i) for i in utils.unravel_index(7, [4, 5])] == [1, 2]
    with pytest.raises(ExpressionError, match=r"get_const_int\(n\): it is no constant"):
        utils.get_const_int(n)
    a = te.placeholder((4,), name="A")
    out = topi.nn.relu(topi.add(a, 1.0))
    s, seen = te.create_schedule(out.op), []
    utils.traverse_inline(s, out.op, seen.append)
    assert [op.name for op in seen] == ["compute", "T_add"]
    assert s[out.op.input_tensors[0]].attach_kind == "inline"


CASES = {
    "reshape": lambda n: topi.reshape(te.placeholder((n, 4, 5), name="A"), (n, -1)),
    "swap": lambda n: topi.reshape(te.placeholder((8, n), name="A"), (n, 8)),
    "broadcast": lambda n: topi.broadcast_to(te.placeholder((1, 6), name="A"), (n, 6)),
    "mean": lambda n: topi.mean(te.placeholder((n, 6), name="A"), axis=0),
    "convolution": lambda n: topi.nn.conv2d_nchw(
        te.placeholder((1, 3, n, n), name="D"), te.placeholder((4, 3, 3, 3), name="W"), 1, 1
    ),
    "product": lambda n: topi.nn.batch_matmul(
        te.placeholder((n, 4, 5), name="A"), te.placeholder((n, 6, 5), name="B")
    ),
    "slice": lambda n: topi.strided_slice(te.placeholder((n, 9), name="A"), [1], [7], axes=[1]),
    "pool": lambda n: topi.nn.pool2d(
        te.placeholder((n, 2, 8, 8), name="A"), (2, 2), (2, 2), (1, 1), (0, 0, 0, 0), "max"
    ),
    "any": lambda n: topi.any(te.placeholder((n, 6), "bool", name="A"), axis=1),
}


@pytest.mark.parametrize("kind", ["llvm", "cuda"])
@pytest.mark.parametrize("name", CASES)
def test_operators_take_extents_that_are_variables(name: str, kind: str) -> None:
    out = CASES[name](te.var("n"))
    s = topi.testing.get_injective_schedule(kind)(out)
    program = lower(s, target=kind)
    for n in (1, 5):
        assert_computes(specialised(program, {"n": n}), ComputeDAG(s.dag.args).at(n=n))


def test_operators_of_scalar_arguments_are_expressions() -> None:
    x, y = te.var("x", "float32"), te.var("y", "float32")
    assert isinstance(topi.add(x, y), tilewright_tvm.tir.PrimExpr)
    assert topi.exp(x) is te.exp(x) and str(topi.floor_mod(x, y)) == str(x % y)
    a = te.placeholder((3,), name="A")
    out = topi.multiply(a, x)
    f, result = build(te.create_schedule(out.op), [a, x, out], "llvm"), nd.empty((3,))
    f(nd.array(np.ones(3, "float32")), 2.5, result)
    assert (result.numpy() == 2.5).all() and device("llvm").exist


def test_sizes_of_convolutions_and_what_cpus_begin_with() -> None:
    from tilewright_tvm.topi.nn.conv2d import _get_workload
    from tilewright_tvm.topi.nn.depthwise_conv2d import _get_workload as depthwise
    from tilewright_tvm.topi.x86.conv2d_avx_common import _fallback_schedule
    from tilewright_tvm.topi.x86.depthwise_conv2d import schedule_depthwise_conv2d_nchw

    from tilewright_tvm.autotvm import FallbackConfigEntity, get_config

    x, w = te.placeholder((1, 6, 9, 20), name="x"), te.placeholder((20, 3, 3, 2), name="w")
    found = _get_workload(x, w, (2, 1), (1, 0, 1, 1), 1, "float32")
    assert (found.groups, found.out_filter, found.stride_h, found.padr) == (2, 20, 2, 1)
    cfg = get_config()
    with Target("llvm -vector-bytes=32"):
        _fallback_schedule(cfg, found)
    assert isinstance(cfg, FallbackConfigEntity)
    knobs = {name: cfg[name].size for name in ("tile_ic", "tile_oc", "tile_ow")}
    assert knobs == {"tile_ic": [2, 3], "tile_oc": [4, 5], "tile_ow": [1, 20]}
    assert cfg["unroll_kw"].val is False
    blocks = te.placeholder((1, 2, 9, 9, 4), name="x"), te.placeholder((2, 1, 3, 3, 1, 4), name="w")
    found = depthwise(*blocks, 1, "SAME", 2, "float32", "NCHWc")
    assert (found.in_filter, found.out_filter, found.padt, found.dilation_w) == (8, 8, 2, 2)
    assert schedule_depthwise_conv2d_nchw is topi.x86.schedule_depthwise_conv2d_nchw
    with pytest.raises(ExpressionError, match="the kernel has 20 channels, not 6"):
        depthwise(x, w, 1, 1, 1, "float32")
    with pytest.raises(ExpressionError, match="the layout is unknown. Use NCHW or NHWC"):
        _get_workload(x, w, 1, 1, 1, "float32", "HWCN")


def test_no_library_is_there() -> None:
    from tilewright_tvm.contrib import cudnn

    assert cudnn.exists() is False
    with pytest.raises(AttributeError, match="conv_forward does not exist here. Libraries are not"):
        _ = cudnn.conv_forward
    with pytest.raises(AttributeError, match="contrib.cudnn has no attribute 'nonsense'"):
        _ = cudnn.nonsense
