"""The inputs of an imported network.

In: how the model declares its inputs, what the caller says of them.  Out: variables with static
shapes, or the values that the caller gives.  Read next: `importer.py`.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tilewright.base.doors import is_integer
from tilewright.base.dtype import TYPES
from tilewright.base.errors import ModelError, named
from tilewright.graph.expr import Var, as_array
from tilewright.graph.leaves import var
from tilewright.models.onnx.checks import element_type, shown
from tilewright.models.onnx.values import WIDER, Absent, Items, Narrow, Value

_WAYS_OUT = {"string": "Number the words outside the network, and make the numbers its input."}
OTHERS = f"Convert it outside the network to one of {', '.join(TYPES)}."


@dataclass(frozen=True)
class Given:
    """What the caller says.

    shapes: of inputs, or single extents, by name
    dtypes: of inputs, where they differ from the model's
    values: of inputs, which are known then
    """

    shapes: Mapping[str, Any]
    dtypes: Mapping[str, str]
    values: Mapping[str, Any]

    def values_of(self, infos: Sequence[Any]) -> Iterator[tuple[str, Value]]:
        """Each input with its value, by name.

        Raises ModelError for one that is no tensor, or has an open extent, and for a name that the
        model does not have.
        """
        names = {info.name for info in infos}
        symbols = {d.dim_param for info in infos for d in _dims(info) if d.dim_param}
        for what, given, known in (
            ("shape", self.shapes, names | symbols), ("dtype", self.dtypes, names),
            ("params", self.values, names),
        ):  # fmt: skip
            if unknown := sorted(set(given) - known):
                extents = f", its open extents {', '.join(sorted(map(shown, symbols)))}"
                raise ModelError(
                    f"from_onnx: {what} of {shown(unknown[0])!r}", "the model has no such input",
                    f"Its inputs are {', '.join(shown(i.name) for i in infos)}"
                    f"{extents if symbols else ''}.",
                )  # fmt: skip
        for info in infos:
            value = self.values.get(info.name, self)
            yield info.name, self._input(info) if value is self else _value(value, info.type)

    def _input(self, info: Any) -> Var | Narrow:
        """An optional input is there at every call; one of a narrow type comes in the wider."""
        place = f"from_onnx: input {shown(info.name)!r}"
        kind = _tensor(info.type)
        if kind is None:
            raise ModelError(
                place, "it is not a tensor",
                f"Give it as a constant: params={{{info.name!r}: ...}}; sequences and maps "
                "cannot be inputs.", command="Sequences and maps cannot be inputs.",
            )  # fmt: skip
        dtype = str(self.dtypes.get(info.name) or element_type(kind.elem_type))
        if dtype not in WIDER and dtype not in TYPES:
            raise ModelError(place, f"its element type is {dtype}", _WAYS_OUT.get(dtype, OTHERS))
        shape = self._shape(info, place)
        with named(place, f"relay.var({info.name!r})"):
            made = var(info.name, shape=shape, dtype=WIDER.get(dtype, dtype))
        return Narrow(made, dtype) if dtype in WIDER else made

    def _shape(self, info: Any, place: str) -> tuple[Any, ...]:
        has_shape = _tensor(info.type).HasField("shape")
        declared = [_extent(d) for d in _dims(info)]
        given = self.shapes.get(info.name)
        if given is not None:
            if not isinstance(given, Sequence) or isinstance(given, str):
                raise ModelError(
                    place, f"{given!r} is no shape", "Give a tuple of ints.",
                    command=f"Write {_shape_option(info.name, declared or [given])}.",
                )  # fmt: skip
            if has_shape and len(given) != len(declared):
                raise ModelError(
                    place,
                    f"the shape {tuple(given)} has {len(given)} extents, the input has "
                    f"{len(declared)}",
                    f"Its shape in the model is ({', '.join(map(shown, map(str, declared)))}).",
                )
            return tuple(given)
        if not has_shape:
            raise ModelError(
                place, "its shape is not given", f"Pass shape={{{info.name!r}: (...)}}.",
                command=f"Give {_shape_option(info.name, [1, 3, 224, 224])}, or what it is.",
            )  # fmt: skip
        extents = [self.shapes.get(d, d) if isinstance(d, str) else d for d in declared]
        given_extents = [self.shapes[str(d)] for d in declared if d in self.shapes]
        if wrong := [d for d in given_extents if not is_integer(d)]:
            raise ModelError(
                place, f"the extent {wrong[0]!r} is no int", "Give an int by its name.",
                command="Give a number by its name: --shape NAME:N.",
            )  # fmt: skip
        if open_ := [d for d in extents if isinstance(d, str)]:
            guess = tuple(1 if isinstance(d, str) else d for d in extents)
            raise ModelError(
                place,
                f"its extent {', '.join(map(shown, open_))} is open",
                f"Pass shape={{{info.name!r}: {guess}}}.",
                command=f"Give {_ways_to_say(info.name, declared, open_)}.",
            )
        return tuple(extents)


def _ways_to_say(name: str, declared: Sequence[int | str], open_: Sequence[str]) -> str:
    """The options that give open extents a number."""
    whole = _shape_option(name, declared)
    if open_ == [declared[0]]:
        return f"--batch 1, or {whole}"
    named = [d for d in dict.fromkeys(open_) if d != "?"]
    if len(named) < len({*open_}) or any(":" in d or " " in d for d in named):
        return whole
    each = (f"--shape {shlex.quote(f'{shown(d)}:1')}" for d in named)
    return f"{' '.join(each)}, or {whole}"


def _shape_option(name: str, extents: Sequence[int | str]) -> str:
    """What gives an input a shape; extents that are open are 1."""
    numbers = ",".join(str(1 if isinstance(d, str) else d) for d in extents)
    return f"--shape {shlex.quote(f'{shown(name)}:[{numbers}]')}"


def batch_shapes(proto: Any, size: int, shapes: Mapping[str, Any]) -> dict[str, Any]:
    """`shapes` with `size` for the first extents that the model leaves open in its inputs, also of
    those that have a shape there; {} where there are none."""
    weights = {tensor.name for tensor in proto.graph.initializer}
    made: dict[str, Any] = {}
    for info in proto.graph.input:
        first, *rest = [_extent(d) for d in _dims(info)] or [0]
        if info.name in weights or not isinstance(first, str):
            continue
        given = shapes.get(info.name)
        behind = [shapes.get(d, d) if isinstance(d, str) else d for d in rest]
        if isinstance(given, tuple | list) and given:
            made[info.name] = (size, *given[1:])
        elif first != "?":
            made[first] = size
        elif not any(isinstance(d, str) for d in behind):
            made[info.name] = (size, *behind)
    return {**shapes, **made} if made else {}


def _dims(info: Any) -> Sequence[Any]:
    kind = _tensor(info.type)
    return [] if kind is None else list(kind.shape.dim)


def _tensor(kind: Any) -> Any:
    """The tensor that `kind` says, of an optional what it may hold; None for anything else."""
    if kind.HasField("optional_type"):
        return _tensor(kind.optional_type.elem_type)
    return kind.tensor_type if kind.HasField("tensor_type") else None


def _extent(dim: Any) -> int | str:
    """A number, or the name of what is open."""
    if dim.HasField("dim_value") and dim.dim_value >= 0:
        return int(dim.dim_value)
    return dim.dim_param or "?"


def _value(given: Any, kind: Any) -> Value:
    """What the caller gives for an input of type `kind`: an array, a list for a sequence, None for
    an optional that holds nothing."""
    if kind.HasField("optional_type"):
        return Absent() if given is None else _value(given, kind.optional_type.elem_type)
    if kind.HasField("sequence_type") and isinstance(given, (list, tuple)):
        return Items(tuple(_value(g, kind.sequence_type.elem_type) for g in given))
    return as_array(given)
