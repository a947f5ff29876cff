"""What lies around buffers is seen when it is read or written, on every device, in every type."""

import subprocess
import sys
from collections.abc import Callable

import numpy as np
import pytest

from runtime.conftest import EXISTING
from tilewright.base.artifact import Artifact, BufferSpec
from tilewright.base.case import Case
from tilewright.base.dtype import TYPES, DType
from tilewright.base.errors import InternalError
from tilewright.runtime import Device, array, cpu, guarded
from tilewright.runtime.guarded import Filling, GuardedBuffer, garbage
from tilewright.runtime.trial import trial

Build = Callable[..., Artifact]
SIZE = 1000
X, Y = np.random.default_rng(0).normal(size=(2, SIZE)).astype(np.float32)
SMALL = np.arange(1, SIZE + 1, dtype=np.float32)


@pytest.fixture(params=[(d, n) for d in EXISTING for n in (guarded._AT_ONCE, 0)], ids=str)
def device(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Device:
    """Where buffers are written and read in one piece, and where in three."""
    found, at_once = request.param
    monkeypatch.setattr(guarded, "_AT_ONCE", at_once)
    return found


@pytest.mark.slow
@pytest.mark.parametrize("shift", [-1, -4, -1024, -2048])
def test_a_write_before_a_buffer_is_seen(device: Device, shift: int, elementwise: Build) -> None:
    steps = [(2, 0, "+", 1), (2, 0, "*", 0.0, shift, 1)]
    result = trial(elementwise(device, steps), device, [X, Y], [X + Y], [1e-6])
    assert result.error == "wrong"
    assert f"wrote {-4 * shift} bytes before output b2" in result.message


@pytest.mark.slow
@pytest.mark.parametrize("past", [0, 1, 1024, 2048])
def test_a_write_past_a_buffer_is_seen(device: Device, past: int, elementwise: Build) -> None:
    steps = [(2, 0, "+", 1), (2, 0, "*", 0.0, SIZE + past, 1)]
    result = trial(elementwise(device, steps), device, [X, Y], [X + Y], [1e-6])
    assert result.error == "wrong"
    assert f"wrote {4 * past} bytes past the end of output b2" in result.message


def test_a_copy_from_zone_to_zone_is_seen(device: Device, elementwise: Build) -> None:
    """Each buffer has other content around it: out[i] = x[i] * 1 for one element too many."""
    steps = [(2, 0, "*", 1.0, 0, SIZE + 1)]
    result = trial(elementwise(device, steps), device, [X, Y], [X], [1e-6])
    assert result.error == "wrong" and "past the end of output b2" in result.message


def test_the_second_case_finds_what_the_bound_of_the_first_allows(
    device: Device, elementwise: Build
) -> None:
    artifact = elementwise(device, [(2, 0, "+", 1), (2, 2, "+", 0.25, 0, 1)])
    loose = [np.full(SIZE, 0.5)]
    exact = Case.of([SMALL, SMALL], [2 * SMALL], [0.0])
    assert trial(artifact, device, [X, Y], [X + Y], loose).error is None
    result = trial(artifact, device, [X, Y], [X + Y], loose, also=[exact])
    assert result.error == "wrong" and "2.25 instead of 2.0" in result.message


def test_what_is_added_to_around_a_buffer_is_seen(device: Device, elementwise: Build) -> None:
    """Numbers so large that they keep nothing of what is added would hide it."""
    steps = [(2, 0, "+", 1), (2, 2, "+", 1.0, 1, SIZE)]
    result = trial(elementwise(device, steps), device, [X, Y], [X + Y], [1e39])
    assert result.error == "wrong" and "past the end of output b2" in result.message


def test_a_workspace_of_the_run_before_is_seen(device: Device, elementwise: Build) -> None:
    """The workspace accumulates: right only where it happens to be zero."""
    steps = [(3, 3, "*", 0.0), (3, 3, "+", 0), (2, 3, "+", 1)]
    result = trial(elementwise(device, steps, "iiow"), device, [X, Y], [X + Y], [1e-6])
    assert result.error == "wrong"


def test_results_that_differ_between_two_runs_are_seen(device: Device, elementwise: Build) -> None:
    """An output that depends on what was in memory before, within the bound."""
    artifact, slack = elementwise(device, [(2, 0, "+", 3)], "iiow"), [np.full(SIZE, 1e39)]
    result = trial(artifact, device, [X, Y], [X], slack)
    assert result.error == "wrong"  # in a run that was short enough to repeat, or as NaN


def test_a_second_look_sees_what_has_changed(device: Device) -> None:
    buffer = GuardedBuffer(BufferSpec("b", DType("float32"), (SIZE,), "output"), device, 0)
    buffer.fill(Filling.NAN)
    buffer.look()
    assert np.isnan(buffer.read()).all() and not buffer.damage()
    device.driver.write(buffer.memory, X.view(np.uint8))
    device.driver.write(buffer._fenced.whole, X[:1].view(np.uint8))
    buffer.look()
    assert np.array_equal(buffer.read(), X) and "bytes before output b" in buffer.damage()


def test_borrowed_inputs_are_of_a_lone_case(device: Device, elementwise: Build) -> None:
    artifact = elementwise(device, [(2, 0, "+", 1)])
    other = Case.of([X, Y], [X + Y], [0.0])
    with pytest.raises(InternalError, match="borrowed"):
        trial(artifact, device, [array(X, device), array(Y, device)], [X + Y], [0.0], also=[other])


@pytest.mark.parametrize("dtype", TYPES)
def test_fillings_differ(dtype: str) -> None:
    """In every element between the two kinds that all types have, and between two marks."""
    kind = DType(dtype)
    one, other = (garbage(kind, 7, f, 3) for f in (Filling.EXTREMES, Filling.EXCHANGED))
    assert one.dtype == kind.storage and (one != other).all()
    for filling in Filling:
        again = garbage(kind, 7, filling, 4).tobytes()
        assert dtype == "bool" or garbage(kind, 7, filling, 3).tobytes() != again
    if kind.is_float:
        assert np.isnan(garbage(kind, 7, Filling.NAN, 3).astype(np.float64)).all()
        assert np.isfinite(one.astype(np.float64)).all() and one[0] > 0 > one[1]


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("size", [1, 3, 5000])
def test_content_and_zones_are_what_was_filled(device: Device, dtype: str, size: int) -> None:
    buffer = GuardedBuffer(BufferSpec("b", DType(dtype), (size,), "output"), device, 2)
    for filling in Filling:
        buffer.fill(filling)
        assert buffer.unwritten(buffer.read()).all() and buffer.damage() == ""
        value = np.ones(size, DType(dtype).storage)
        buffer.fill(filling, value)
        assert buffer.read().tobytes() == value.tobytes() and buffer.damage() == ""


FAR = """
import ctypes
from tilewright.runtime.drivers.cpu import CpuMemory
fenced = CpuMemory.fenced({nbytes})
ctypes.memset(fenced.whole.pointer, 1, fenced.whole.nbytes)
print("inside", flush=True)
ctypes.memset(fenced.{what}, 1, 1)
print("outside", flush=True)
"""


@pytest.mark.sampled(2)
@pytest.mark.slow
@pytest.mark.parametrize("what", ["whole.pointer - 1", "whole.pointer + fenced.whole.nbytes",
                                  "whole.pointer - (4 << 20)"])  # fmt: skip
@pytest.mark.parametrize("nbytes", [1, 4096, 5 << 20])
def test_pages_beyond_the_zones_cannot_be_touched(what: str, nbytes: int) -> None:
    assert cpu().exist
    text = FAR.format(nbytes=nbytes, what=what)
    said = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, timeout=60)
    assert said.stdout.split() == ["inside"] and said.returncode < 0, said
