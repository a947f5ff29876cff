"""Several functions that one call builds, by their names."""

import numpy as np
import pytest
from tilewright.target.codegen import llvm_version_major

from tilewright import build, device, lower, nd, target, te
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


@pytest.mark.parametrize("target", ["llvm", "opencl"])
def test_what_is_stored_nowhere_is_computed_for_the_caller(target: str) -> None:
    a = te.placeholder((6, 20), name="A")
    b = te.compute((6, 20), lambda i, j: a[i, j] + 1.0, name="B")
    k = te.reduce_axis((0, 20), "k")
    c = te.compute((6,), lambda i: te.sum(b[i, k], axis=k), name="C")
    d = te.compute((6,), lambda i: c[i] * 2.0, name="D")
    s = te.create_schedule(d.op)
    s[b].compute_inline()
    outer, inner = s[d].split(d.op.axis[0], 2)
    s[c].compute_at(s[d], inner)
    if target == "opencl":
        s[d].bind(outer, "blockIdx.x")
        s[d].bind(inner, "threadIdx.x")
    dev = device(target)
    x = np.random.default_rng(0).standard_normal((6, 20)).astype("float32")
    made = [nd.array(np.zeros(t.shape, "float32"), dev) for t in (b, c, d)]
    build(s, [a, b, c, d], target)(nd.array(x, dev), *made)
    want = ((x + 1), (x + 1).sum(1), (x + 1).sum(1) * 2)
    for found, expected in zip(made, want, strict=True):
        np.testing.assert_allclose(found.numpy(), expected, rtol=1e-5)


def test_the_version_of_llvm() -> None:
    assert llvm_version_major() >= 15
    with pytest.raises(AttributeError, match=r"target.codegen.build_module does not exist here"):
        _ = target.codegen.build_module
