"""What names and attributes in relay's text mean: functions that users call, else rows.

In: a name as text has it, values, attributes.  Out: what the function of that name in `relay`,
`relay.nn`, ... makes of them; where it has not all of the attributes, the row of that name.
Read next: `reader.py`, `graph/printer.py`.
"""

from __future__ import annotations

import difflib
import functools
import inspect
import math
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from typing import Any

from tilewright.base.errors import ModelError
from tilewright.graph.deferred import Deferred
from tilewright.graph.expr import Call, Constant, Expr, Tuple, TupleGetItem
from tilewright.graph.left_out import LEFT_OUT
from tilewright.graph.op import TABLE, call

MOST_ELEMENTS, MOST_PARTS = 1 << 26, 1 << 14
_SIZES = ("shape", "reps", "repeats", "depth", "newshape")

# Where functions of operators are, by what stands before the last dot.
_FOLDERS = {"": "relay", "dyn": "relay"} | {
    n: f"relay.{n}" for n in ("annotation", "nn", "image", "vision", "random", "qnn")
}


@functools.cache
def function_of(name: str) -> Callable[..., Any] | None:
    """What users call as operator `name`; None where there is nothing."""
    folder, _, last = name.rpartition(".")
    if folder not in _FOLDERS:
        return None
    place = "relay.qnn.op" if folder == "qnn" else _FOLDERS[folder]
    module = _module(place)
    listed = module.OPERATORS if place in ("relay", "relay.qnn.op") else module.__all__
    found = next((n for n in (last, last.lower()) if n in listed), None)
    made: Callable[..., Any] | None = None if found is None else getattr(module, found)
    return made


def _module(place: str) -> Any:
    """The module that users call so."""
    found = import_module("tilewright_tvm.relay")
    for part in place.split(".")[1:]:
        found = getattr(found, part)
    return found


def apply(name: str, args: Sequence[Expr], attrs: Mapping[str, Any]) -> Expr:
    """The operator `name` of `args`.  Raises ModelError."""
    given = {**LEFT_OUT.get(name, {}), **attrs}
    function, row = function_of(name), TABLE.get(name)
    if function is None and row is None:
        raise ModelError(name, "there is no such operator", _near(name))
    if function is None:
        return _row(name, args, given, TABLE[name].attrs)
    known = _parameters(function)
    own = {} if row is None else row.attrs
    # what is not set says nothing, as `out_layout=""`
    given = {k: v for k, v in given.items() if k in known or k in own or v not in (None, "")}
    strange = [k for k in given if k not in known]
    fits = row is not None and (row.follows is not None or all(k in own for k in strange))
    if fits and (strange or _missing(function, args, given)):
        return _row(name, args, given, known)
    if strange:
        raise ModelError(name, f"unknown attribute {strange[0]}", f"It has {_listed(known)}.")
    return _called(name, function, args, given)


def _row(
    name: str, args: Sequence[Expr], given: Mapping[str, Any], known: Mapping[str, Any]
) -> Expr:
    """A row as it is printed, with what follows from its arguments."""
    own = TABLE[name].attrs
    try:
        made = call(name, *args, **{k: v for k, v in given.items() if k in own})
    except (TypeError, ValueError, LookupError, AttributeError, ArithmeticError) as error:
        raise ModelError(  # no door has checked their kinds
            name,
            f"its attributes are none that it takes ({error!s:.80})",
            f"It has {_listed(own)}.",
        ) from None
    if strange := [k for k in given if k not in own and k not in made.attrs.derived]:
        raise ModelError(name, f"unknown attribute {strange[0]}", f"It has {_listed(known)}.")
    return made


def projected(value: Expr, index: int) -> Expr:
    """`value.index`, where TVM's dropout gives the mask, too."""
    made_by = value.op if isinstance(value, Call) else None
    if getattr(made_by, "name", "") == "nn.dropout" and index == 0:
        return value
    if isinstance(value, Tuple) and not 0 <= index < len(value.fields):
        raise ModelError(f".{index}", f"the tuple has {len(value.fields)} values", "Count from 0.")
    return TupleGetItem(value, index)


def _called(
    name: str, function: Callable[..., Any], args: Sequence[Expr], attrs: Mapping[str, Any]
) -> Expr:
    """Values go to the parameters, in order, that no attribute names."""
    free = [k for k in _parameters(function) if k not in attrs]
    if len(args) > len(free):
        raise ModelError(
            name, f"{len(args)} values are given", f"It takes {_listed(_parameters(function))}."
        )
    if missing := _missing(function, args, attrs):
        takes = _listed(_parameters(function))
        raise ModelError(name, f"{missing[0]} is missing", f"It takes {takes}.")
    _check_size(name, args, attrs)
    made = function(**dict(zip(free, args, strict=False)), **attrs)
    if isinstance(made, (list, tuple)):
        made = Tuple(list(made))
    if isinstance(made, Tuple):
        made = _undivided(made)
    if not isinstance(made, Expr):
        made = made.astuple()
    result: Expr = made
    return result


def _undivided(made: Tuple) -> Expr:
    """The node of which a function gives all values one by one: text has the node's name."""
    whole = {f.tuple_value for f in made.fields if isinstance(f, TupleGetItem)}
    node = whole.pop() if len(whole) == 1 else None
    return node if isinstance(node, Deferred) else made


def _check_size(name: str, args: Sequence[Expr], attrs: Mapping[str, Any]) -> None:
    """A few words must not become gigabytes: what is made of constants is computed at once, and a
    split is as many nodes as it has parts."""
    most, asked = MOST_ELEMENTS, [v for k, v in attrs.items() if k in _SIZES]
    if name == "split":
        most, asked = MOST_PARTS, [attrs.get("indices_or_sections")]
    elif not all(isinstance(a, Constant) for a in args):
        return
    elif name == "arange":
        given = [*args, *attrs.values()]
        asked = [a.data.item() if isinstance(a, Constant) else a for a in given]
    for number in map(_magnitude, asked):
        if number > most:
            raise ModelError(
                name, f"it asks for {number:.0f} elements or parts, of {most} at most",
                "Call relay's function in Python, or make it a parameter.",
            )  # fmt: skip


def _magnitude(value: Any) -> float:
    """How many elements a number, or a shape, may ask for."""
    if isinstance(value, (int, float)):
        return abs(value) if math.isfinite(value) else 0
    if isinstance(value, tuple) and all(isinstance(v, int) for v in value):
        return math.prod(float(abs(v)) for v in value)
    return 0


def _missing(
    function: Callable[..., Any], args: Sequence[Expr], attrs: Mapping[str, Any]
) -> list[str]:
    """What the function needs and is not given."""
    free = [k for k in _parameters(function) if k not in attrs]
    known = _parameters(function)
    return [k for k in free[len(args) :] if known[k].default is inspect.Parameter.empty]


@functools.cache
def _parameters(function: Callable[..., Any]) -> Mapping[str, inspect.Parameter]:
    return {
        k: p
        for k, p in inspect.signature(function).parameters.items()
        if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)
    }


def _listed(names: Any) -> str:
    return ", ".join(names) or "nothing"


def _near(name: str) -> str:
    modules = {f: _module(m) for f, m in _FOLDERS.items() if f != "dyn"}
    every = [
        f"{folder}.{n}".lstrip(".")
        for folder, module in modules.items()
        for n in getattr(module, "OPERATORS", module.__all__)
    ]
    near = difflib.get_close_matches(name[:100], [*TABLE, *every], 3)
    return f"Near it: {', '.join(dict.fromkeys(near))}." if near else "relay.op.TABLE lists all."
