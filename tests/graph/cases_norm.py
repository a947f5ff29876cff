"""Cases of normalisation."""

from __future__ import annotations

from graph.case import Case, tensor
from tilewright_tvm.relay import nn

NORM: tuple[Case, ...] = (
    Case("nn.standardize", lambda: nn.standardize(tensor("x", 3, 40))),
    Case("nn.standardize", lambda: nn.standardize(tensor("x", 3, 5), center=False), "rms"),
    Case("nn.standardize", lambda: nn.standardize(tensor("x", 2, 3, 4, 5), (2, 3), 0.1), "image"),
    Case("nn.standardize", lambda: nn.standardize(tensor("x", 2, 3, 40), 1, 0.0), "not-last"),
    Case("nn.standardize", lambda: nn.standardize(tensor("x", 4, 3, 5), (0, 2)), "batch"),
)
