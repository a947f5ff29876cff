"""A network whose open extents are known when it is called.

In: a module, perhaps with `relay.Any()` in the shapes of its inputs.  Out: an `Executable`, which
builds a library for each set of shapes that it meets and keeps it.
Read next: `build.py`, `virtual_machine.py`, which runs it.
"""

from __future__ import annotations

import os
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from hashlib import blake2b
from typing import Any

import numpy as np

from tilewright.base.concurrency import cached_property
from tilewright.base.errors import ModelError
from tilewright.driver.build import resolve_target
from tilewright.graph.expr import (
    Constant,
    Expr,
    Function,
    IRModule,
    Tuple,
    TupleType,
    Type,
    Var,
    as_array,
    post_order,
)
from tilewright.graph.extension import extension
from tilewright.graph.extents import is_unnamed
from tilewright.graph.open import OpenModule
from tilewright.graph.passes.bind import bind_params
from tilewright.graph.passes.extents import open_extents, with_shapes, with_sizes
from tilewright.graph.passes.inline import inline_calls
from tilewright.graph.printer import structural_key
from tilewright.graph.traversal import each_function, substitute
from tilewright.network.build import build
from tilewright.runtime.ndarray import NDArray, converted
from tilewright.runtime.network.library import Library
from tilewright.targets.target import Target, TargetLike
from tilewright_tvm.relay.stages import Stages
from tilewright_tvm.runtime.virtual_machine import Nesting, shape_of

# Kept by one executable: sets of shapes, and parts of networks that were built.
MOST_SHAPES, MOST_PARTS = 64, 64
# Two numbers for each open extent: an axis that has first the one and then the other is it.
_TRIALS = (32, 48)


