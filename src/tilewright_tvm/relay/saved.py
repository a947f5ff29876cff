"""`ir.save_json` and `ir.load_json`: a network as JSON, which holds its text; a tensor or a
schedule, as the computation behind it.

In: a module, an expression, a tensor, an operation, a schedule.  Out: JSON, and from that an equal
one.  Read next: `parser.py`, `te/dag.py`.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from tilewright.base.doors import open_doors
from tilewright.base.errors import ModelError
from tilewright.graph.expr import Expr, IRModule
from tilewright.schedule.schedule import Schedule
from tilewright.te.dag import ComputeDAG
from tilewright.te.tensor import ComputeOp, Tensor
from tilewright_tvm.relay.parser import parse, parse_expr
from tilewright_tvm.relay.text.whole import astext

_KINDS = {"relay.IRModule": parse, "relay.Expr": parse_expr}


def _tensor(held: dict[str, Any]) -> Tensor:
    dag = ComputeDAG.from_json(held["dag"])
    found: Tensor = dag.ops[held["op"]].outputs[held["value"]]
    return found


# What is computed by tensor expressions, from the fields of its JSON.
_COMPUTED: dict[str, Callable[[dict[str, Any]], Any]] = {
    "te.Operation": lambda held: _tensor(held).op,
    "te.Schedule": lambda held: Schedule.replay(ComputeDAG.from_json(held["dag"]), held["steps"]),
    "te.Tensor": _tensor,
}


def _computed(node: Any) -> dict[str, Any] | None:
    """A tensor, an operation or a schedule as plain data."""
    if isinstance(node, Schedule):
        fields: dict[str, Any] = {
            "dag": node.dag.to_json(open_extents=True),
            "steps": node.to_json(),
        }
        return {"tilewright": "te.Schedule", **fields}
    if not isinstance(node, Tensor | ComputeOp):
        return None
    tensor = node if isinstance(node, Tensor) else node.outputs[0]
    dag = ComputeDAG([tensor])
    fields = {
        "dag": dag.to_json(open_extents=True),
        "op": dag.ops.index(tensor.op),
        "value": tensor.value_index,
    }
    kind = "te.Tensor" if isinstance(node, Tensor) else "te.Operation"
    return {"tilewright": kind, **fields}


def save_json(node: Any) -> str:
    """A network, weights with it, as JSON.  node: a module, a function or any other expression; a
    tensor or an operation of te, with all that it is computed of; a schedule.

    Raises ModelError for what is none of these, and for a network that has no text: `mod.astext()`.
    """
    computed = _computed(node)
    if computed is not None:
        return json.dumps(computed)
    if not isinstance(node, IRModule | Expr):
        raise ModelError(
            f"ir.save_json({type(node).__name__})", "it is no network, tensor or schedule",
            "Save built networks with Library.export_library.",
        )  # fmt: skip
    kind = "relay.IRModule" if isinstance(node, IRModule) else "relay.Expr"
    return json.dumps({"tilewright": kind, "text": astext(node)})


def load_json(json_str: str) -> Any:
    """What `save_json` was given.  Raises ModelError for another text, TVM's among them."""
    try:
        held = json.loads(json_str)
    except (ValueError, RecursionError) as error:
        raise ModelError("ir.load_json", f"it is no JSON: {error}", _WAY_OUT) from None
    kind, text = map(held.get, ("tilewright", "text")) if isinstance(held, dict) else (None, None)
    if isinstance(kind, str) and kind in _COMPUTED:
        try:
            return _COMPUTED[kind](held)
        except (LookupError, TypeError, AttributeError) as error:
            raise ModelError("ir.load_json", f"it is no {kind}: {error}", _WAY_OUT) from None
    if not isinstance(kind, str) or kind not in _KINDS or not isinstance(text, str):
        raise ModelError("ir.load_json", "ir.save_json did not write it", _WAY_OUT)
    return _KINDS[kind](text)


_WAY_OUT = "Of a network in TVM, take mod.astext() and read it with relay.parse."
__all__ = ["load_json", "save_json"]
open_doors(globals(), __all__, ModelError)
