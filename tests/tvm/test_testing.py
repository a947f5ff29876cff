"""What TVM's tests ask of `testing` and `contrib`: values at the top of a file, and fixtures."""

from pathlib import Path

import numpy as np
import pytest

from tilewright import build, te
from tilewright.base.errors import TilewrightError
from tilewright.driver.build import resolve_target
from tilewright.targets.target import Target
from tilewright_tvm import autotvm, contrib, nd, target, testing, topi

pytest_plugins = ["pytester"]
# Of kinds that come with Tilewright.  Asked here: pytester forgets what its tests import.
DEVICES = sum(name in ("llvm", "cuda", "opencl") for name, _ in testing.enabled_targets())

SCRIPT = """
    import pytest
    from tilewright import testing

    calls = []
    m, n = testing.parameters((1, 2), (3, 4), ids=["few", "many"])
    kind = testing.parameter("float32", "int8")
    left = testing.parameter(by_dict={"one": 1, "two": 2})

    @testing.fixture(cache_return_value=True)
    def data(m, kind):
        calls.append(m)
        return [m, kind]

    def test_sets(m, n, kind, data):
        assert (m, n) in [(1, 2), (3, 4)] and data == [m, kind]
        data.append("of this test alone")

    def test_cached(data):
        assert len(data) == 2 and len(calls) <= 4

    def test_names(left):
        assert left in (1, 2)

    def test_devices(target, dev):
        assert dev.exist and isinstance(target, str)

    @testing.exclude_targets(*(name for name, _ in testing.enabled_targets()))
    def test_none(target):
        raise AssertionError

    @testing.parametrize_targets("llvm", "vulkan -from_device=0")
    def test_one(target, dev):
        assert target == "llvm"

    class TestClass:
        @testing.parametrize_targets("llvm")
        def test_target(self, target):
            assert target == "llvm"

        @testing.parametrize_targets
        def test_device(self, dev):
            assert dev.exist
"""


