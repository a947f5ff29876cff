"""`relay.vm.compile`: a network whose open extents are known when it is called.

In: a module, perhaps with `relay.Any()` in the shapes of its inputs.  Out: an `Executable`, which
builds a library for each set of shapes that it meets and keeps it.
Read next: `build.py`, `../../runtime/network/vm.py`, which runs it.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any

from tilewright.base.errors import ModelError
from tilewright.driver.build import resolve_target
from tilewright.relay.compile.build import build
from tilewright.relay.graph.expr import Function, IRModule, TupleType, Type
from tilewright.relay.passes.extents import open_extents, with_sizes
from tilewright.runtime.network.library import Library
from tilewright.runtime.network.vm import Nesting
from tilewright.targets.target import Target, TargetLike

# Two numbers for each open extent: an axis that has first the one and then the other is it.
_TRIALS = (32, 48)


class Executable:
    """A network, built for the shapes it is called with.

    mod:    the network; params: weights by name, which become constants
    Options of `transform.PassContext` and schedules count where it is called for new shapes.
    """

    def __init__(
        self,
        mod: IRModule,
        target: TargetLike | None = None,
        params: Mapping[str, Any] | None = None,
    ) -> None:
        self.mod, self.params = mod, dict(params or {})
        self.target = Target(resolve_target(target))
        self.open_names = open_extents(mod)
        self._libraries: dict[tuple[int, ...], Library] = {}

    @property
    def input_names(self) -> tuple[str, ...]:
        return tuple(p.name_hint for p in self._mains[0].params if p.name_hint not in self.params)

    @property
    def nesting(self) -> Nesting:
        return nesting_of(self._mains[0].ret_type)

    @cached_property
    def library(self) -> Library:
        """Of a network without open extents.  Raises ModelError for one that has some."""
        if self.open_names:
            raise ModelError(
                "relay.vm.Executable", f"its extents are open: {', '.join(self.open_names)}",
                "Build it for numbers: relay.build(mod, sizes=[...]).",
            )  # fmt: skip
        return build(self.mod, self.target, self.params or None)

    def library_for(self, shapes: Sequence[tuple[int, ...]]) -> Library:
        """For inputs of these shapes; it is built once.  Raises ModelError where none can be."""
        if not self.open_names:
            return self.library
        sizes = self._sizes(shapes)
        key = tuple(sizes.values())
        if key not in self._libraries:
            self._libraries[key] = build(self.mod, self.target, self.params or None, sizes=[sizes])
        return self._libraries[key]

    def export_library(self, file_name: str | os.PathLike[str]) -> None:
        """`Library.export_library`, of a network without open extents."""
        self.library.export_library(file_name)

    def sized(self, shapes: Sequence[tuple[int, ...]]) -> Function:
        """Main for inputs of these shapes."""
        if not self.open_names:
            return self._mains[0]
        return with_sizes(self.mod, self._sizes(shapes))["main"]

    @cached_property
    def _mains(self) -> list[Function]:
        """Main, as it is or for two sets of numbers."""
        if not self.open_names:
            return [self.mod["main"]]
        count = len(self.open_names)
        trials = [dict(zip(self.open_names, range(n, n + count), strict=True)) for n in _TRIALS]
        return [with_sizes(self.mod, sizes)["main"] for sizes in trials]

    @cached_property
    def _axes(self) -> dict[tuple[int, int], str]:
        """Which open extent is where: by input and axis."""
        found = {}
        shapes = [
            [p.shape for p in main.params if p.name_hint not in self.params] for main in self._mains
        ]
        for k, (first, second) in enumerate(zip(*shapes, strict=True)):
            for axis, (a, b) in enumerate(zip(first, second, strict=True)):
                if a != b:
                    found[k, axis] = self.open_names[a - _TRIALS[0]]
        return found

    def _sizes(self, shapes: Sequence[tuple[int, ...]]) -> dict[str, int]:
        sizes: dict[str, int] = {}
        for (k, axis), name in self._axes.items():
            what = f"input {self.input_names[k]} of shape {list(shapes[k])}"
            if axis >= len(shapes[k]):
                raise ModelError(what, f"it has no axis {axis}, called {name}", "Add it.")
            extent = int(shapes[k][axis])
            if sizes.setdefault(name, extent) != extent:
                raise ModelError(
                    what, f"{name} is {extent} here and {sizes[name]} in another input",
                    "Give inputs of one size.",
                )  # fmt: skip
        return {name: sizes[name] for name in self.open_names}


def compile(
    mod: IRModule | Function,
    target: TargetLike | None = None,
    target_host: TargetLike | None = None,
    params: Mapping[str, Any] | None = None,
) -> Executable:
    """A network for `runtime.vm.VirtualMachine`; one without open extents is built at once.

    target_host, params: as for `relay.build`
    """
    module = mod if isinstance(mod, IRModule) else IRModule.from_expr(mod)
    made = Executable(module, Target(resolve_target(target), target_host), params)
    if not made.open_names:
        _ = made.library
    return made


def nesting_of(kind: Type) -> Nesting:
    return tuple(map(nesting_of, kind.fields)) if isinstance(kind, TupleType) else None
