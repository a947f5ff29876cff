"""TVM's `ir`: what networks are made of, under the names of relay."""

from importlib import import_module
from typing import Any

from tilewright.base.doors import door
from tilewright.base.errors import ModelError, absent
from tilewright.graph.attrs import Attrs

__path__: list[str] = []  # so that its modules are imported, too

# Names of TVM's `ir`, which are relay's: users ask for them, the package does not.
_RELAYS = {
    **dict.fromkeys(
        ("Call", "FuncType", "GlobalVar", "IRModule", "IncompleteType", "TensorType", "TupleType"),
        "tilewright_tvm.relay",
    ),
    **dict.fromkeys(
        ("assert_structural_equal", "structural_equal", "structural_hash"),
        "tilewright_tvm.relay.analysis",
    ),
    **dict.fromkeys(("load_json", "save_json"), "tilewright_tvm.relay.saved"),
    "Op": "tilewright_tvm.relay.op",
    "register_op_attr": "tilewright_tvm.relay.op",
    **dict.fromkeys(("SourceName", "Span"), "tilewright_tvm.relay.spans"),
    "RelayExpr": "tilewright_tvm.relay.expr",
    "Type": "tilewright_tvm.relay.ty",
    "container": "tilewright_tvm.runtime.container:",
    "instrument": "tilewright_tvm.instrument:",
    "transform": "tilewright_tvm.transform:",
    "module": "tilewright_tvm.relay.functional.definitions:",
}
_ELSEWHERE = {
    "register_intrin_lowering":
        "Functions of numbers are a fixed set; te.compute makes others of them (tir.exp, ...).",
}  # fmt: skip


@door(ModelError)
def make_node(type_key: str, **kwargs: Any) -> Any:
    """Make a number, or attributes, of the values of its parts.

    type_key: "IntImm", "FloatImm", or what ends in "Attrs", "DictAttrs" say
    Raises ModelError for other types.
    """
    kind = type_key.rpartition(".")[2]
    if kind.endswith("Attrs"):
        return Attrs(kwargs)
    if kind in ("IntImm", "FloatImm"):
        tir = import_module("tilewright_tvm.tir")
        return getattr(tir, kind)(str(kwargs["dtype"]), kwargs["value"])
    raise ModelError(
        f"ir.make_node({type_key!r})", "it makes numbers and attributes",
        "Call the function that makes such a node: relay.var, te.placeholder, ...",
    )  # fmt: skip


def __getattr__(name: str) -> Any:
    if name not in _RELAYS:
        raise absent("ir", name, _ELSEWHERE)
    home, whole, _ = _RELAYS[name].partition(":")
    module = import_module(home)
    return module if whole else getattr(module, name)
