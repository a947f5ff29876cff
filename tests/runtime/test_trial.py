import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from tilewright.base.artifact import Artifact
from tilewright.base.dtype import DType
from tilewright.base.errors import DeviceError, InternalError
from tilewright.runtime import Device, array, device_copies, guarded
from tilewright.runtime.trial import _race, trial

Build = Callable[..., Artifact]
SIZE = 1000
ADD = (2, 0, "+", 1)
X, Y = np.random.default_rng(0).normal(size=(2, SIZE)).astype(np.float32)


def test_right_kernel_is_timed(device: Device, elementwise: Build) -> None:
    result = trial(elementwise(device, [ADD]), device, [X, Y], [X + Y], [0.0], repeat=3)
    assert result.error is None and not result.raced and len(result.costs) == 3
    assert set(result.stages) == {"load", "verify", "time"} and result.seconds > 0


def test_race_stops_a_slow_kernel(device: Device, elementwise: Build) -> None:
    artifact = elementwise(device, [ADD])
    lost = trial(artifact, device, [X, Y], [X + Y], None, best_seconds=1e-12, repeat=3)
    won = trial(artifact, device, [X, Y], [X + Y], None, best_seconds=1.0, repeat=3)
    off = trial(artifact, device, [X, Y], [X + Y], None, best_seconds=1e-12, repeat=3, race=False)
    assert lost.raced and len(lost.costs) == 1
    assert not won.raced and len(won.costs) == 3 == len(off.costs)


class Clocked:
    """A kernel of so many seconds on a device whose clock starts and stops in 7 us."""

    def __init__(self, seconds: float) -> None:
        self.each, self.spent = seconds, 0.0

    def seconds(self, number: int, flush_bytes: int = 0) -> float:
        self.spent += number * self.each + 7e-6
        return self.each + 7e-6 / number


@pytest.mark.parametrize("best", [1.5e-6, 2e-5, 1e-3])
def test_a_race_is_lost_to_the_best_and_not_to_the_clock(best: float) -> None:
    def cost_of(kernel: Clocked) -> float | None:
        return _race(kernel, best, 0)

    assert cost_of(Clocked(0.95 * best)) is None
    for slower in (1.01, 1.4, 1.6, 10.0):
        kernel = Clocked(slower * best)
        cost = cost_of(kernel)
        assert cost == pytest.approx(slower * best, rel=0.05)
        assert kernel.spent < (7e-3 + 21 * kernel.each if slower < 1.5 else 1e-3 + 6 * kernel.each)


@pytest.mark.parametrize(
    ("steps", "message"),
    [
        ([(2, 0, "*", 1)], r"output b2 is wrong in \d+ of 1000 elements; first at"),
        (
            [(2, 0, "+", 1, 0, SIZE - 1)],
            r"in 1 of 1000 .*1 of them never written.*first at \[999\]",
        ),
        ([(2, 0, "+", 1, 1)], "wrote 0 bytes past the end of output b2"),
        ([ADD, (1, 0, "+", 0)], "wrote into its input b1"),
    ],
    ids=["value", "unwritten", "guard", "input"],
)
def test_wrong_kernels(
    device: Device, steps: list[tuple], message: str, elementwise: Build
) -> None:
    result = trial(elementwise(device, steps), device, [X, Y], [X + Y], [1e-6])
    assert result.error == "wrong" and not result.costs
    assert re.search(message, result.message), result.message


def test_reading_an_unwritten_workspace_is_wrong(device: Device, elementwise: Build) -> None:
    steps = [(3, 3, "*", 0.0), (2, 3, "+", 0)]
    result = trial(elementwise(device, steps, "iiow"), device, [X, Y], [X])
    assert result.error == "wrong" and "nan instead of" in result.message


def test_state_left_behind_is_found_after_timing(device: Device, elementwise: Build) -> None:
    steps = [ADD, (0, 0, "+", 1)]  # right the first time; the input is borrowed, so not checked
    borrowed = [array(X, device), array(Y, device)]
    result = trial(elementwise(device, steps), device, borrowed, [X + Y], [1e-6])
    assert result.error == "wrong" and "output b2" in result.message


def test_what_is_borrowed_needs_no_memory_of_its_own(
    device: Device, elementwise: Build, monkeypatch: pytest.MonkeyPatch
) -> None:
    artifact = elementwise(device, [ADD])
    borrowed = [array(X, device), array(Y, device)]
    sizes: list[int] = []
    real = type(device.driver).fenced

    def fenced(driver: object, nbytes: int) -> object:
        sizes.append(nbytes)
        return real(driver, nbytes)

    monkeypatch.setattr(type(device.driver), "fenced", fenced)
    assert trial(artifact, device, borrowed, [X + Y]).error is None
    assert sizes == [4 * SIZE]  # of the output


