"""Writes to caches on CPUs: what a result keeps is not stored where it lies in the argument."""

from __future__ import annotations

import numpy as np
import pytest

from tilewright import te
from tilewright.codegen import generate
from tilewright.driver.build import build
from tilewright.lowering.pipeline import lower_schedule
from tilewright.runtime.device import cpu
from tilewright.runtime.drivers import Launch
from tilewright.runtime.ndarray import array
from tilewright.schedule.default import default_schedule
from tilewright.targets.target import Target
from tilewright.te.dag import ComputeDAG
from tilewright.te.tensor import Tensor


def write(rows: int) -> list[Tensor]:
    """cache [4, rows, 32] with a new row of each of the four."""
    at = te.placeholder((1,), "int64", "at")
    new = te.placeholder((4, 32), "float32", "new")
    cache = te.placeholder((4, rows, 32), "float32", "cache")
    out = te.compute(
        cache.shape, lambda h, p, c: te.select(at[0].equal(p), new[h, c], cache[h, p, c])
    )
    return [at, new, cache, out]


@pytest.mark.parametrize("cores", [1, 2])
def test_a_write_in_place_is_a_write_beside(cores: int) -> None:
    tensors, target = write(256), Target(f"llvm -num-cores={cores}")
    module = build(default_schedule(ComputeDAG(tensors), target), tensors, target)
    rng = np.random.default_rng(0)
    new, old = (rng.standard_normal(t.shape).astype("float32") for t in tensors[1:3])
    for row in (0, 7, 255):
        at, fresh, cache = (array(x, cpu()) for x in (np.array([row]), new, old))
        out = array(np.zeros_like(old), cpu())
        module(at, fresh, cache, out)
        wanted = old.copy()
        wanted[:, row] = new
        np.testing.assert_array_equal(out.numpy(), wanted)
        np.testing.assert_array_equal(cache.numpy(), old)
        ((kernel, arrays),) = module.launches(at, fresh, cache, out)
        memory = tuple((cache if a is out else a).memory for a in arrays)
        cpu().driver.plan((Launch(kernel, memory),)).run()
        np.testing.assert_array_equal(cache.numpy(), wanted)


def test_the_text_asks_where_the_result_lies() -> None:
    target = Target("llvm -mcpu=skylake-avx512 -num-cores=2")
    text, small = (
        generate(
            lower_schedule(default_schedule(ComputeDAG(t), target), target, args=t), target
        ).text
        for t in (write(256), write(16))
    )
    assert text.count("icmp ne ptr") == 1 and "icmp ne ptr" not in small
    heads = [line for line in text.splitlines() if line.startswith("define") and "noalias" in line]
    assert heads and all(h.count("noalias") == 2 and h.count("nocapture") == 4 for h in heads)
