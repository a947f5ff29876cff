"""`relay.prelude`: lists, optionals, trees and functions on them, under TVM's names.

In: a module.  Out: the module, with them in it, and their names as attributes.
Read next: `functional/standard.py`.
"""

from collections.abc import Sequence
from typing import Any

from tilewright.base.doors import door, open_doors
from tilewright.base.dtype import TYPES
from tilewright.base.errors import ModelError, absent
from tilewright.graph.expr import GlobalVar
from tilewright_tvm.relay.functional.data_types import GlobalTypeVar
from tilewright_tvm.relay.functional.definitions import IRModule
from tilewright_tvm.relay.functional.nodes import Constructor
from tilewright_tvm.relay.functional.standard import add_prelude
from tilewright_tvm.relay.functional.tensor_arrays import StaticTensorArrayOps, TensorArrayOps

__all__ = ["Prelude", "StaticTensorArrayOps", "TensorArrayOps"]

_FUNCTIONS = (
    "id", "compose", "flip", "hd", "tl", "nth", "update", "map", "foldl", "foldr", "foldr1",
    "concat", "filter", "zip", "rev", "map_accuml", "map_accumr", "unfoldl", "unfoldr", "sum",
    "length", "tmap", "size", "iterate",
)  # fmt: skip


class Prelude:
    """mod: what it is added to; default: a module of its own.

    Its functions are attributes: `prelude.map(f, xs)`; data types and their constructors are
    `prelude.mod.get_type("List")`, "Option" and "Tree".
    """

    @door(ModelError)
    def __init__(self, mod: IRModule | None = None) -> None:
        self.mod = IRModule() if mod is None else mod
        add_prelude(self.mod)
        self.mod.on_demand = self._on_demand

    def _on_demand(self, name: str) -> None:
        """Adds the tensors of an element type where somebody asks for that data type."""
        kind = name.removeprefix("tensor_").removesuffix("_t")
        if name == f"tensor_{kind}_t" and kind in TYPES:
            TensorArrayOps(self, kind).register()

    def get_name(self, canonical: str, dtype: str) -> str:
        """What the tensors of an element type call something: "tensor_t", "tensor_array_read"."""
        return f"tensor_{dtype}_t" if canonical == "tensor_t" else f"{canonical}_{dtype}"

    def get_global_var(self, canonical: str, dtype: str) -> GlobalVar:
        """A function on tensor arrays of an element type, as "tensor_array_write".

        Raises ModelError.
        """
        TensorArrayOps(self, dtype).register()
        return self.mod.get_global_var(self.get_name(canonical, dtype))

    def get_type(self, canonical: str, dtype: str) -> GlobalTypeVar:
        """The data type "tensor_t" of an element type.  Raises ModelError."""
        TensorArrayOps(self, dtype).register()
        return self.mod.get_global_type_var(self.get_name(canonical, dtype))

    def get_ctor(self, ty_name: str, canonical: str, dtype: str) -> Constructor:
        """A constructor of a data type, as ("tensor_t", "tensor2").  Raises ModelError."""
        name = self.get_name(ty_name, dtype)
        made: Constructor = self.mod.get_constructor(name, f"{canonical}_{dtype}")
        return made

    def get_tensor_ctor(self, canonical: str, dtype: str) -> Constructor:
        """A constructor of the tensors of an element type, as "tensor2".  Raises ModelError."""
        return self.get_ctor("tensor_t", canonical, dtype)

    def get_name_static(self, canonical: str, dtype: str, shape: Sequence[Any]) -> str:
        """`get_name`, of the tensors of one shape."""
        return StaticTensorArrayOps(self, dtype, shape).get_name(canonical)

    def get_global_var_static(self, canonical: str, dtype: str, shape: Sequence[Any]) -> GlobalVar:
        """`get_global_var`, of the tensors of one shape, which were registered."""
        return StaticTensorArrayOps(self, dtype, shape).get_global_var(canonical)

    def get_type_static(self, canonical: str, dtype: str, shape: Sequence[Any]) -> GlobalTypeVar:
        """`get_type`, of the tensors of one shape, which were registered."""
        return self.mod.get_global_type_var(self.get_name_static(canonical, dtype, shape))

    def get_tensor_ctor_static(self, name: str, dtype: str, shape: Sequence[Any]) -> Constructor:
        """`get_tensor_ctor`: "tensor_nil" or "tensor_constructor", of the tensors of one shape."""
        full = [self.get_name_static(n, dtype, shape) for n in ("tensor_t", name)]
        made: Constructor = self.mod.get_constructor(*full)
        return made

    def __getattr__(self, name: str) -> GlobalVar:
        if name not in _FUNCTIONS:
            raise AttributeError(
                f"Prelude has no {name}. Its functions are {', '.join(_FUNCTIONS)}; "
                'constructors are in prelude.mod.get_type("List").'
            )
        return self.mod.get_global_var(name)


open_doors(globals(), ("StaticTensorArrayOps", "TensorArrayOps"), ModelError)


def __getattr__(name: str) -> Any:
    raise absent("relay.prelude", name, {})