def test_what_is_too_large_for_the_device_is_never_made_on_the_host(
    device: Device, elementwise: Build, monkeypatch: pytest.MonkeyPatch
) -> None:
    artifact = elementwise(device, [ADD], "iiow")
    huge = replace(artifact.source.buffers[3], shape=(1 << 42,))
    source = replace(artifact.source, buffers=(*artifact.source.buffers[:3], huge))
    real_fenced, real_garbage = type(device.driver).fenced, guarded.garbage

    def fenced(driver: object, nbytes: int) -> object:
        if nbytes > 1 << 40:
            raise DeviceError("allocate", "out of memory")
        return real_fenced(driver, nbytes)

    def garbage(dtype: DType, count: int, *rest: Any) -> np.ndarray:
        assert count < 1 << 30, "the host would fill terabytes"
        return real_garbage(dtype, count, *rest)

    monkeypatch.setattr(type(device.driver), "fenced", fenced)
    monkeypatch.setattr(guarded, "garbage", garbage)
    result = trial(replace(artifact, source=source), device, [X, Y], [X + Y])
    assert result.error == "run" and "out of memory" in result.message


def test_tolerance_is_per_element(device: Device, elementwise: Build) -> None:
    want = X + Y
    want[7] += 0.5
    slack = np.zeros(SIZE)
    artifact = elementwise(device, [ADD])
    assert trial(artifact, device, [X, Y], [want], [slack]).error == "wrong"
    slack[7] = 0.6
    assert trial(artifact, device, [X, Y], [want], [slack]).error is None


def test_broken_artefact_is_a_run_error(device: Device, elementwise: Build) -> None:
    artifact = elementwise(device, [ADD])
    kernels = (replace(artifact.source.kernels[0], name="missing"),)
    broken = replace(artifact, source=replace(artifact.source, kernels=kernels))
    result = trial(broken, device, [X, Y])
    assert result.error == "run" and not result.fatal and "missing" in result.message


def test_wrong_call_raises(device: Device, elementwise: Build) -> None:
    artifact = elementwise(device, [ADD])
    with pytest.raises(InternalError, match="1 inputs for 2 buffers"):
        trial(artifact, device, [X])
    with pytest.raises(DeviceError, match=r"input b1.*float64\[1000\]"):
        trial(artifact, device, [X, Y.astype(np.float64)])


@pytest.fixture
def far_away(device: Device, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[int]]:
    """Small arrays are kept, too, and there is room.  Gives the bytes of what is brought there."""
    monkeypatch.setattr(guarded, "_AT_ONCE", 0)
    monkeypatch.setattr(guarded, "_PIECE", 100)
    monkeypatch.setattr(device_copies, "_LEAST", 0)
    brought: list[int] = []
    kind = type(device.driver)
    write = kind.write

    def seen(driver: Any, memory: Any, data: np.ndarray, offset: int = 0) -> None:
        brought.append(data.nbytes)
        write(driver, memory, data, offset)

    monkeypatch.setattr(kind, "write", seen)
    monkeypatch.setattr(kind, "free_bytes", lambda _: 1 << 40, raising=False)
    yield brought
    device_copies.forget()


def constants() -> tuple[np.ndarray, np.ndarray]:
    """Arrays that nobody may change."""
    x, y = X.copy(), Y.copy()
    x.flags.writeable = y.flags.writeable = False
    return x, y


def test_constants_are_brought_to_the_device_once(
    device: Device, elementwise: Build, far_away: list[int]
) -> None:
    x, y = constants()
    artifact = elementwise(device, [ADD])
    for times in (5, 0, 0):  # two constants, and what the output is filled with in turn
        far_away.clear()
        assert trial(artifact, device, [x, y], [x + y]).error is None
        assert sum(n == x.nbytes for n in far_away) == times
    changed = x + 1  # others are others
    assert trial(artifact, device, [changed, y], [x + y]).error == "wrong"


def test_an_input_that_is_changed_anywhere_shows_in_pieces(
    device: Device, elementwise: Build, far_away: list[int]
) -> None:
    for at in (0, 24, 25, SIZE - 1):  # at both sides of where a piece ends
        steps = [ADD, (1, 0, "+", 0, at, 1)]
        result = trial(elementwise(device, steps), device, [*constants()], [X + Y], [1e-6])
        assert result.error == "wrong" and "wrote into its input b1" in result.message


def test_what_damages_a_kept_constant_harms_no_later_trial(
    device: Device, elementwise: Build, far_away: list[int]
) -> None:
    x, y = constants()
    artifact = elementwise(device, [ADD])
    assert trial(artifact, device, [x, y], [x + y]).error is None
    for _, driver, copy in device_copies._copies.values():
        driver.write(copy, np.full(4, 7, np.uint8), 64)
    assert trial(artifact, device, [x, y], [x + y]).error == "wrong"
    assert trial(artifact, device, [x, y], [x + y]).error is None
    before = len(device_copies._copies)
    del x, y
    assert len(device_copies._copies) == before - 2  # nothing is kept of what is gone


def test_copies_make_room(
    device: Device, elementwise: Build, far_away: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """They take a small part of what is free, and nothing where memory is wanted."""
    x, y = constants()
    artifact = elementwise(device, [ADD])
    monkeypatch.setattr(type(device.driver), "free_bytes", lambda _: 16 * x.nbytes + 100)
    assert trial(artifact, device, [x, y], [x + y]).error is None
    assert len(device_copies._copies) == 1
    fenced, failures = type(device.driver).fenced, [1]

    def full(driver: Any, nbytes: int) -> Any:
        if failures:
            failures.pop()
            raise DeviceError("allocate", "out of memory")
        assert not device_copies._copies
        return fenced(driver, nbytes)

    monkeypatch.setattr(type(device.driver), "fenced", full)
    assert trial(artifact, device, [x, y], [x + y]).error is None
