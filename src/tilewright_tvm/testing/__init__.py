"""`testing.assert_allclose`, as in the tutorials, and how TVM's tests say where they run.

In: arrays, targets.  Out: AssertionErrors, marks of pytest.  Read next: `parameters.py`,
`numerical.py`.
"""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import sys
from collections.abc import Callable
from typing import Any

import numpy as np

from tilewright.base.doors import door
from tilewright.base.errors import TargetError, absent
from tilewright.runtime.device import Device, device
from tilewright.runtime.drivers.cpu_features import missing_here
from tilewright.targets import processors
from tilewright.targets.kind import is_absent, kinds
from tilewright.targets.target import Target, TargetLike
from tilewright_tvm.arith import Analyzer
from tilewright_tvm.testing.numerical import check_numerical_grads as check_numerical_grads
from tilewright_tvm.testing.parameters import fixture as fixture
from tilewright_tvm.testing.parameters import parameter as parameter
from tilewright_tvm.testing.parameters import parameters as parameters


def assert_allclose(actual: Any, desired: Any, rtol: float = 1e-7, atol: float = 1e-7) -> None:
    """Raise AssertionError unless |actual - desired| <= atol + rtol * |desired| everywhere.

    Arrays of any device may be given; shapes must be equal, and NaN equals NaN alone, as in numpy.
    """
    left, right = (x.numpy() if hasattr(x, "numpy") else np.asarray(x) for x in (actual, desired))
    if left.shape != right.shape:
        raise AssertionError(f"shapes differ: {left.shape} and {right.shape}")
    np.testing.assert_allclose(left, right, rtol=rtol, atol=atol)


def assert_prim_expr_equal(lhs: Any, rhs: Any) -> None:
    """Raise AssertionError unless two expressions surely have one value for all variables."""
    if not Analyzer().can_prove_equal(lhs, rhs):
        raise AssertionError(f"{lhs} and {rhs} are not equal")


@door(TargetError, "testing.device_enabled")
def device_enabled(target: TargetLike) -> bool:
    """Whether kernels for the target run here; for kinds of TVM that are not here: no.

    "cpu" is taken for the target of its code, llvm.
    """
    if target == "cpu":
        return device(target).exist
    if isinstance(target, str) and is_absent(target.partition(" ")[0]):
        return False
    return device(Target(target)).exist


enabled = device_enabled


def enabled_targets() -> list[tuple[str, Device]]:
    """(target, device) for each kind of target whose device is here."""
    devices = [(known.name, device(known.name)) for known in kinds()]
    return [(name, dev) for name, dev in devices if dev.exist]


def _needs(*names: str) -> Any:
    """A mark of pytest: a test that is skipped where none of these targets runs."""
    import pytest

    reason = f"no device for {' or '.join(names)}"
    return pytest.mark.skipif(not any(map(device_enabled, names)), reason=reason)


def _deferred(*names: str) -> Callable[..., Any]:
    """A decorator, with or without a call: `@requires_gpu`, `@requires_gpu()`."""

    def decorate(*tests: Any) -> Any:
        mark = _needs(*names)
        return mark(tests[0]) if tests else mark

    return decorate


requires_llvm, requires_cuda = _deferred("llvm"), _deferred("cuda")
requires_opencl, requires_gpu = _deferred("opencl"), _deferred("cuda", "opencl")


def uses_gpu(*tests: Any) -> Any:
    """A test that uses a GPU where there is one: it runs anyway."""
    return tests[0] if tests else lambda test: test


# Targets and machines of TVM that are not there: tests that need one are skipped.
def _absent(what: str) -> Callable[..., Any]:
    def decorate(*tests: Any) -> Any:
        import pytest

        mark = pytest.mark.skip(reason=f"{what} is no target here")
        return mark(tests[0]) if tests else mark

    return decorate


requires_vulkan, requires_metal = _absent("Vulkan"), _absent("Metal")
requires_rocm, requires_hexagon = _absent("ROCm"), _absent("Hexagon")


def _on(what: str, architecture: str, *features: str) -> Callable[..., Any]:
    """A test that needs this machine's processor to be one of these."""

    def decorate(*tests: Any) -> Any:
        import pytest

        there = processors.here() == architecture and not missing_here({"needs": features})
        mark = pytest.mark.skipif(not there, reason=f"this processor is no {what}")
        return mark(tests[0]) if tests else mark

    return decorate


requires_x86 = _on("x86", "x86_64")
requires_skylake_avx512 = _on("Skylake with AVX-512", "x86_64", "avx512f", "avx512bw")
requires_cascadelake = _on("Cascade Lake", "x86_64", "avx512f", "avx512vnni")
requires_arm_dot = _on("ARM with dot products", "aarch64", "dotprod")


def requires_package(*packages: str) -> Any:
    """A test that is skipped where one of these packages is not installed."""
    import pytest

    lacking = [name for name in packages if importlib.util.find_spec(name) is None]
    return pytest.mark.skipif(bool(lacking), reason=f"not installed: {', '.join(lacking)}")


def slow(test: Any) -> Any:
    """A test that takes long: it runs anyway."""
    return test


def skip_if_wheel_test(test: Any) -> Any:
    """A test that TVM leaves out of its wheels: nothing here depends on how it was installed."""
    return test


def known_failing_targets(*targets: Any) -> Any:
    """A test that TVM expects to fail on these targets, and that has to pass on those there are."""
    return uses_gpu(*targets[:0])


def exclude_targets(*targets: Any) -> Any:
    """A test that the plugin does not run on these targets."""
    import pytest

    return pytest.mark.exclude_targets(*targets)


def parametrize_targets(*targets: Any) -> Any:
    """A test with `target` or `dev` or both among its arguments, once for each of the targets that
    runs here; of those that are named, the others are skipped.  TVM 0.7 called `dev` `ctx`."""
    import pytest

    if len(targets) == 1 and callable(targets[0]):
        return parametrize_targets()(targets[0])
    names = targets or [name for name, _ in enabled_targets()]

    def decorate(test: Any) -> Any:
        wanted = [n for n in ("target", "dev", "ctx") if n in inspect.signature(test).parameters]
        runs = [
            pytest.param(
                *(name if n == "target" else device(name) for n in wanted),
                marks=[] if device_enabled(name) else pytest.mark.skip(f"no device for {name}"),
            )
            for name in names
        ]
        return pytest.mark.parametrize(wanted, runs)(test) if wanted else test

    return decorate


def echo(value: Any) -> Any:
    """Return `value`: what is handed to a function comes back as it is."""
    return value


def nop(*values: Any) -> None:
    """Do nothing, with whatever is given."""


class utils:
    """What the first lines of TVM's galleries ask for."""

    @staticmethod
    def install_request_hook(depth: int = 1) -> None:
        """Downloads would go to a mirror; there are none, so nothing is to be done."""


def main() -> None:
    """Run the tests of the script that calls it, and end it."""
    import pytest

    sys.exit(pytest.main([sys.argv[0], *sys.argv[1:]]))


def __getattr__(name: str) -> Any:
    if name in ("auto_scheduler", "autotvm"):  # imported when asked for: others need no tuners
        return importlib.import_module(f"tilewright_tvm.testing.{name}")
    raise absent("testing", name, {})
