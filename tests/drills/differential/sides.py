"""The peers: onnxruntime for ONNX, PyTorch for its operators, numpy for relay.

In: a side's name.  Out: its operators, and a case of one of them.  Read next: `onnx_side.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from importlib.util import find_spec

from drills.differential.case import Case
from drills.differential.draw import Draw

NEEDS = {"onnx": "onnxruntime", "torch": "torch", "relay": "numpy"}


@dataclass(frozen=True)
class Side:
    """operators: names and how often each is drawn; make: a case of one of them"""

    operators: dict[str, int]
    make: Callable[[str, Draw], Case]


@cache
def side(name: str) -> Side:
    found: Side = import_module(f"drills.differential.{name}_side").SIDE
    return found


def present() -> list[str]:
    return [name for name, needed in NEEDS.items() if find_spec(needed) is not None]
