"""A plan as the JSON text of TVM's graph executor, for tools that read it.

In: a library.  Out: nodes (inputs, weights, kernels), which reads which, shapes, types and storage
of each.  Read next: `plan.py`.
"""

from __future__ import annotations

import json
from math import prod
from typing import TYPE_CHECKING, Any

from tilewright.base.dtype import DType
from tilewright.runtime.network.plan import Operand

if TYPE_CHECKING:
    from tilewright.runtime.network.library import Library


def graph_json(library: Library) -> str:
    """The first plan of `library`: `nodes`, `arg_nodes`, `heads`, `node_row_ptr`, `attrs`.

    A kernel is a node `tvm_op` whose inputs are what it reads; weights are called as in
    `Library.get_params`.  It reads several nodes where each of them is a part of what it takes.
    storage_id: inputs, weights, then places in memory, of which some overlap.
    """
    plan = library.plan
    nodes: list[dict[str, Any]] = []
    shapes: list[list[int]] = []
    types: list[str] = []
    storage: list[int] = []
    made: dict[Operand, tuple[int, int]] = {}  # whose value is there now, and how many bytes
    places: dict[Operand, int] = {}

    def found(where: Operand, nbytes: int) -> list[int]:
        """The nodes whose values are there."""
        end = where.offset + max(nbytes, 1)
        return [
            k for other, (k, size) in made.items()
            if (other.kind, other.index) == (where.kind, where.index)
            and other.offset < end and where.offset < other.offset + max(size, 1)
        ]  # fmt: skip

    def add(node: dict[str, Any], where: Operand, shape: tuple[int, ...], dtype: str) -> None:
        nbytes = prod(shape) * DType(dtype).bytes
        gone = set(found(where, nbytes))
        for other in [o for o, (k, _) in made.items() if k in gone]:
            del made[other]
        made[where] = len(nodes), nbytes
        nodes.append(node)
        shapes.append(list(shape))
        types.append(dtype)
        storage.append(places.setdefault(where, len(places)))

    for k, spec in enumerate(plan.inputs):
        add(_argument(spec.name), Operand("input", k), spec.shape, spec.dtype)
    for k, value in enumerate(library.constants):
        add(_argument(f"p{k}"), Operand("constant", k), value.shape, str(value.dtype))
    names: dict[str, int] = {}
    for launch in plan.launches:
        source = library.kernels[launch.kernel].source
        placed = list(zip(launch.operands, source.buffers, strict=True))
        read = [k for at, b in placed if b.role == "input" for k in found(at, b.nbytes)]
        written = [(where, buffer) for where, buffer in placed if buffer.role == "output"]
        name = _distinct(source.entry_name, names)
        attrs = {
            "func_name": source.entry_name, "num_inputs": str(len(read)),
            "num_outputs": str(len(written)), "flatten_data": "0",
        }  # fmt: skip
        inputs = [[k, 0, 0] for k in read]
        for where, buffer in written:
            node = {"op": "tvm_op", "name": name, "attrs": attrs, "inputs": inputs}
            add(node, where, buffer.logical_shape, str(buffer.dtype))
    heads = [[found(where, spec.nbytes)[-1], 0, 0] for spec, where in plan.outputs]
    return json.dumps(
        {
            "nodes": nodes,
            "arg_nodes": [k for k, node in enumerate(nodes) if node["op"] == "null"],
            "heads": heads,
            "attrs": {
                "dltype": ["list_str", types], "shape": ["list_shape", shapes],
                "storage_id": ["list_int", storage],
            },
            "node_row_ptr": list(range(len(nodes) + 1)),
        },
        indent=2,
    )  # fmt: skip


def _argument(name: str) -> dict[str, Any]:
    return {"op": "null", "name": name, "inputs": []}


def _distinct(name: str, names: dict[str, int]) -> str:
    """The name, with a number from the second time on."""
    names[name] = names.get(name, 0) + 1
    return name if names[name] == 1 else f"{name}_{names[name] - 1}"
