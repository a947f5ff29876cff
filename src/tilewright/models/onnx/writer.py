"""An ONNX graph as it is written: nodes, initializers, names.

In: a function, its weights and a table of exporters.  Out: nodes and arrays.  Read next:
`export.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from tilewright.base.errors import ModelError
from tilewright.graph.expr import (
    Array,
    Call,
    Constant,
    Expr,
    Function,
    Tuple,
    TupleGetItem,
    as_array,
    post_order,
)
from tilewright.graph.op.window import moves

OPSET = 18
Names = str | tuple[str, ...]


class Writer:
    """The nodes and initializers written so far, and the ONNX name of each value.

    exporters: operator -> what writes a call of it
    opset:     the least, from OPSET on, that has all operators written
    """

    def __init__(
        self, params: dict[str, Any], function: Function, exporters: Mapping[str, Exporter]
    ) -> None:
        self.exporters, self.opset = exporters, OPSET
        self.function = function
        self.params = {n: as_array(v) for n, v in params.items()}
        self.nodes: list[Any] = []
        self.arrays: dict[str, Array] = {}
        self.names: dict[Expr, Names] = {}
        self.taken = {p.name_hint for p in function.params}

    def run(self) -> list[str]:
        """Write the function; the names of its results."""
        for p in self.function.params:
            self.names[p] = p.name_hint
            if p.name_hint in self.params:
                self.arrays[p.name_hint] = self.params[p.name_hint]
        body = self.function.body
        for node in post_order(body):
            if node not in self.names:
                self.names[node] = self._write(node)
        found = self.names[body]
        finals = [found] if isinstance(found, str) else list(found)
        # a result must be the output of a node of its own
        return [self.op("Identity", f) for f in finals]

    def _write(self, node: Expr) -> Names:
        if isinstance(node, Constant):
            return self.array(node.data, "const")
        if isinstance(node, Tuple):
            return tuple(self.name(f) for f in node.fields)
        if isinstance(node, TupleGetItem):
            return self.names[node.tuple_value][node.index]
        assert isinstance(node, Call)
        if isinstance(node.op, Function):
            raise ModelError(
                "to_onnx", "the module is fused already", "Export it before it is optimised."
            )
        return self.exporters[node.op.name](self, node)

    def name(self, value: Expr) -> str:
        found = self.names[value]
        assert isinstance(found, str)
        return found

    def fresh(self, base: str) -> str:
        k = 0
        while (name := f"{base}_{k}") in self.taken:
            k += 1
        self.taken.add(name)
        return name

    def array(self, value: Any, base: str, dtype: str | None = None) -> str:
        """The name of a new initializer."""
        name = self.fresh(base)
        self.arrays[name] = np.ascontiguousarray(value, dtype).reshape(np.shape(value))
        return name

    def ints(self, values: Any, base: str) -> str:
        return self.array(np.asarray(values, "int64"), base)

    def op(self, onnx_op: str, *inputs: str, **attrs: Any) -> str:
        """Write one node with one result; attributes that are None are left out."""
        return self.ops(onnx_op, 1, *inputs, **attrs)[0]

    def ops(self, onnx_op: str, results: int, *inputs: str, **attrs: Any) -> list[str]:
        """Write one node with several results."""
        from onnx import helper

        outputs = [self.fresh(onnx_op.lower()) for _ in range(results)]
        given = {k: v for k, v in attrs.items() if v is not None}
        self.nodes.append(
            helper.make_node(onnx_op, list(inputs), outputs, name=outputs[0], **given)
        )
        return outputs

    def cast(self, name: str, dtype: str) -> str:
        from onnx import helper

        return self.op("Cast", name, to=helper.np_dtype_to_tensor_dtype(np.dtype(dtype)))

    def transposed(self, name: str, source: str, wanted: str, shape: Sequence[int]) -> str:
        """`name`, whose axes are the letters of `source`, in the order `wanted`; shape: it has."""
        apart, split, order = moves(source, wanted, shape)
        if len(split) == len(shape):
            order, apart = [apart[k] for k in order], sorted(apart)
        for perm, reshaped in ((apart, len(split) != len(shape)), (order, False)):
            if perm != sorted(perm):
                name = self.op("Transpose", name, perm=perm)
            if reshaped:
                name = self.op("Reshape", name, self.ints(split, "shape"))
        return name


Exporter = Callable[[Writer, Call], Names]
