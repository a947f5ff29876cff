"""`--desired-layout`: the convolutions of a network in a layout that was asked for.

In: a module, a layout.  Out: a module that computes the same.
Read next: `relay/passes/layouts.py`.
"""

from __future__ import annotations

from typing import Any

CONVOLUTIONS = ("nn.conv2d", "nn.conv2d_transpose")


def in_layout(mod: Any, layout: str | None) -> Any:
    """The network with its convolutions in `layout`; None: as they are.  Raises ModelError."""
    from tilewright.relay.passes.layouts import convert_layout

    if layout is None:
        return mod
    return convert_layout(mod, {name: [layout, "default"] for name in CONVOLUTIONS})
