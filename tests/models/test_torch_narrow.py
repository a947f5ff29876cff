"""`torch.compile(.., options={"weights": "int8"})`: dense layers have narrow weights."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

from tilewright.base.errors import ModelError  # noqa: E402
from tilewright.models.torch.compile import Options, TilewrightWarning  # noqa: E402

pytestmark = pytest.mark.slow


def test_weights_are_narrow_and_their_cost_is_told() -> None:
    layers = torch.nn.Linear(256, 128), torch.nn.ReLU(), torch.nn.Linear(128, 256)
    model, x = torch.nn.Sequential(*layers).eval(), torch.randn(2, 256)
    run = torch.compile(model, backend="tilewright", options={"weights": "int8", "cache": False})
    with torch.no_grad():
        expected = model(x)
        with pytest.warns(TilewrightWarning, match="weights int8:128:head=int8 in 2 layers"):
            found = run(x)
        off = float((found - expected).norm() / expected.norm())
        assert 1e-4 < off < 0.03
        assert torch.equal(run(x), found)


def test_weights_that_there_are_not() -> None:
    with pytest.raises(ModelError, match="there are no such weights"):
        Options.of({"weights": "int5"})
