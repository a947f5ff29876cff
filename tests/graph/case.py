"""What a case of an operator is: a small graph, and values to run it on.

In: a function that builds the graph.  Out: cases, functions, inputs.  Read next: `cases.py`, and
`cases_*.py`, a file for each family of operators.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from tilewright.graph.expr import Expr, Function, free_vars
from tilewright_tvm import relay


def tensor(name: str, *shape: int, dtype: str = "float32") -> relay.Var:
    return relay.var(name, shape=shape, dtype=dtype)


def function(body: Expr) -> Function:
    return Function(free_vars(body), body)


def random_inputs(f: Function, seed: int = 0) -> dict[str, np.ndarray]:
    """Positive where an operator wants it: names that start with `pos`; of `at7` and the like
    positions below 7."""
    rng = np.random.default_rng(seed)
    values = {}
    for p in f.params:
        value = rng.standard_normal(p.shape)
        if p.name_hint.startswith("pos"):
            value = np.abs(value) + 0.5
        if p.dtype == "bool":
            value = value > 0
        if found := re.match(r"at(\d+)", p.name_hint):
            values[p.name_hint] = rng.integers(0, int(found[1]), p.shape).astype(p.dtype)
            continue
        values[p.name_hint] = (value * (3 if p.dtype.startswith("int") else 1)).astype(p.dtype)
    return values


@dataclass(frozen=True)
class Case:
    """op: the row it is for; build: makes its graph; in_onnx: whether ONNX has operators for it."""

    op: str
    build: Callable[[], Expr]
    label: str = ""
    in_onnx: bool = True

    @property
    def id(self) -> str:
        return f"{self.op}-{self.label}" if self.label else self.op
