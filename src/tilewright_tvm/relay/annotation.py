"""What is said about values without changing them: `relay.annotation.checkpoint`.

In: graph values.  Out: the same.  Read next: `gradients/checkpoints.py`.
"""

from __future__ import annotations

from typing import Any

from tilewright.base.doors import open_doors
from tilewright.base.errors import ModelError, absent
from tilewright.graph.expr import Expr, Tuple, TupleType
from tilewright.graph.op import call
from tilewright_tvm.relay.functional.later import defer


def checkpoint(data: Expr) -> Expr:
    """`data`, a tensor or a tuple of them; a gradient does not keep what it is computed from, but
    computes that once more when it is needed, which takes time instead of memory."""
    kind = data.checked_type
    if isinstance(kind, TupleType):
        return Tuple([checkpoint(data[k]) for k in range(len(kind.fields))])
    return call("annotation.checkpoint", data)


def stop_fusion(data: Expr) -> Expr:
    """`data`; `relay.transform.FuseOps` ends a function here.  `relay.build` decides by itself what
    is fused."""
    return call("annotation.stop_fusion", data)


__all__ = ["checkpoint", "stop_fusion"]
open_doors(globals(), __all__, ModelError)
defer(globals(), __all__)

_ELSEWHERE = dict.fromkeys(
    ("compiler_begin", "compiler_end", "on_device"),
    "Leave it out: relay.build decides where values live.",
)


def __getattr__(name: str) -> Any:
    raise absent("relay.annotation", name, _ELSEWHERE)
