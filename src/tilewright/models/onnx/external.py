"""Weights that a model keeps in files beside it.

In: a parsed model, its folder.  Out: the same model with the data inside.  Nothing outside the
folder is read, and nothing before the sizes of all weights are known to be those of their shapes.
Read next: `load.py`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from tilewright.base.errors import ModelError
from tilewright.models.limits import Limits
from tilewright.models.onnx.checks import DAMAGED, shown

if TYPE_CHECKING:
    from onnx import ModelProto, TensorProto

FOUR_BITS = ("INT4", "UINT4", "FLOAT4E2M1")


def read_external(model: ModelProto, folder: Path, place: str, limits: Limits) -> None:
    """Give the weights of `model` the data that they keep in files of `folder`.

    Raises ModelError for a file that is not there, too short, or outside the folder, for a weight
    whose data is not of its size, and for more bytes than `limits.total`.
    """
    from onnx import TensorProto

    found = [t for t in _tensors(model) if t.data_location == TensorProto.EXTERNAL]
    limits.check("total", sum(max(_nbytes(t, place), 0) for t in found), place)
    for tensor in found:
        where = f"{place}: external weight {shown(tensor.name)!r}"
        entries = {e.key: e.value for e in tensor.external_data}
        tensor.raw_data = _read(entries, folder, _nbytes(tensor, where), where)
        tensor.data_location = TensorProto.DEFAULT
        del tensor.external_data[:]


def _tensors(model: ModelProto) -> Iterator[TensorProto]:
    graphs, nodes = [model.graph], [n for f in model.functions for n in f.node]
    while graphs or nodes:
        for graph in graphs:
            yield from graph.initializer
            nodes += graph.node
        attributes = [a for node in nodes for a in node.attribute]
        for attribute in attributes:
            if attribute.HasField("t"):
                yield attribute.t
            yield from attribute.tensors
        graphs, nodes = [a.g for a in attributes if a.HasField("g")], []


def _nbytes(tensor: TensorProto, place: str) -> int:
    """Bytes of the elements of `tensor`."""
    from onnx import TensorProto, helper

    number, count = tensor.data_type, math.prod(map(int, tensor.dims))
    known = number in TensorProto.DataType.values()
    if (
        not known
        or number in (TensorProto.UNDEFINED, TensorProto.STRING)
        or min(tensor.dims, default=0) < 0
    ):
        raise ModelError(place, "it is no tensor of numbers", DAMAGED)
    if TensorProto.DataType.Name(number) in FOUR_BITS:
        return (count + 1) // 2
    return count * int(helper.tensor_dtype_to_np_dtype(number).itemsize)


def _read(entries: Mapping[str, str], folder: Path, nbytes: int, place: str) -> bytes:
    location = entries.get("location", "")
    try:
        path = (folder / location).resolve()
        offset, length = int(entries.get("offset") or 0), int(entries.get("length") or nbytes)
        inside = path.is_relative_to(folder.resolve())
        size = path.stat().st_size if inside and path.is_file() else -1
    except (ValueError, OSError) as e:
        raise ModelError(place, f"its file cannot be found ({shown(str(e))})", DAMAGED) from None
    if not inside:
        raise ModelError(
            place, f"its file {shown(location)!r} is outside the folder of the model",
            "Put it beside the model.",
        )  # fmt: skip
    if size < 0:
        raise ModelError(place, f"there is no file {shown(location)!r}", "Put it beside the model.")
    if offset < 0 or length < 0 or offset + length > size:
        raise ModelError(
            place, f"{shown(location)!r} ends after {size} bytes, before the weight does",
            "It may be truncated; copy it again.",
        )  # fmt: skip
    if length != nbytes:
        raise ModelError(
            place, f"its data has {length} bytes, its shape takes {nbytes}",
            "The model is damaged; export it again.",
        )  # fmt: skip
    with path.open("rb") as file:
        file.seek(offset)
        return file.read(length)
