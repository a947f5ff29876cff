"""Counters: zero before the first run, left so by each, and one for all that may run beside others.

Kernels here add them to what they compute, and so show what is in them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tilewright.base.artifact import Artifact
from tilewright.runtime import Device, cpu
from tilewright.runtime.module import Module
from tilewright.runtime.ndarray import array, empty
from tilewright.runtime.network import library_file
from tilewright.runtime.network.instance import Instance, slots_of
from tilewright.runtime.network.library import Library
from tilewright.runtime.network.loaded import LoadedLibrary
from tilewright.runtime.network.plan import COUNTERS, Launch, Operand, Plan, TensorSpec
from tilewright.runtime.network.report import BuildReport, KernelReport
from tilewright.runtime.trial import trial

Build = Callable[..., Artifact]
SIZE = 1000
SHOWN = (2, 0, "+", 3)  # what is in the counters, and the first input
LEFT_AT_ZERO, LEFT_AT_ONE = (3, 3, "*", 0.0), (3, 3, "+", 1.0)
X = np.arange(SIZE, dtype=np.float32)


def test_a_trial_begins_with_zeros(device: Device, elementwise: Build) -> None:
    artifact = elementwise(device, [SHOWN, LEFT_AT_ZERO], "iioc")
    result = trial(artifact, device, [X, X], [X], [1e-6])
    assert result.error is None and result.costs


def test_a_kernel_that_leaves_them_otherwise_is_wrong(device: Device, elementwise: Build) -> None:
    """Its first run is right."""
    artifact = elementwise(device, [SHOWN, LEFT_AT_ONE], "iioc")
    result = trial(artifact, device, [X, X], [X], [1e-6])
    assert result.error == "wrong" and "leaves its counters b3 at 1.0, not at 0" in result.message


def test_calls_that_overlap_have_counters_of_their_own(device: Device, elementwise: Build) -> None:
    module = Module(elementwise(device, [SHOWN], "iioc"), device)
    x, out = array(X, device), empty(SIZE, "float32", device)
    for _ in range(2):
        module(x, x, out)
        np.testing.assert_array_equal(out.numpy(), X)
    first, second = module._take((x, x, out)), module._take((x, x, out))
    (one,), (other,) = first.workspaces, second.workspaces
    assert one.memory is not other.memory and not one.numpy().any() and not other.numpy().any()
    assert [spec.name for spec in module.parameters] == ["b0", "b1", "b2"]


def network(artifact: Artifact, *operands: Operand) -> Library:
    """One launch of the artefact; its last buffer lives at the last operand."""
    inputs = tuple(TensorSpec(f"x{k}", (SIZE,), "float32") for k in range(2))
    places = (Operand("input", 0), Operand("input", 1), Operand("slot", 0), *operands)
    outputs = ((TensorSpec("y", (SIZE,), "float32"), Operand("slot", 0)),)
    plan = Plan("llvm", inputs, outputs, (Launch(0, places), Launch(0, places)), (4 * SIZE,))
    told = (KernelReport("elementwise", "", 2, "default", 0.0),)
    return Library(plan, [artifact], [], BuildReport("llvm", told, 0.0, 0, 0, 0))


def test_launches_of_an_executor_share_them_and_executors_do_not(elementwise: Build) -> None:
    library = network(elementwise(cpu(), [SHOWN, LEFT_AT_ZERO], "iioc"), COUNTERS)
    assert library.plan.misfit(library.kernels, library.constants) == ""
    loaded = LoadedLibrary(library, cpu())
    found = []
    for _ in range(2):
        instance = Instance(loaded, library.plan, slots_of(loaded))
        instance.inputs[0].copyfrom(X)
        assert instance.sequence is not None
        for _ in range(2):
            instance.sequence.run()
            np.testing.assert_array_equal(instance.outputs[0].numpy(), X)
        calls = [arrays for launch in instance.launches for _, arrays in launch]
        held = {id(arrays[3].memory) for arrays in calls}
        assert len(held) == 1
        found.append(instance)
    one, other = (i.launches[0][0][1][3].memory for i in found)
    assert one is not other


def test_files_keep_where_they_live(elementwise: Build, tmp_path: Path) -> None:
    library = network(elementwise(cpu(), [SHOWN, LEFT_AT_ZERO], "iioc"), COUNTERS)
    library_file.write(library.contents(), tmp_path / "net.tar")
    again = library_file.read(tmp_path / "net.tar")
    assert again.plans == library.plans
    assert again.kernels[0].source.buffers == library.kernels[0].source.buffers


@pytest.mark.parametrize(
    ("operand", "reason"),
    [
        (Operand("slot", 0), "elementwise counts in slot 0"),
        (replace(COUNTERS, index=1), "there is no counters 1"),
        (replace(COUNTERS, offset=64), "there is no counters 0"),
    ],
)
def test_they_live_nowhere_else(elementwise: Build, operand: Operand, reason: str) -> None:
    artifact = elementwise(cpu(), [SHOWN, LEFT_AT_ZERO], "iioc")
    library = network(artifact, COUNTERS)
    launch = library.plan.launches[0]
    wrong = replace(launch, operands=(*launch.operands[:3], operand))
    plan = replace(library.plan, launches=(wrong,))
    assert reason in plan.misfit(library.kernels, library.constants)


def test_nothing_else_lives_there(elementwise: Build) -> None:
    library = network(elementwise(cpu(), [SHOWN], "iiow"), Operand("slot", 0))
    launch = library.plan.launches[0]
    wrong = replace(launch, operands=(*launch.operands[:3], COUNTERS))
    plan = replace(library.plan, launches=(wrong,))
    assert "there is no counters 0" in plan.misfit(library.kernels, library.constants)
