"""What TVM's tests ask of `testing` and `contrib`: values at the top of a file, and fixtures."""

import pytest

from tilewright import autotvm, contrib, testing
from tilewright.base.errors import TilewrightError
from tilewright.targets.target import Target

pytest_plugins = ["pytester"]

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

    @testing.exclude_targets("llvm", "opencl", "cuda")
    def test_none(target):
        raise AssertionError

    @testing.parametrize_targets("llvm")
    def test_one(target, dev):
        assert target == "llvm"
"""


def test_runs_of_a_file(pytester: pytest.Pytester) -> None:
    pytester.makeconftest('pytest_plugins = ["tilewright.testing.plugin"]')
    pytester.makepyfile(SCRIPT)
    devices = len(testing.enabled_targets())
    result = pytester.runpytest("-q", "-p", "no:xdist", "-p", "no:randomly")
    assert result.parseoutcomes() == {"passed": 4 + 4 + 2 + devices + 1, "skipped": 1}
    result = pytester.runpytest("--collect-only", "-q", "-p", "no:xdist")
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


def test_a_mark_of_pytest_goes_before_a_parameter(pytester: pytest.Pytester) -> None:
    pytester.makeconftest('pytest_plugins = ["tilewright.testing.plugin"]')
    pytester.makepyfile("""
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
    pytester.runpytest("-q", "-p", "no:xdist", "-p", "no:randomly").assert_outcomes(passed=4)
