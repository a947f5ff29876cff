"""A network in another layout, as `compile` and `tune` make it for `desired_layout=`.

In: a module, a layout.  Out: a module.  Read next: `../relay/transform/transform.py`.
"""

from __future__ import annotations

from tilewright.base.doors import door
from tilewright.base.errors import ModelError
from tilewright.graph.expr import IRModule
from tilewright.network.conversion import CONVOLUTIONS
from tilewright_tvm.relay import transform as passes
from tilewright_tvm.transform import Sequential


@door(ModelError)
def convert_graph_layout(mod: IRModule, desired_layout: str) -> IRModule:
    """`mod` with its convolutions in `desired_layout`, weights turned beforehand.

    Raises ModelError for a layout that an operator cannot have.
    """
    wanted = {name: [desired_layout, "default"] for name in CONVOLUTIONS}
    made: IRModule = Sequential([passes.ConvertLayout(wanted), passes.FoldConstant()])(mod)
    return made
