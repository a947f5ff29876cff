"""Narrow weights on CPUs: every byte is the number that it stands for, times rows, as compiled."""

from __future__ import annotations

import numpy as np
import pytest

from tests.codegen.test_asked_ahead import CPU, sketch_of
from tilewright import te, topi
from tilewright.base.artifact import Source
from tilewright.codegen import generate
from tilewright.codegen.llvm_bytes import NIBBLE
from tilewright.driver import llvm
from tilewright.driver.build import build
from tilewright.graph.narrow import unpacked
from tilewright.lowering.pipeline import lower_schedule
from tilewright.runtime.device import cpu
from tilewright.runtime.drivers import cpu_features
from tilewright.runtime.ndarray import array
from tilewright.targets.target import Target
from tilewright.te.tensor import Tensor
from tilewright.topi.nn.narrow import KINDS

COLUMNS = 256


def product_of(kind: str) -> list[Tensor]:
    line = KINDS[kind].line
    data = te.placeholder((2, 2 * line), "float32", "data")
    weight = te.placeholder((COLUMNS, 2, 16), "int8", "weight", constant=True)
    scale = te.placeholder((COLUMNS, 2), "bfloat16", "scale", constant=True)
    return [data, weight, scale, topi.nn.dense_narrow(data, weight, scale, kind, "float32")]


@pytest.mark.parametrize("processor", ["native", "haswell"])
@pytest.mark.parametrize("kind", KINDS)
def test_every_byte_in_every_place(kind: str, processor: str) -> None:
    tensors, target = product_of(kind), Target(f"llvm -mcpu={processor} -num-cores=2")
    if cpu_features.lacks(dict(target.options)):
        pytest.skip("this machine lacks its instructions")
    sketch = sketch_of(tensors, target)
    some = sketch.space.sample(64, np.random.default_rng(0))
    rng = np.random.default_rng(1)
    place = np.arange(COLUMNS)[:, None] + np.arange(32)[None] * 37
    weight = (place % 256).astype("uint8").view("int8").reshape(COLUMNS, 2, 16)
    scale = (2.0 ** rng.integers(-2, 2, (COLUMNS, 2))).astype(tensors[2].dtype.storage)
    data = rng.integers(-2, 3, tensors[0].shape).astype("float32")
    exact = data.astype(np.float64) @ unpacked(weight, scale, kind).astype(np.float64).T
    for index in some[sketch.legal(some)][:3]:
        module = build(sketch.close(int(index)), tensors, target)
        out = array(np.zeros(exact.shape, "float32"), cpu())
        module(*(array(given, cpu()) for given in (data, weight, scale)), out)
        np.testing.assert_array_equal(out.numpy(), exact)


def source_of(kind: str) -> Source:
    tensors = product_of(kind)
    sketch = sketch_of(tensors)
    index = sketch.fallback()
    assert index is not None
    return generate(lower_schedule(sketch.close(index), CPU, args=tensors), CPU)


def test_bytes_become_floats_in_few_instructions(monkeypatch: pytest.MonkeyPatch) -> None:
    texts = {kind: source_of(kind).text for kind in KINDS}
    assert f"call <16 x float> @{NIBBLE}" in texts["int4"]
    assert "shl <16 x i8>" not in texts["int4"] and "trunc" not in texts["int4"]
    assert "fpext <16 x half>" in texts["float8"] and "icmp slt <16 x i32>" not in texts["float8"]
    assert NIBBLE not in texts["int8"] and "x half>" not in texts["int8"]
    looked_up = llvm.assembly(source_of("int4"), CPU)
    assert "vperm" in looked_up and "vcvtdq2ps" not in looked_up
    monkeypatch.setattr(llvm, "_TABLES", "no such feature")
    computed = llvm.assembly(source_of("int4"), CPU)
    assert "vperm" not in computed and "vcvtdq2ps" in computed


def test_a_processor_without_such_instructions_takes_others() -> None:
    """Of eight lanes: one half is moved to the upper end, the other one stays there."""
    tensors = product_of("int4")
    old = Target("llvm -mcpu=haswell -num-cores=2")
    sketch = sketch_of(tensors, old)
    index = sketch.fallback()
    assert index is not None
    text = generate(lower_schedule(sketch.close(index), old, args=tensors), old).text
    assert "shl <8 x i32>" in text and ", splat (i32 28)" in text and NIBBLE not in text
