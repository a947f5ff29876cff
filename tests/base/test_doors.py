"""Arguments of wrong kinds are refused at the doors; what scripts of TVM pass rightly is taken."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tilewright
from drills._door_arguments import task
from tilewright import te
from tilewright.base.doors import check_arguments, door
from tilewright.base.errors import ExpressionError, ModelError, SpaceError, TilewrightError
from tilewright.measure import Database
from tilewright_tvm import auto_scheduler, autotvm, nd, relay, topi
from tilewright_tvm.contrib import graph_executor

X = relay.var("x", shape=(2, 3))
Q, Z = relay.var("q", shape=(1, 2, 3, 4)), relay.var("z", shape=(1, 0, 3, 4))
M = relay.var("m", shape=(1, 2, 3))
U = relay.var("u")
A = te.placeholder((4,), name="A")
INTEGERS = te.placeholder((1,), name="integers", dtype="int32")
IMAGE, KERNEL = te.placeholder((1, 3, 4, 4), name="I"), te.placeholder((4, 3, 3, 3), name="K")
KINDS, BOXES = (
    relay.var("kinds", shape=(1,), dtype="int32"),
    relay.var("b", shape=(1, 2), dtype="int32"),
)
Z6 = relay.var("z6", shape=(1, 2, 6))
KEY = relay.random.threefry_key(0)
NETWORK = relay.IRModule.from_expr(relay.nn.relu(X))

REFUSED: dict[str, tuple[Callable[[], Any], str]] = {
    "scalar": (lambda: relay.exp(te.var("n")), "exp"),
    "scalar variable": (
        lambda: relay.build(relay.Function([U], relay.exp(U)), target="llvm"), "is not known",
    ),
    "tensor for numbers": (lambda: topi.tile(A, INTEGERS), "topi.tile: it got a tensor"),
    "threshold of the graph": (
        lambda: relay.vision.get_valid_counts(M, M), "score_threshold is <Var",
    ),
    "limit of boxes": (
        lambda: relay.vision.non_max_suppression(Z6, KINDS, BOXES, "all"),
        "max_output_size is 'all', no number",
    ),
    "mean": (lambda: relay.random.normal(KEY, (2,), mean="a"), "mean is a str, not a number"),
    "code of a type": (
        lambda: relay.qnn.op.simulated_quantize(X, relay.const(1.0), relay.const(0), out_dtype=3),
        "its type is 3",
    ),
    "strides": (
        lambda: topi.nn.conv2d_winograd_nchw(IMAGE, KERNEL, np.ones(2)), "strides is a ndarray",
    ),
    "other targets": (
        lambda: auto_scheduler.extract_tasks(NETWORK, {}, "llvm", other_targets=np.zeros(2)),
        "a network is built for one target",
    ),
    "layout rewrite": (
        lambda: auto_scheduler.layout_rewrite.checked_option(np.zeros(2)), "no such option",
    ),
    "padding": (
        lambda: relay.nn.pad(X, ((0, 0), (1, 1)), pad_value=X),
        "pad_value has the shape (2, 3), not one",
    ),
    "array on a target": (lambda: nd.array([1.0], "llvm"), "device is a str, not a device"),
    "no module": (lambda: relay.build(None, target="llvm"), "mod is None, not a module"),
    "no schedule": (lambda: tilewright.build(A, target="llvm"), "not a schedule or a Program"),
    "number as target": (lambda: tilewright.Target(3), "a int is no target"),
    "target without a kind": (lambda: tilewright.Target({"cpu": "cuda"}), "no target for 'cpu'"),
    "two targets": (lambda: tilewright.Target({"cpu": "llvm", "cuda": "cuda"}), "2 targets"),
    "options of a target": (lambda: tilewright.Target({"kind": "llvm", "mcpu": A}), "mcpu cannot"),
    "limits": (lambda: tilewright.Target("llvm").with_limits(size=3), "there is no such limit"),
    "shape": (lambda: nd.empty("23"), "shape is a str, not a list of integers or an integer"),
    "huge": (lambda: nd.empty(1 << 60), "no memory is that large"),
    "type": (lambda: te.placeholder((2,), dtype=A), "is not supported"),
    "tensors": (lambda: topi.concatenate([A, 3]), "a_tuple is a list of Tensor and int, not a"),
    "list of a tensor": (lambda: list(A), "iteration over A: a tensor has no elements before"),
    "in a tensor": (lambda: 3 in A, "iteration over A"),
    "shape of a tensor": (lambda: topi.broadcast_to(A, A), "shape is a te.Tensor, not a list of"),
    "list of a value": (lambda: list(X), "it is one tensor, not a tuple"),
    "in a value": (lambda: X in X, "it is one tensor, not a tuple"),
    "empty model": (lambda: auto_scheduler.XGBModel(model_file="/dev/null"), "these are no trees"),
    "builder": (lambda: autotvm.LocalBuilder(build_func="nobody"), "there is no such function"),
    "builder of nothing": (
        lambda: autotvm.LocalBuilder(build_func="tilewright.te:nobody"), "there is no such func",
    ),
    "log": (lambda: autotvm.callback.log_to_file(3), "file_out is a int, not a string or a path"),
    "new axes": (lambda: relay.expand_dims(X, 0, 1 << 70), "that many axes cannot be new"),
    "axis of argmax": (lambda: relay.argmax(X, "x"), "axis is a str, not an integer or a list"),
    "text for a number": (
        lambda: relay.one_hot(relay.var("i", shape=(2,), dtype="int32"), "1", 0, 3), "no numbers",
    ),
    "text in an array": (lambda: nd.array(["a"], dtype="float32"), "it holds no numbers"),
    "width of a mirror": (lambda: relay.nn.mirror_pad(X, ("a", "b")), "pad_width='a' is neither"),
    "extents in an array": (
        lambda: relay.nn.adaptive_avg_pool1d(relay.var("y", shape=(1, 2, 3)), np.zeros((2, 2))),
        "is neither an int nor",
    ),
    "layout of channels": (
        lambda: topi.nn.depthwise_conv(A, A, layout="x"), "data layout 'x' is unknown"
    ),
    "type of a model": (
        lambda: relay.frontend.from_onnx("m.onnx", dtype=3), "neither one name nor names by input"
    ),
    "parts of a split": (
        lambda: autotvm.ConfigSpace().define_split("x", 8, num_outputs="2"),
        "num_outputs is a str, not an integer",
    ),
    "order of axes": (
        lambda: autotvm.ConfigSpace().define_reorder("x", [1, 2], "candidate", candidate=3),
        "candidate is a int, not a list",
    ),
    "anchors": (
        lambda: autotvm.ConfigSpace().define_annotate("x", [1], "locate_cache", num_anchor="1"),
        "num_anchor is a str, not an integer",
    ),
    "parameters of a policy": (
        lambda: auto_scheduler.SketchPolicy(None, params=1), "task is None, not a SearchTask"
    ),
    "extents of a grid": (
        lambda: relay.image.affine_grid(M, (1, None)), "target_shape is a tuple of int and NoneType"
    ),
    "huge grid": (lambda: relay.image.affine_grid(M, (1 << 20, 1 << 20)), "smaller image"),
    "type in an array": (
        lambda: relay.nn.matmul(X, relay.var("w", shape=(3, 2)), out_dtype=np.zeros(2)), "dtype"
    ),
    "loops of a split": (
        lambda: autotvm.ConfigSpace().define_split("x", 1, num_outputs=1 << 70), "too many"
    ),
    "axis of sort": (lambda: topi.sort(A, 1), "argsort(data=[4], axis=1)"),
    "no device": (
        lambda: graph_executor.create("", relay.build(NETWORK, "llvm", verify=False), []),
        "there is no device",
    ),
    "heads": (lambda: relay.nn.attention(X, X, X), "they have no axes [batch, heads"),
    "no heads": (lambda: relay.nn.attention(Q, Z, Z), "0 heads of 1 elements do not serve 2"),
    "seed": (lambda: autotvm.tuner.RandomTuner(None), "task is None, not a task"),
    "population": (lambda: autotvm.tuner.GATuner(task(), pop_size=1 << 70), "it is too large"),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_a_wrong_argument_is_refused_with_place_reason_and_way_out(name: str) -> None:
    call, words = REFUSED[name]
    with pytest.raises(TilewrightError) as caught:
        call()
    assert words in str(caught.value)
    assert caught.value.place and caught.value.reason


def same(value: relay.Expr, expected: list[Any]) -> bool:
    return np.array_equal(relay.evaluate(value), expected)


ACCEPTED: dict[str, Callable[[], Any]] = {
    "list as a shape": lambda: relay.TensorType([2, 3]) == relay.TensorType((2, 3)),
    "numpy shape": lambda: nd.empty(np.int64(3)).shape == (3,),
    "numpy shapes": lambda: nd.empty((np.int64(3), 2)).shape == (3, 2),
    "numpy extent": lambda: te.placeholder((np.int32(3),)).shape == (3,),
    "True as an extent": lambda: (
        relay.one_hot(relay.const([0, 1], "int32"), 1, 0, True).shape == (2, 1)
    ),
    "numpy axis": lambda: relay.expand_dims(X, np.int64(0)).shape == (1, 2, 3),
    "numpy number": lambda: relay.clip(X, np.float32(0), np.float64(6)).attrs.a_max == 6.0,
    "dict": lambda: (
        tilewright.Target({"kind": "llvm", "num-cores": 4, "keys": ["cpu"]})
        == tilewright.Target("llvm -num-cores=4")
    ),
    "list of options": lambda: (
        tilewright.Target({"kind": "llvm", "mattr": ["+avx2", "+fma"]}).option("mattr")
        == "+avx2,+fma"
    ),
    "target by device": lambda: tilewright.Target({"cpu": "llvm"}) == tilewright.Target("llvm"),
    "target by device object": lambda: (
        tilewright.Target({tilewright.cpu(): "llvm"}) == tilewright.Target("llvm")
    ),
    "build": lambda: relay.build(NETWORK, target={"cpu": "llvm"}, verify=False),
    "named": lambda: autotvm.LocalBuilder(build_func="default"),
    "function": lambda: autotvm.LocalBuilder(build_func="tilewright.driver.build:build_payload"),
    "axes of argmax": lambda: relay.argmax(X, np.array([0, 1])).shape == (),
    "far shift": lambda: same(relay.roll(relay.const([1, 2, 3]), 1 + 3 * 10**20, 0), [3, 1, 2]),
    "far diagonal": lambda: same(relay.trilu(relay.const([[1.0, 2.0]]), 10**20), [[0, 0]]),
    "far diagonal below": lambda: same(relay.trilu(relay.const([[1.0]]), -(10**20)), [[1]]),
    "far step": lambda: same(relay.arange(0, 3, 10**20), [0]),
    "mask of one number": lambda: (
        relay.nn.attention(Q, Q, Q, mask=relay.const(True)).shape == (1, 2, 3, 4)
    ),
    "vector": lambda: te.compute(4, lambda i: A[i]).shape == (4,),
}


@pytest.mark.parametrize("name", ACCEPTED)
def test_what_tvm_takes_is_taken(name: str) -> None:
    assert ACCEPTED[name]()


@pytest.mark.sampled(1)
@pytest.mark.slow
@pytest.mark.parametrize("binary", [False, True])
def test_a_log_may_be_an_open_file(binary: bool, tmp_path: Path) -> None:
    log = tmp_path / "log.json"
    with open(log, "ab" if binary else "a") as file:
        autotvm.tuner.GridSearchTuner(task()).tune(
            2, autotvm.measure_option(autotvm.LocalBuilder(), autotvm.LocalRunner(number=1)),
            callbacks=[autotvm.callback.log_to_file(file)],
        )  # fmt: skip
    assert len(Database.load(log).records) == 2
    assert autotvm.apply_history_best(str(log)).lookup(task().dag, task().target) is not None


@door(SpaceError, "call")
def call(
    n: int, x: float = 1.0, names: Sequence[str] = (), *rest: int, flag: bool = False,
    pick: int | str | None = None, table: Mapping[str, Any] | None = None,
    each: Iterable[int] = (), act: Callable[..., Any] | None = None, dtype: str = "float32",
    pair: tuple[int, str] = (0, ""),
) -> tuple[Any, ...]:  # fmt: skip
    """Of every kind one."""
    return n, x, names, rest, flag, pick


def test_numbers_of_numpy_become_those_of_python() -> None:
    given = call(np.int64(3), np.float32(0.5), ["a"], np.int8(1), flag=np.bool_(True))
    assert given == (3, 0.5, ["a"], (1,), True, None) and type(call(True)[0]) is int
    assert [type(v) for v in given[:2]] == [int, float] and call.__doc__ == "Of every kind one."


WRONG: dict[str, tuple[Callable[[], Any], str]] = {
    "int": (lambda: call(2.5), r"call\(n=2.5\): n is a float, not an integer"),
    "array": (lambda: call(np.zeros(1, int)), "n is a ndarray, not an integer"),
    "float": (lambda: call(1, "x"), "x is a str, not a number"),
    "list": (lambda: call(1, 1, "ab"), "names is a str, not a list of strings"),
    "item": (lambda: call(1, 1, ["a", 2]), "names is a list of str and int, not a list of strings"),
    "rest": (lambda: call(1, 1, [], 1, None), "argument 5 is None, not an integer"),
    "keyword": (lambda: call(1, flag="no"), "flag is a str, not True or False"),
    "union": (lambda: call(1, pick=2.5), "pick is a float, not an integer or a string or None"),
    "table": (lambda: call(1, table=[1]), "table is a list of int, not a Mapping or None"),
    "iterable": (lambda: call(1, each=3), "each is a int, not a list of integers"),
    "function": (lambda: call(1, act=3), "act is a int, not a function or None"),
    "pair": (
        lambda: call(1, pair=(1, 2)),
        "pair is a tuple of int, not a tuple of an integer and a string",
    ),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_door_says_what_is_given_and_what_is_wanted(name: str) -> None:
    act, words = WRONG[name]
    with pytest.raises(SpaceError, match=words):
        act()


@door(SpaceError, strict=True)
def counted(n: int, sizes: Sequence[int] = (), flag: bool = False, x: int | str = 1) -> Any:
    return n, sizes, flag, x


def test_true_is_no_integer_at_a_strict_door() -> None:
    assert counted(np.int64(3), (1, 2), True, "a") == (3, (1, 2), True, "a")
    for wrong in ((True,), (1, (1, True)), (1, (), False, False), (np.True_,)):
        with pytest.raises(SpaceError, match="bool, not a"):
            counted(*wrong)


def test_what_can_be_read_once_is_not_read_at_the_door() -> None:
    numbers = iter([1, 2])
    call(1, each=numbers)
    assert list(numbers) == [1, 2]


def test_a_wrong_number_of_arguments_is_pythons_error() -> None:
    with pytest.raises(TypeError, match="missing 1 required"):
        call()
    with pytest.raises(TypeError, match="unexpected keyword"):
        call(1, nobody=2)
    with pytest.raises(ExpressionError, match=r"missing a required .* declared with \(a, b\)"):
        check_arguments(lambda a, b: None, (1,), "f", ExpressionError)


def test_files_of_bytes_and_of_text_are_taken() -> None:
    for file in (io.StringIO(), io.BytesIO()):
        assert autotvm.callback.log_to_file(file)
    with Path(__file__).open() as file, pytest.raises(SpaceError, match="not open for writing"):
        autotvm.callback.log_to_file(file)


def test_scales_of_images_are_finite_and_above_zero():
    x = relay.var("x", shape=(1, 2, 4, 4))
    for scale in (float("nan"), float("inf"), 0.0, -1.0):
        with pytest.raises(ModelError, match="not all above 0"):
            relay.nn.upsampling(x, 2, scale)
