"""`new_bench()`: random inputs by tensor, and the float64 value of anything computed from them."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tilewright import te
from tilewright.te import ComputeDAG, Tensor
from tilewright.te.evaluate import evaluate


class Bench:
    """`bench.input(shape)` makes a placeholder; `bench[t]` is its value, exact in float64."""

    def __init__(self, seed: int = 0) -> None:
        self.rng = np.random.default_rng(seed)
        self.values: dict[Tensor, np.ndarray] = {}

    def input(self, *shape: int, dtype: str = "float32", low: float = -2.0) -> Tensor:
        tensor = te.placeholder(shape, dtype, name=f"p{len(self.values)}")
        if dtype == "bool":
            value = self.rng.integers(0, 2, shape).astype(bool)
        elif dtype.startswith("int"):
            value = self.rng.integers(-9, 10, shape)
        else:
            value = self.rng.uniform(low, 2.0, shape).astype(np.float32).astype(np.float64)
        self.values[tensor] = value
        return tensor

    def __getitem__(self, tensor: Tensor) -> np.ndarray:
        return self.values[tensor]

    def run(self, output: Tensor) -> np.ndarray:
        dag = ComputeDAG(output)
        used = {op.output_tensor: self.values[op.output_tensor] for op in dag.placeholders}
        return evaluate(dag, used)[0]

    def check(self, output: Tensor, expected: Any) -> None:
        value = self.run(output)
        assert output.shape == np.shape(expected)
        np.testing.assert_allclose(value, expected, rtol=1e-6, atol=1e-9)


@pytest.fixture(scope="session")
def new_bench() -> Callable[..., Bench]:
    return Bench
