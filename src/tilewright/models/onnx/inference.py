"""Types of what cannot be imported, by onnx's inference or as the model declares them.

In: a node, what is known of its inputs.  Out: the types of its outputs, as far as they are known.
onnx's inference is C++ that believes what attributes say and can take its process along, so it runs
in a worker.  Read next: `blockers.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from tilewright.base.concurrency import in_forked_child, once
from tilewright.base.dtype import TYPES, DType
from tilewright.graph.expr import Array, TensorType, oversize
from tilewright.measure.pool import Options, WorkerFailure, WorkerMissing, WorkerPool
from tilewright.models.onnx.checks import element_type, onnx_schema
from tilewright.models.onnx.values import Narrow, Value, kind_of

if TYPE_CHECKING:
    from onnx import NodeProto, TypeProto

MOST_DATA = 64  # elements of an input that inference is told: a shape, axes
SECONDS = 10.0  # for one node
_Kind = tuple[str, tuple[int, ...]]  # of elements in numpy's words, and the shape


def output_types(
    node: NodeProto,
    opset: int,
    inputs: Mapping[str, Value],
    known: Callable[[Value], Array | None],
    declared: Mapping[str, TensorType],
) -> list[TensorType | None]:
    """The types of the outputs of `node`, an operator of ONNX's own or not.

    opset:    the version of its domain
    known:    the array of an input that is known
    declared: types by name, of values whose extents are numbers
    """
    inferred = _inferred(node, opset, inputs, known)
    return [inferred.get(name) or declared.get(name) for name in node.output if name]


def _inferred(
    node: NodeProto, opset: int, inputs: Mapping[str, Value],
    known: Callable[[Value], Array | None],
) -> dict[str, TensorType]:  # fmt: skip
    from onnx import TypeProto

    if schema_of(node, opset) is None:
        return {}
    kinds: dict[str, _Kind] = {}
    data: dict[str, Array] = {}
    for name, value in inputs.items():
        array = known(value)
        kind = kind_of(value)
        if kind is None or isinstance(value, Narrow):
            return {}
        kinds[name] = kind
        if array is not None and array.size <= MOST_DATA:
            data[name] = array
    asked = _pool().submit(infer, node.SerializeToString(), opset, kinds, data, timeout=SECONDS)
    try:
        found = asked.result()
    except (WorkerFailure, WorkerMissing):  # it is the type of what is refused anyway
        return {}
    types = {name: static_type(TypeProto.FromString(kind)) for name, kind in found.items()}
    return {name: kind for name, kind in types.items() if kind is not None}


@once
def _pool() -> WorkerPool:
    return WorkerPool(1, Options(memory_bytes=4 << 30))


in_forked_child(_pool.forget)


def infer(
    data: bytes, opset: int, kinds: Mapping[str, _Kind], arrays: Mapping[str, Array]
) -> dict[str, bytes]:
    """The types that onnx infers for the outputs of one node, as protobufs.  Runs in a worker."""
    import numpy as np
    from onnx import NodeProto, helper, numpy_helper
    from onnx.shape_inference import infer_node_outputs

    node = NodeProto.FromString(data)
    types = {
        name: helper.make_tensor_type_proto(helper.np_dtype_to_tensor_dtype(np.dtype(kind)), shape)
        for name, (kind, shape) in kinds.items()
    }
    given = {name: numpy_helper.from_array(array, name) for name, array in arrays.items()}
    found = infer_node_outputs(schema_of(node, opset), node, types, given)
    return {name: kind.SerializeToString() for name, kind in found.items()}


def schema_of(node: NodeProto, opset: int) -> Any:
    """onnx's own, None where it has none."""
    domain = "" if node.domain == "ai.onnx" else node.domain
    return onnx_schema(node.op_type, opset, domain)


def static_type(kind: TypeProto) -> TensorType | None:
    """The type that `kind` declares; None where an extent is open or networks cannot have it."""
    tensor = kind.tensor_type
    if not kind.HasField("tensor_type") or not tensor.HasField("shape"):
        return None
    dims = tuple(d.dim_value if d.HasField("dim_value") else -1 for d in tensor.shape.dim)
    dtype = element_type(tensor.elem_type)
    if dtype not in TYPES or min(dims, default=0) < 0 or oversize(dims, DType(dtype)):
        return None
    return TensorType(dims, DType(dtype))
