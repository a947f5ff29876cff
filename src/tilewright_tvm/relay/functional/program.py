"""Functional networks as executors run them.

In: modules, values as programs give them.  Out: values as they get them.
Read next: `machine.py`, `../executor.py`, `executable.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tilewright.base.errors import ModelError
from tilewright.graph.expr import Constant, Function, TensorType, TupleType, Var, as_array
from tilewright.graph.leaves import const
from tilewright.runtime.device import Device
from tilewright.runtime.ndarray import NDArray, array, converted
from tilewright_tvm.relay.functional.code import Codes
from tilewright_tvm.relay.functional.machine import Machine
from tilewright_tvm.relay.functional.nodes import Constructor
from tilewright_tvm.relay.functional.pool import Pool, Tensor
from tilewright_tvm.relay.functional.values import (
    Closure,
    Constructed,
    ConstructorValue,
    RefValue,
)
from tilewright_tvm.relay.stages import Compute


class Program:
    """Main of a functional module.

    params: arrays by name, which are inputs that calls need not give
    """

    def __init__(self, main: Function, params: dict[str, Any]) -> None:
        self.main, self.params = main, params
        self.codes = Codes()
        names = [p.name_hint for p in main.params]
        self.input_names = tuple(n for n in names if n not in params)

    def run(
        self, values: Sequence[Any], compute: Compute, device: Device, as_lists: bool = True
    ) -> Any:
        """The result for the values of `input_names`: arrays, lists for tuples.

        compute:  what computes functions of tensors
        as_lists: values of data types are `Constructed`; otherwise `ConstructorValue`
        """
        given = {**self.params, **dict(zip(self.input_names, values, strict=True))}
        return self._call(
            Closure(self.main), [given[p.name_hint] for p in self.main.params],
            Pool(compute), device, as_lists,
        )  # fmt: skip

    def _call(
        self, closure: Closure, values: Sequence[Any], pool: Pool, device: Device, as_lists: bool
    ) -> Any:
        """pool: where the tensors are that the closure reads"""
        params = closure.function.params
        if len(params) != len(values):
            raise ModelError(
                "call of a function", f"{len(values)} arguments for {len(params)} parameters",
                f"Give {', '.join(p.name_hint for p in params) or 'none'}.",
            )  # fmt: skip
        args = [given(v, p, pool) for v, p in zip(values, params, strict=True)]
        value = Machine(self.codes, pool).call(closure, args)
        found = list(dict.fromkeys(_tensors(value)))
        arrays = dict(zip(found, pool.arrays(found), strict=True))

        def shown(value: Any) -> Any:
            if isinstance(value, Tensor):
                return _placed(arrays[value], device)
            if isinstance(value, tuple):
                return list(map(shown, value))
            if isinstance(value, ConstructorValue):
                return _constructed(value, shown, as_lists)
            if isinstance(value, RefValue):
                return RefValue(shown(value.value))
            if isinstance(value, Closure):
                return lambda *args: self._call(value, args, pool, device, as_lists)
            return value

        return shown(value)


def _constructed(value: ConstructorValue, shown: Callable[[Any], Any], as_lists: bool) -> Any:
    """A value of a data type and those in it: lists may be long, so nothing is entered deeply."""
    done: dict[int, Any] = {}
    stack = [value]
    while stack:
        now = stack[-1]
        inside = [f for f in now.fields if isinstance(f, ConstructorValue) and id(f) not in done]
        if inside:
            stack += inside
            continue
        stack.pop()
        fields = [done[id(f)] if id(f) in done else shown(f) for f in now.fields]
        done[id(now)] = (
            Constructed(fields, now.constructor) if as_lists
            else ConstructorValue(now.tag, fields, now.constructor)
        )  # fmt: skip
    return done[id(value)]


def _tensors(value: Any) -> list[Tensor]:
    found: list[Tensor] = []
    stack, done = [value], set[int]()
    while stack:
        now = stack.pop()
        if isinstance(now, Tensor):
            found.append(now)
            continue
        if id(now) in done:
            continue
        done.add(id(now))
        if isinstance(now, tuple):
            stack += now
        elif isinstance(now, ConstructorValue):
            stack += now.fields
        elif isinstance(now, RefValue):
            stack.append(now.value)
    return found


def _placed(value: Any, device: Device) -> NDArray:
    return value.copyto(device) if isinstance(value, NDArray) else array(as_array(value), device)


def given(value: Any, param: Var, pool: Pool) -> Any:
    """What a program gives for a parameter, as a value of the machine.  Raises ModelError."""
    return _given(value, param.type_annotation, param, pool)


def _given(value: Any, kind: Any, param: Var, pool: Pool) -> Any:
    place = f"input {param.name_hint}"
    if isinstance(kind, TupleType):
        if not isinstance(value, (list, tuple)) or len(value) != len(kind.fields):
            raise ModelError(place, f"it is no tuple of {len(kind.fields)}", "Give one.")
        pairs = zip(value, kind.fields, strict=True)
        return tuple(_given(v, k, param, pool) for v, k in pairs)
    if isinstance(kind, TensorType):
        one = value[0] if isinstance(value, (list, tuple)) and len(value) == 1 else value
        value = one if not kind.shape else value
        return pool.given(_array(value, kind, param))
    return _untold(value, param, pool)


def _untold(value: Any, param: Var, pool: Pool) -> Any:
    """A value for a parameter whose type is not told, or is not that of a tensor."""
    if isinstance(value, (ConstructorValue, Constructed)):
        return _built(value, param, pool)
    if isinstance(value, RefValue):
        return RefValue(_untold(value.value, param, pool))
    if isinstance(value, (list, tuple)):
        return tuple(_untold(v, param, pool) for v in value)
    if isinstance(value, (Function, Constructor)):
        return Closure(value.closed()) if isinstance(value, Function) else value
    if isinstance(value, NDArray):
        return pool.given(value)
    return pool.given(np.asarray((value if isinstance(value, Constant) else const(value)).data))


def _built(value: Any, param: Var, pool: Pool) -> ConstructorValue:
    """A value of a data type, and those in it, one after the other."""
    done: dict[int, ConstructorValue] = {}
    stack = [value]
    while stack:
        now = stack[-1]
        fields = list(now) if isinstance(now, Constructed) else now.fields
        kinds = (ConstructorValue, Constructed)
        inside = [f for f in fields if isinstance(f, kinds) and id(f) not in done]
        if inside:
            stack += inside
            continue
        stack.pop()
        made = [done[id(f)] if id(f) in done else _untold(f, param, pool) for f in fields]
        done[id(now)] = ConstructorValue(now.tag, made, now.constructor)
    return done[id(value)]


def _array(value: Any, kind: TensorType, param: Var) -> Any:
    place, open_axes = f"input {param.name_hint}", param.open_extents
    found = value if isinstance(value, NDArray) else as_array(value)
    shape = tuple(found.shape)
    fits = len(shape) == len(kind.shape) and all(
        k in open_axes or n == m for k, (n, m) in enumerate(zip(shape, kind.shape, strict=True))
    )
    if not fits:
        raise ModelError(
            place, f"it has shape {list(shape)}, the network {list(kind.shape)}",
            "Give one of that shape, or relay.Any() where the network is made.",
        )  # fmt: skip
    if isinstance(found, NDArray) and found.dtype == kind.dtype:
        return found
    return converted(as_array(found), kind.dtype, place)
