"""Constants that take turns: each run reads another copy, and the figure is that of one run."""

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from tilewright.base.artifact import Artifact
from tilewright.runtime import Device
from tilewright.runtime.cold import MOST_COPIES, InTurn, bind, in_turn
from tilewright.runtime.trial import trial

Build = Callable[..., Artifact]
SIZE = 1000
ADD = (2, 0, "+", 1)
X, Y = np.random.default_rng(0).normal(size=(2, SIZE)).astype(np.float32)


@dataclass
class Counting:
    """A plan whose pass takes 6 seconds."""

    passes: list[int] = field(default_factory=list)

    def seconds(self, number: int, flush_bytes: int = 0) -> float:
        self.passes.append(number)
        return 6.0


def test_a_pass_over_all_copies_is_told_as_one_run() -> None:
    plan = Counting()
    timed = InTurn(plan, 3)
    assert timed.seconds(1) == timed.seconds(7) == 2.0 and plan.passes == [1, 3]


def test_there_are_as_many_copies_as_the_bytes_ask_for(device: Device, elementwise: Build) -> None:
    driver = device.driver
    kernels = driver.load(elementwise(device, [ADD]))
    memory = [driver.allocate(4 * SIZE) for _ in range(3)]
    for m, value in zip(memory, (X, Y, X), strict=True):
        driver.write(m, value.view(np.uint8))

    def copies(constants: list[int], cold_bytes: int) -> int:
        made = in_turn(driver, kernels, memory, constants, cold_bytes)
        return 1 if made is None else made.copies

    assert copies([1], 10 * 4 * SIZE) == 10 and copies([0, 1], 10 * 4 * SIZE) == 5
    assert copies([1], 1 << 30) == MOST_COPIES
    assert copies([], 1 << 30) == copies([1], 0) == copies([1], 4 * SIZE) == 1
    made = in_turn(driver, kernels, memory, [1], 3 * 4 * SIZE)
    assert made is not None and len(bind(kernels, memory)) * made.copies == 3
    driver.write(memory[1], np.zeros(4 * SIZE, np.uint8))  # the copies keep what was there
    made.seconds(1)
    found = np.empty(SIZE, "float32")
    device.sync()
    driver.read(memory[2], found.view(np.uint8))
    np.testing.assert_array_equal(found, X + Y)


def test_a_trial_with_cold_constants(device: Device, elementwise: Build) -> None:
    artifact = elementwise(device, [ADD])
    cold = {"constants": [1], "cold_bytes": 1 << 20, "repeat": 3}
    right = trial(artifact, device, [X, Y], [X + Y], [0.0], **cold)
    assert right.error is None and len(right.costs) == 3 and right.cold
    warm = trial(artifact, device, [X, Y], [X + Y], [0.0], constants=[1], cold_bytes=X.nbytes)
    assert warm.error is None and not warm.cold  # one copy will do
    lost = trial(artifact, device, [X, Y], [X + Y], None, best_seconds=1e-12, **cold)
    assert lost.raced and lost.cold
    wrong = trial(artifact, device, [X, Y], [X - Y], [1e-6], **cold)
    assert wrong.error == "wrong"
