"""300 random schedules of random computations, compiled and run on a real device."""

from __future__ import annotations

import pytest

from schedule.test_schedules import assert_right, drawn, lowered, run_on
from tilewright.runtime.device import Device
from tilewright.te.evaluate import random_inputs

PER_TEST = 20


@pytest.mark.sampled(3)
@pytest.mark.slow
@pytest.mark.parametrize("batch", range(15))
def test_drawn_schedules(on_device: Device, kind: str, batch: int) -> None:
    for seed in range(batch * PER_TEST, (batch + 1) * PER_TEST):
        dag, schedule = drawn(10_000 + seed, gpu=True)
        program = lowered(schedule, kind)
        if program is None:
            continue
        inputs = random_inputs(dag, seed)
        assert_right(dag, program, run_on(kind, program, inputs), inputs)
