"""Several functions that one call builds, by their names."""

import numpy as np
import pytest

from tilewright import build, lower, nd, te
from tilewright.base.errors import DeviceError, ScheduleError


def lowered(name: str, number: float) -> object:
    a = te.placeholder((8,), name="A")
    b = te.compute((8,), lambda i: a[i] + number, name="B")
    return lower(te.create_schedule(b.op), [a, b], name=name)


def test_functions_of_a_list_by_their_names() -> None:
    both = build([lowered("one", 1.0), lowered("two", 2.0)], "llvm")
    assert list(both) == ["one", "two"] and len(both) == 2 and both.entry_name == "one"
    a, b = nd.array(np.ones(8, "float32")), nd.array(np.zeros(8, "float32"))
    for name, found in (("one", 2.0), ("two", 3.0)):
        both[name](a, b)
        assert (b.numpy() == found).all()
    both(a, b)
    assert (b.numpy() == 2.0).all()
    with pytest.raises(DeviceError, match="one, two"):
        both["three"]
    with pytest.raises(AttributeError, match=r"m\[name\]"):
        both.export_library("two.so")


def test_what_was_lowered_keeps_its_name_and_takes_its_target_first() -> None:
    assert build(lowered("one", 1.0), "llvm").entry_name == "one"
    assert build(lowered("one", 1.0), "llvm", name="other").entry_name == "other"


@pytest.mark.parametrize("what", [[], [lowered("one", 1.0)] * 2])
def test_no_list_of_functions(what: list[object]) -> None:
    with pytest.raises(ScheduleError, match="different names"):
        build(what, target="llvm")
