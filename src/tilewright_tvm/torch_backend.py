"""PyTorch's backend "tvm", for scripts for TVM that run unchanged: it is the backend "tilewright".

PyTorch's own passes traced graphs to Relay with shapes that no version of TVM of late takes.
In: the import of PyTorch's module of that backend, in whose place this one is loaded.  Out: the
name in PyTorch's registry.  Read next: `alias.py`, `models/torch/compile.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from typing import Any

from tilewright.models.torch.compile import backend


def tvm(
    gm: Any, example_inputs: Sequence[Any], *, options: Mapping[str, Any] | None = None
) -> Callable[..., Any]:
    """Compile a graph; options: PyTorch's `scheduler`, `trials`, `opt_level`, and those of ours."""
    return backend(gm, example_inputs, options)


def has_tvm() -> bool:
    """Whether the backend can be used: it can."""
    return True


import_module("torch._dynamo.backends.registry").register_backend(tvm)