@pytest.fixture
def runs(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> pytest.Pytester:
    """What runs files, in processes of their own."""
    monkeypatch.setenv("PYTHONPATH", str(Path(testing.__file__).parents[2]))
    return pytester


@pytest.mark.slow
def test_runs_of_a_file(runs: pytest.Pytester) -> None:
    runs.makeconftest('pytest_plugins = ["tilewright_tvm.testing.plugin"]')
    runs.makepyfile(SCRIPT)
    result = runs.runpytest_subprocess("-q", "-p", "no:xdist", "-p", "no:randomly")
    result.assert_outcomes(passed=4 + 4 + 2 + DEVICES + 1 + 1 + DEVICES, skipped=2)
    result = runs.runpytest_subprocess("--collect-only", "-q", "-p", "no:xdist")
    result.stdout.fnmatch_lines(["*test_sets[[]*few*", "*test_names[[]two*"])


def test_sets_of_parameters_are_equally_long() -> None:
    with pytest.raises(ValueError, match="equally long"):
        testing.parameters((1, 2), (3,))


def test_reference_data_are_computed_once() -> None:
    made = []

    @contrib.pickle_memoize.memoize("key")
    def data(n: int) -> list[int]:
        made.append(n)
        return [n]

    data(1).append(2)
    assert data(1) == [1] and data(2) == [2] and made == [1, 2]


def test_what_a_cuda_device_can_do() -> None:
    nvcc = contrib.nvcc
    assert nvcc.have_fp16("5.3") and not nvcc.have_fp16("5.2") and nvcc.have_fp16("9.0")
    assert nvcc.have_int8("6.1") and not nvcc.have_int8("6.0") and nvcc.have_bf16("8.0")
    assert nvcc.have_tensorcore("7.0") and not nvcc.have_tensorcore("6.1")
    assert nvcc.have_tensorcore(target=Target("cuda -arch=sm_90"))
    with pytest.raises(TilewrightError, match="compute capability"):
        nvcc.have_fp16("new")
    with pytest.raises(AttributeError, match="NVRTC"):
        nvcc.compile_cuda  # noqa: B018


def test_tophub_is_a_context_that_changes_nothing() -> None:
    with autotvm.tophub.context("llvm"), autotvm.tophub.context([Target("cuda")]):
        assert Target.current() is None
    with pytest.raises(TilewrightError, match="apply_history_best"):
        autotvm.tophub.context("llvm", ["log.json"])


def test_marks_of_what_is_not_there() -> None:
    def test() -> None: ...

    assert testing.slow(test) is test is testing.known_failing_targets("vulkan")(test)
    [lacking] = testing.requires_package("numpy", "no_such_package")(test).pytestmark
    assert lacking.args == (True,) and "no_such_package" in lacking.kwargs["reason"]
    assert testing.requires_package("numpy").args == (False,)
    assert testing.requires_vulkan().name == "skip"


@pytest.mark.slow
def test_a_mark_of_pytest_goes_before_a_parameter(runs: pytest.Pytester) -> None:
    runs.makeconftest('pytest_plugins = ["tilewright_tvm.testing.plugin"]')
    runs.makepyfile("""
        import pytest
        from tilewright import testing
        kind = testing.parameter("graph", "vm")
        lists, arrays = testing.parameters(([1], {"a": 2}))

        class TestCached:
            @testing.fixture(cache_return_value=True)
            def made(self, lists, arrays):
                return lists + list(arrays)

            def test_it(self, made):
                assert made == [1, "a"]

        @pytest.mark.parametrize("kind", ["vm"])
        def test_one(kind):
            assert kind == "vm"

        def test_both(kind):
            pass
    """)
    runs.runpytest_subprocess("-q", "-p", "no:xdist", "-p", "no:randomly").assert_outcomes(passed=4)


def test_functions_chosen_by_the_target_in_force() -> None:
    @target.generic_func
    def number() -> int:
        return 1

    number.register("cpu", lambda: 2)

    @number.register(["cuda", "gpu"])
    def of_gpus() -> int:
        return 3

    assert number() == 1
    with Target("llvm"):
        assert number() == 2
    with target.cuda(options="-arch=sm_90"):
        assert number() == of_gpus() == 3
    with target.bifrost():
        assert number() == 3
    assert target.intel_graphics().kind.name == "opencl"
    number.register("cpu", lambda: 4, override=True)
    with Target("llvm"):
        assert number() == 4
    with pytest.raises(TilewrightError, match="registered already"):
        number.register("cpu", lambda: 5)


def test_generic_functions_by_name() -> None:
    @target.override_native_generic_func("tests.number")
    def number() -> int:
        return 1

    def of_gpus() -> int:
        return 3

    found = target.get_native_generic_func("tests.number")
    assert found is number and found.__name__ == "number"
    with Target("cuda"):
        before = found.get_packed_func()
        assert before() == 1
        found.register(of_gpus, "gpu", allow_override=True)
        assert found.get_packed_func() is of_gpus and number() == 3
        found.register(before, ["gpu"], allow_override=True)
        assert number() == 1
    target.extend_native_generic_func("tests.number", "extended")(lambda: 5)
    with Target("llvm -keys=extended"):
        assert found() == 5
    with pytest.raises(TilewrightError, match="there is none of that name"):
        target.extend_native_generic_func("tests.other", "cpu")
    found.set_default(lambda: 7)
    assert number() == 7
    with pytest.raises(TilewrightError, match="there is none of that name"):
        target.get_native_generic_func("tests.other")


def test_targets_of_tvms_that_are_not_here_say_so_when_used() -> None:
    for named in (target.rocm(model="any"), Target("hexagon"), target.vta(model="any")):
        with pytest.raises(TilewrightError, match="no code is made for it"):
            resolve_target(named)


def test_names_of_autotvm_where_scripts_import_them() -> None:
    from tilewright_tvm.autotvm.measure import MeasureErrorNo
    from tilewright_tvm.autotvm.task.space import ConfigSpace
    from tilewright_tvm.autotvm.task.task import compute_flop

    assert ConfigSpace is autotvm.ConfigSpace and MeasureErrorNo.WRONG_ANSWER == 5
    a, k = te.placeholder((4, 6)), te.reduce_axis((0, 6))
    total = te.compute((4,), lambda i: te.sum(a[i, k] * a[i, k], axis=k))
    assert compute_flop(te.create_schedule(total.op)) == 2 * 4 * 6
    with pytest.raises(TilewrightError, match="only moved"):
        compute_flop(te.create_schedule(te.compute((4,), lambda i: a[i, 0]).op))
    with pytest.raises(AttributeError, match="LocalBuilder"):
        autotvm.measure.Builder  # noqa: B018


def test_a_kernel_is_built_for_this_processor_where_no_target_is_given() -> None:
    a, n = te.placeholder((4,), name="a"), te.var("n")
    b = a - n + a * 2.0 + n  # scalars beside tensors
    assert isinstance(b, te.Tensor)
    kernel = build(te.create_schedule(b.op), [a, n, b])
    out = nd.empty((4,))
    kernel(nd.array(np.arange(1, 5, dtype="float32")), 5, out)
    assert out.numpy().tolist() == [3.0, 6.0, 9.0, 12.0]


def test_ranking_as_topi_has_it() -> None:
    a = te.placeholder((3, 9), name="a")
    values, places = topi.topk(a, 2, 1, "both", False, "int64")
    order, best = topi.argsort(a, axis=1), topi.argmax(a, axis=None, keepdims=True)
    assert [str(t.dtype) for t in (values, places, order)] == ["float32", "int64", "float32"]
    x = np.random.default_rng(0).permutation(27).reshape(3, 9).astype("float32")
    found = []
    for out in (values, places, order, best):
        result = nd.empty(out.shape, out.dtype)
        build(te.create_schedule(out.op), [a, out])(nd.array(x), result)
        found.append(result.numpy())
    np.testing.assert_array_equal(found[1], np.argsort(-x, 1)[:, :2])
    np.testing.assert_array_equal(found[0], -np.sort(-x, 1)[:, :2])
    np.testing.assert_array_equal(found[2], np.argsort(x, 1))
    assert found[3].tolist() == [[x.argmax()]]
    with pytest.raises(TilewrightError, match="valid_count"):
        topi.argsort(a, a)


@pytest.mark.parametrize("is_ascend", [True, False])
def test_values_are_sorted_with_their_keys(is_ascend: bool) -> None:
    keys = te.placeholder((2, 7), name="keys", dtype="int32")
    values = te.placeholder((2, 7), name="values", dtype="float32")
    outs = topi.cuda.sort_by_key(keys, values, is_ascend=is_ascend)
    assert [str(t.dtype) for t in outs] == ["int32", "float32"]
    given = np.array([[3, 1, 2, 1, 9, 3, 1], [0, 0, -5, 7, 7, -5, 1]], dtype="int32")
    moved = np.arange(14, dtype="float32").reshape(2, 7)
    order = np.argsort(given if is_ascend else -given, axis=1, kind="stable")
    found = [nd.empty(t.shape, t.dtype) for t in outs]
    schedule = te.create_schedule([t.op for t in outs])
    build(schedule, [keys, values, *outs])(nd.array(given), nd.array(moved), *found)
    np.testing.assert_array_equal(found[0].numpy(), np.take_along_axis(given, order, 1))
    np.testing.assert_array_equal(found[1].numpy(), np.take_along_axis(moved, order, 1))
    with pytest.raises(TilewrightError, match="different shapes. Give each key one value"):
        topi.cuda.sort_by_key(keys, te.placeholder((2, 6), name="few"))


def test_what_functions_give_back() -> None:
    text = "three"
    assert testing.echo(text) is text
    assert testing.nop(text, 3) is None  # type: ignore[func-returns-value]


SMOOTH = {
    "cube": (lambda x: x**3, lambda x: 3 * x**2),
    "wave": (lambda x: x * np.sin(1 / x), lambda x: np.sin(1 / x) - np.cos(1 / x) / x),
    "steps": (lambda x: np.floor(x), lambda x: 0 * x),
}


@pytest.mark.parametrize("name", SMOOTH)
def test_right_gradients_pass_and_wrong_ones_do_not(name):
    value, slope = SMOOTH[name]
    rng = np.random.default_rng(0)
    x, y = (rng.uniform(0.6, 5, (3, 4)) for _ in range(2))

    def total(x, y):
        return np.sum(value(x)) + 2 * np.sum(y)

    right = [slope(x), np.full_like(y, 2)]
    before = x.copy(), y.copy()
    testing.check_numerical_grads(total, [x, y], right)
    testing.check_numerical_grads(total, {"y": y, "x": x}, dict(zip("xy", right, strict=True)))
    testing.check_numerical_grads(total, [x, y], right, function_value=total(x, y))
    assert (x == before[0]).all() and (y == before[1]).all()
    room = 0.01 * np.sqrt(12) + 0.1 * np.linalg.norm(right[0])
    wrong = right[0].copy()
    wrong[1, 2] += 1.5 * room
    with pytest.raises(AssertionError, match=r"by 'x' is off by(.|\n)*first at \(1, 2\)"):
        testing.check_numerical_grads(total, {"x": x, "y": y}, {"x": wrong, "y": right[1]})
    testing.check_numerical_grads(total, [x, y], [wrong, right[1]], atol=10.0)
    testing.check_numerical_grads(total, [x, y], right[:1])
    with pytest.raises(TilewrightError, match="there is no input 'z'"):
        testing.check_numerical_grads(total, {"x": x, "y": y}, {"z": right[0]})
    with pytest.raises(AssertionError, match="NaN or infinity in a gradient by 1"):
        testing.check_numerical_grads(total, [x, y], [right[0], right[1] * np.nan])
    with pytest.raises(AssertionError, match="has shape"):
        testing.check_numerical_grads(total, [x, y], [right[0], right[1][0]])
