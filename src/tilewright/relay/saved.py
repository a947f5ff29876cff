"""`ir.save_json` and `ir.load_json`: a network as JSON, which holds its text.

In: a module or an expression.  Out: JSON, and from that an equal one.  Read next: `parser.py`.
"""

from __future__ import annotations

import json
from typing import Any

from tilewright.base.doors import open_doors
from tilewright.base.errors import ModelError
from tilewright.relay.graph.expr import Expr, IRModule
from tilewright.relay.parser import parse, parse_expr

_KINDS = {"relay.IRModule": parse, "relay.Expr": parse_expr}


def save_json(node: Any) -> str:
    """A network, weights with it, as JSON.  node: a module, a function or any other expression.

    Raises ModelError for what is no network, and for one that has no text: `mod.astext()`.
    """
    if not isinstance(node, IRModule | Expr):
        raise ModelError(
            f"ir.save_json({type(node).__name__})", "it is no network",
            "Save schedules as records of a log, built networks with Library.export_library.",
        )  # fmt: skip
    kind = "relay.IRModule" if isinstance(node, IRModule) else "relay.Expr"
    return json.dumps({"tilewright": kind, "text": node.astext()})


def load_json(json_str: str) -> Any:
    """What `save_json` was given.  Raises ModelError for another text, TVM's among them."""
    try:
        held = json.loads(json_str)
    except (ValueError, RecursionError) as error:
        raise ModelError("ir.load_json", f"it is no JSON: {error}", _WAY_OUT) from None
    kind, text = map(held.get, ("tilewright", "text")) if isinstance(held, dict) else (None, None)
    if not isinstance(kind, str) or kind not in _KINDS or not isinstance(text, str):
        raise ModelError("ir.load_json", "ir.save_json did not write it", _WAY_OUT)
    return _KINDS[kind](text)


_WAY_OUT = "Of a network in TVM, take mod.astext() and read it with relay.parse."
__all__ = ["load_json", "save_json"]
open_doors(globals(), __all__, ModelError)
