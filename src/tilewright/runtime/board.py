"""What a board's shell asks of the runtime alone: what this machine is, how fast a network runs.

In: a command line.  Out: lines; an exit code of 1 for an error, told in one line.
Read next: `network/graph_executor.py`.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

import numpy as np

from tilewright.base.dtype import DType
from tilewright.base.errors import TilewrightError
from tilewright.runtime.device import Device, device
from tilewright.runtime.load import load_module
from tilewright.runtime.module import Module
from tilewright.runtime.network.graph_executor import GraphModule

_MOST = 10**9  # repeats


def main(args: Sequence[str] | None = None) -> None:
    """Run a command line (default: `sys.argv`) and exit."""
    parser = argparse.ArgumentParser(
        prog="tilewright-runtime",
        description="Tell what this machine is, or load a compiled network and time it.",
    )
    parser.add_argument("library", nargs="?", help="a file that lib.export_library wrote")
    parser.add_argument("--device", default="cpu", help="to tell about [default: cpu]")
    parser.add_argument("--repeat", type=int, default=3, help="times to time it [default: 3]")
    given = parser.parse_args(args)
    if not 0 < given.repeat <= _MOST:
        parser.error(f"argument --repeat: {given.repeat} is not from 1 to {_MOST}")
    try:
        lines = time(given.library, given.repeat) if given.library else tell(device(given.device))
    except TilewrightError as error:
        sys.exit(f"error: {error}")
    print(*lines, sep="\n")


def tell(dev: Device) -> list[str]:
    """Say what to compile for, and what is known of the device."""
    spec = dev.spec
    options = " ".join(f"-{name}={value}" for name, value in spec.code)
    limits = ", ".join(f"{name} {value}" for name, value in spec.limits)
    return [f"{spec.name} ({spec.fingerprint})", f"target: {spec.kind} {options}".strip(), limits]


def time(path: str, repeat: int) -> list[str]:
    """Inputs are drawn at random, of integers zeros.  Raises TilewrightError."""
    library = load_module(path)
    if isinstance(library, Module):
        return [f"{library!r}"]
    dev, rng = device(library.target), np.random.default_rng(0)
    module = GraphModule(library["default"](dev))
    for spec in library.plan.inputs:
        value = rng.standard_normal(spec.shape) if DType(spec.dtype).is_float else np.zeros(1)
        module.set_input(spec.name, np.broadcast_to(value, spec.shape).astype(spec.dtype))
    return [f"{library!r}", str(module.benchmark(dev, repeat=repeat, min_repeat_ms=100))]