class Executable:
    """A network, built for the shapes it is called with.

    mod:    the network; params: weights by name, which become constants
    build:  makes a library of a network for some shapes, when it is called for them
    program: of a module that is more than a network, which runs otherwise
    """

    program: Any = None

    def __init__(
        self,
        mod: IRModule,
        target: TargetLike | None = None,
        params: Mapping[str, Any] | None = None,
        build: Callable[..., Library] = build,
    ) -> None:
        self.params, self._build = dict(params or {}), build
        self.target = Target(resolve_target(target))
        self._take(mod)
        self._libraries: dict[tuple[int, ...], Library] = {}
        self._stages: OrderedDict[tuple[int, ...], Stages] = OrderedDict()
        self._parts: OrderedDict[str, Library] = OrderedDict()

    def _take(self, mod: IRModule) -> None:
        """Keep what is run of a module."""
        if not isinstance(mod, OpenModule):
            network = extension().network(mod, "relay.vm.compile")
            mod = each_function(network, extension().typed)
        self.network, self.tuples = single_tensors(mod)
        self.open_names = open_extents(self.network)

    @property
    def input_names(self) -> tuple[str, ...]:
        """What a call gives: tensors, and tuples of them."""
        inside = {name for names in self.tuples.values() for name in names[1:]}
        first = {names[0]: of for of, names in self.tuples.items()}
        return tuple(first.get(name, name) for name in self.tensor_names if name not in inside)

    @property
    def tensor_names(self) -> tuple[str, ...]:
        """The inputs of main, each one tensor."""
        return tuple(p.name_hint for p in self._mains[0].params if p.name_hint not in self.params)

    def tensors(self, values: Sequence[Any]) -> list[Any]:
        """Give the values of `tensor_names`, from those of `input_names`.

        Raises ModelError for a tuple of another number of tensors.
        """
        found: list[Any] = []
        for name, value in zip(self.input_names, values, strict=True):
            parts = list(leaves(value)) if name in self.tuples else [value]
            count = len(self.tuples.get(name, (name,)))
            if len(parts) != count:
                raise ModelError(
                    f"input {name}", f"{len(parts)} tensors are given, it has {count}",
                    "Give a tuple of its form.",
                )  # fmt: skip
            found += parts
        return found

    @property
    def waits(self) -> bool:
        """Whether values of inputs, or what is computed of them, decide shapes."""
        return self._mains[0].waits

    @property
    def nesting(self) -> Nesting:
        return nesting_of(self._mains[0].ret_type)

    @cached_property
    def library(self) -> Library:
        """Of a network without open extents.  Raises ModelError for one that has some, and for one
        in which values decide shapes."""
        if self.open_names:
            raise ModelError(
                "relay.vm.Executable", f"its extents are open: {', '.join(self.open_names)}",
                "Build it for numbers: relay.build(mod, sizes=[...]).",
            )  # fmt: skip
        return self._build(self.network, self.target, self.params or None)

    def staged(
        self, values: Sequence[Any], run: Callable[[Library, Sequence[Any]], Sequence[Any]]
    ) -> tuple[list[Any], Nesting]:
        """Give the results for these values of `tensor_names`, of a network that `waits`.

        run: a library on the values of its inputs
        What is built is kept, for `MOST_SHAPES` sets of shapes and `MOST_PARTS` parts of networks.
        Raises ModelError where the network cannot be made for these values.
        """
        shapes = [shape_of(v) for v in values]
        sizes = self._key(shapes)
        main = self.sized(shapes) if sizes not in self._stages else None
        if main is not None:
            bound = {
                k: v for k, v in self.params.items() if k in {p.name_hint for p in main.params}
            }
            module = bind_params(IRModule({"main": main}), bound)
            self._stages[sizes] = Stages(inline_calls(module)["main"])
            if len(self._stages) > MOST_SHAPES:
                self._stages.popitem(last=False)
        stages = self._stages[sizes]
        self._stages.move_to_end(sizes)
        checked = [checked_input(v, p) for v, p in zip(values, stages.params, strict=True)]
        given = dict(zip(stages.params, checked, strict=True))
        found, body = stages.run(given, lambda part, inputs: run(self.part(part), inputs))
        return found, nesting_of(body.checked_type)

    def part(self, function: Function) -> Library:
        """One part of a network, built once whatever led to it."""
        constants = blake2b()
        for node in post_order(function.body):
            if isinstance(node, Constant):
                constants.update(np.ascontiguousarray(node.data).tobytes())
        key = structural_key(function) + constants.hexdigest()
        if key not in self._parts:
            self._parts[key] = self._build(function, self.target)
            if len(self._parts) > MOST_PARTS:
                self._parts.popitem(last=False)
        self._parts.move_to_end(key)
        return self._parts[key]

    def library_for(self, shapes: Sequence[tuple[int, ...]]) -> Library:
        """Build for inputs of these shapes, once.  Raises ModelError where none can be."""
        if not self.open_names:
            return self.library
        key = self._key(shapes)
        if key not in self._libraries:
            if isinstance(self.network, OpenModule):
                sizes = [self._sizes(shapes)]
                made = self._build(self.network, self.target, self.params or None, sizes=sizes)
            else:
                made = self._build(self.sized(shapes), self.target, self.params or None)
            self._libraries[key] = made
        return self._libraries[key]

    def export_library(self, file_name: str | os.PathLike[str]) -> None:
        """Do `Library.export_library`, of a network without open extents."""
        self.library.export_library(file_name)

    def sized(self, shapes: Sequence[tuple[int, ...]]) -> Function:
        """Give main for inputs of these shapes."""
        if not self.open_names:
            return self._mains[0]
        if isinstance(self.network, OpenModule):
            return with_sizes(self.network, self._sizes(shapes))["main"]
        self._sizes(shapes)
        main, given = self.network["main"], dict(zip(self.tensor_names, shapes, strict=True))
        return with_shapes(main, [given.get(p.name_hint, p.shape) for p in main.params])

    def _key(self, shapes: Sequence[tuple[int, ...]]) -> tuple[int, ...]:
        """What the network is built for: the extents that are open."""
        if not self.open_names:
            return ()
        self._sizes(shapes)
        return tuple(shapes[k][axis] for k, axis in self._axes)

    @cached_property
    def _mains(self) -> list[Function]:
        """Main as it is, or for two sets of numbers where it is made for numbers only."""
        if not isinstance(self.network, OpenModule):
            return [self.network["main"]]
        count = len(self.open_names)
        trials = [dict(zip(self.open_names, range(n, n + count), strict=True)) for n in _TRIALS]
        return [with_sizes(self.network, sizes)["main"] for sizes in trials]

    @cached_property
    def _axes(self) -> dict[tuple[int, int], str]:
        """Which open extent is where: by input and axis."""
        found: dict[tuple[int, int], str] = {}
        if not isinstance(self.network, OpenModule):
            inputs = [p for p in self.network["main"].params if p.name_hint not in self.params]
            return {(k, a): n for k, p in enumerate(inputs) for a, n in p.open_extents.items()}
        shapes = [
            [p.shape for p in main.params if p.name_hint not in self.params] for main in self._mains
        ]
        for k, (first, second) in enumerate(zip(*shapes, strict=True)):
            for axis, (a, b) in enumerate(zip(first, second, strict=True)):
                if a != b:
                    found[k, axis] = self.open_names[a - _TRIALS[0]]
        return found

    @cached_property
    def _fixed(self) -> list[list[int | None]]:
        """The shapes of `tensor_names`, None where an extent is open."""
        of = self._mains[0].params
        known = [list(p.shape) for p in of if p.name_hint not in self.params]
        return [
            [None if (k, axis) in self._axes else n for axis, n in enumerate(shape)]
            for k, shape in enumerate(known)
        ]

    def _sizes(self, shapes: Sequence[tuple[int, ...]]) -> dict[str, int]:
        for name, shape, fixed in zip(self.tensor_names, shapes, self._fixed, strict=True):
            fits = len(shape) == len(fixed)
            if not fits or any(n not in (None, m) for n, m in zip(fixed, shape, strict=True)):
                wanted = ", ".join("?" if n is None else str(n) for n in fixed)
                raise ModelError(
                    f"input {name}", f"it has shape {list(shape)}, the network [{wanted}]",
                    "Give one of that shape, or relay.Any() where the network is made.",
                )  # fmt: skip
        sizes: dict[str, int] = {}
        for (k, axis), name in self._axes.items():
            what = f"input {self.tensor_names[k]} of shape {list(shapes[k])}"
            extent = int(shapes[k][axis])
            own = is_unnamed(name, axis) and not isinstance(self.network, OpenModule)
            if sizes.setdefault(name, extent) != extent and not own:
                raise ModelError(
                    what, f"{name} is {extent} here and {sizes[name]} in another input",
                    "Give inputs of one size.",
                )  # fmt: skip
        return {name: sizes[name] for name in self.open_names}


