"""Trials, artefact files and references keep every element type: a copying kernel per type."""

from pathlib import Path

import numpy as np
import pytest

from tilewright.base.artifact import Artifact, BufferSpec, KernelInfo, Source
from tilewright.base.dtype import TYPES, DType
from tilewright.driver import compile_source
from tilewright.driver.cache import Cache
from tilewright.measure.reference import ReferenceStore, load
from tilewright.runtime import Module, array, cpu, empty, load_module
from tilewright.runtime.trial import trial

SIZE = 40
TEXT = """
define void @copy(ptr noalias %a, ptr noalias %b) {{
entry:
  br label %loop
loop:
  %i = phi i64 [ 0, %entry ], [ %next, %loop ]
  %from = getelementptr i{bits}, ptr %a, i64 %i
  %to = getelementptr i{bits}, ptr %b, i64 %i
  %x = load i{bits}, ptr %from
  store i{bits} %x, ptr %to
  %next = add i64 %i, 1
  %more = icmp slt i64 %next, {count}
  br i1 %more, label %loop, label %done
done:
  ret void
}}"""


def copying(dtype: str, count: int = SIZE) -> Artifact:
    specs = tuple(
        BufferSpec(name, DType(dtype), (SIZE,), role)
        for name, role in (("a", "input"), ("b", "output"))
    )
    text = TEXT.format(bits=DType(dtype).bits, count=count)
    source = Source("llvm", text, "copy", specs, (KernelInfo("copy", (0, 1)),))
    return compile_source(source, "llvm", Cache(None))


def values(dtype: str) -> np.ndarray:
    """Extremes, and infinities and NaN where the type has them."""
    t = DType(dtype)
    special = [t.least, t.greatest, 0, 1]
    if t.is_float:
        special += [np.inf, -np.inf, np.nan, t.smallest]
    drawn = np.random.default_rng(0).integers(0, 2, SIZE - len(special))
    return np.concatenate([np.array(special, t.storage), drawn.astype(np.int64).astype(t.storage)])


@pytest.mark.parametrize("dtype", TYPES)
def test_every_type_is_compared(dtype: str) -> None:
    x = values(dtype)
    wide = x if x.dtype.kind in "biu" else x.astype(np.float64)
    tolerance = np.full(SIZE, DType(dtype).eps)
    right = trial(copying(dtype), cpu(), [x], [wide], [tolerance])
    assert right.error is None, right.message

    other = wide.copy()
    other[-1] = not other[-1] if dtype == "bool" else 1 - other[-1]
    wrong = trial(copying(dtype), cpu(), [x], [other], [tolerance])
    assert wrong.error == "wrong" and f"wrong in 1 of {SIZE} elements" in wrong.message


@pytest.mark.parametrize("dtype", [t for t in TYPES if t != "bool"])
def test_an_element_that_was_not_written_is_wrong_in_every_type(dtype: str) -> None:
    x = values(dtype)
    result = trial(copying(dtype, SIZE - 1), cpu(), [x], [x.astype(np.float64)], [0.5])
    assert result.error == "wrong" and f"first at [{SIZE - 1}]" in result.message
    assert "(1 of them never written)" in result.message


@pytest.mark.parametrize("dtype", TYPES)
def test_modules_and_references_are_saved_with_their_types(dtype: str, tmp_path: Path) -> None:
    x = values(dtype)
    Module(copying(dtype), cpu()).save(tmp_path / "module")
    again, out = load_module(tmp_path / "module"), empty(SIZE, dtype)
    again(array(x), out)
    assert out.numpy().tobytes() == x.tobytes()
    assert again.parameters[0].dtype is DType(dtype)

    with ReferenceStore() as store:
        read = load(store.put("t", [x], [x.astype(np.float64)], [0.0]))
    assert read.inputs[0].dtype == x.dtype
    assert read.inputs[0].tobytes() == x.tobytes()
