"""An element type that a device lacks is one error, before anything is lowered."""

import pytest

from tilewright import te
from tilewright.base.errors import TargetError
from tilewright.driver.build import generate_source
from tilewright.schedule.schedule import Schedule, create_schedule
from tilewright.targets.spec import DeviceSpec
from tilewright.targets.target import Target

SMALL = Target("opencl").on(DeviceSpec("opencl", "Small GPU", lacks=("float64",)))


def total(dtype: str, acc_dtype: str | None = None) -> Schedule:
    a = te.placeholder((8, 8), name="a", dtype=dtype)
    k = te.reduce_axis((0, 8), name="k")
    c = te.compute((8,), lambda i: te.sum(a[i, k], axis=k, acc_dtype=acc_dtype), name="c")
    return create_schedule(c.op)


def test_a_device_without_a_type() -> None:
    text = r"build a for opencl: this device \(Small GPU\) does not compute float64. Cast to"
    with pytest.raises(TargetError, match=text):
        generate_source(total("float64"), SMALL)
    assert generate_source(total("float64"), Target("opencl")).text  # no device, no limit
    assert generate_source(total("float32"), SMALL).text


def test_partial_results_count() -> None:
    with pytest.raises(TargetError, match="build c for opencl.* does not compute float64"):
        generate_source(total("float32", "float64"), SMALL)