def single_tensors(mod: IRModule) -> tuple[IRModule, dict[str, list[str]]]:
    """Give the module whose main takes tensors only, and the names of those that a tuple became."""
    main = mod.functions.get("main")
    if main is None or not any(isinstance(p.type_annotation, TupleType) for p in main.params):
        return mod, {}
    taken = {p.name_hint for p in main.params}
    tuples: dict[str, list[str]] = {}
    params: list[Var] = []
    values: dict[Expr, Expr] = {}

    def parts(kind: Type, name: str) -> Expr:
        if isinstance(kind, TupleType):
            return Tuple([parts(part, f"{name}_{k}") for k, part in enumerate(kind.fields)])
        while name in taken:
            name += "_"
        taken.add(name)
        params.append(Var(name, kind))
        return params[-1]

    for p in main.params:
        if not isinstance(p.type_annotation, TupleType):
            params.append(p)
            continue
        before = len(params)
        values[p] = parts(p.type_annotation, p.name_hint)
        tuples[p.name_hint] = [part.name_hint for part in params[before:]]
    flat = Function(params, substitute(main.body, values), attrs=main.attrs)
    return IRModule({**mod.functions, "main": flat}), tuples


def checked_input(value: Any, variable: Var) -> Any:
    """Give `value` as an array of the variable's type.  Raises ModelError."""
    kind, place = variable.tensor_type, f"input {variable.name_hint}"
    if shape_of(value) != kind.shape:
        raise ModelError(
            place, f"it has shape {list(shape_of(value))}, the network {list(kind.shape)}",
            "Give one of that shape, or relay.Any() where the network is made.",
        )  # fmt: skip
    if isinstance(value, NDArray) and value.dtype == kind.dtype:
        return value
    return converted(as_array(value), kind.dtype, place)


def leaves(value: Any) -> Iterator[Any]:
    """Give the tensors of a tuple of tuples, in order."""
    if isinstance(value, (tuple, list)):
        for part in value:
            yield from leaves(part)
    else:
        yield value


def nesting_of(kind: Type) -> Nesting:
    return tuple(map(nesting_of, kind.fields)) if isinstance(kind, TupleType) else None
