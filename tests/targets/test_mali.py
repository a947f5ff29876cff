"""Kernels for a Mali: within its limits, without copies in shared memory, right on any OpenCL."""

from __future__ import annotations

from math import prod
from pathlib import Path

import numpy as np
import pytest

from tilewright.base.errors import DeviceError
from tilewright.runtime import cpu, load_module, opencl
from tilewright.runtime.network.graph_executor import GraphModule
from tilewright_tvm import relay

pytestmark = pytest.mark.skipif(not opencl().exist, reason="no OpenCL device")
X = {"x": (1, 9, 9, 16)}


def network() -> relay.Function:
    """Convolutions, depthwise and not, and products, as in networks of phones."""
    x = relay.var("x", shape=X["x"])
    w, d = relay.var("w", shape=(3, 3, 16, 24)), relay.var("d", shape=(3, 3, 24, 1))
    p, q = relay.var("p", shape=(1, 1, 24, 40)), relay.var("q", shape=(7, 40))
    common = {"data_layout": "NHWC"}
    y = relay.nn.relu(
        relay.nn.conv2d(x, w, kernel_size=3, channels=24, padding=1, kernel_layout="HWIO", **common)
    )
    y = relay.nn.relu(
        relay.nn.conv2d(y, d, kernel_size=3, channels=24, groups=24, kernel_layout="HWOI", **common)
    )
    y = relay.nn.conv2d(y, p, kernel_size=1, channels=40, kernel_layout="HWIO", **common)
    y = relay.nn.dense(relay.reshape(y, (-1, 40)), q)
    return relay.Function(relay.free_vars(y), y)  # fmt: skip


@pytest.fixture(scope="module")
def weights() -> dict[str, np.ndarray]:
    rng = np.random.default_rng(0)
    return {p.name_hint: rng.standard_normal(p.shape).astype("float32") / 8
            for p in network().params if p.name_hint not in X}  # fmt: skip


def test_kernels_are_right_and_within_the_limits(weights: dict[str, np.ndarray]) -> None:
    library = relay.build(network(), "opencl -device=mali", weights)
    assert all(k.verified for k in library.report.kernels) and len(library.kernels) == 4
    for artifact in library.kernels:
        assert "__local" not in artifact.source.text
        assert all(prod(kernel.block) <= 256 for kernel in artifact.source.kernels)
    usual = relay.build(network(), "opencl", weights)
    assert any("__local" in artifact.source.text for artifact in usual.kernels)


@pytest.mark.parametrize("name", ["net.so", "net.tar"])
def test_what_is_for_a_board_holds_text(
    weights: dict[str, np.ndarray], tmp_path: Path, name: str
) -> None:
    library = relay.build(
        network(), "opencl -device=mali", weights, target_host="llvm -mtriple=riscv64-linux-gnu"
    )
    assert not any(artifact.binary for artifact in library.kernels)
    assert "riscv64-linux-gnu is another machine" in str(library.report)
    library.export_library(tmp_path / name)
    loaded = load_module(tmp_path / name)
    with pytest.raises(DeviceError, match="was built for opencl -device=mali"):
        loaded["default"](cpu())
    x = np.random.default_rng(1).standard_normal(X["x"]).astype("float32")
    module = GraphModule(loaded["default"](opencl()))
    module.run(x=x)
    expected = relay.evaluate(network(), {"x": x, **weights})
    np.testing.assert_allclose(module.get_output(0).numpy(), expected, rtol=1e-4, atol=1e-5)
