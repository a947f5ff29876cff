"""What a `Source` says besides its text: buffers in order, and which of them a kernel takes.

In: a lowered `Program`, its text, how its kernels are launched.  Out: `Source`.
Read next: `c_family.py`, `llvm.py`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from tilewright.base.artifact import BufferSpec, HostCall, KernelInfo, OpenExtents, Source
from tilewright.base.errors import InternalError
from tilewright.base.extent import OPERATIONS, Extent
from tilewright.ir.expr import Expr
from tilewright.ir.stmt import Buffer, For, Given, Kernel, PackedCall, Program, statements
from tilewright.ir.symbols import symbols_of
from tilewright.targets.target import Target


def arguments_of(kernel: Kernel, program: Program) -> tuple[int, ...]:
    """The index of each parameter in `Source.buffers`.

    Raises InternalError for a parameter that the program does not have.
    """
    position = {buffer: i for i, buffer in enumerate(program.args + program.workspaces)}
    missing = [p.name for p in kernel.params if p not in position]
    if missing:
        place = f"generate({program.name})"
        raise InternalError(place, f"{kernel.name} takes {missing[0]}, which the program lacks")
    return tuple(position[p] for p in kernel.params)


def source_of(program: Program, target: Target, text: str, kernels: Sequence[KernelInfo]) -> Source:
    counters = program.counters
    spaces = ("counters" if b in counters else "workspace" for b in program.workspaces)
    roles = (*program.roles, *spaces)
    return Source(
        target=str(target),
        text=text,
        entry_name=program.name,
        buffers=tuple(
            BufferSpec(b.name, b.dtype, _numbers(_shape(b)), role, b.packing)
            for b, role in zip(program.args + program.workspaces, roles, strict=True)
        ),
        kernels=tuple(replace(k, grid=_numbers(k.grid)) for k in kernels),
        open=_open_extents(program),
        calls=tuple(_host_call(program, before, call) for before, call in program.calls),
    )


def _host_call(program: Program, before: int, call: PackedCall) -> HostCall:
    position = {buffer: i for i, buffer in enumerate(program.args + program.workspaces)}
    names = _names(program)
    args: list[tuple[Any, ...]] = []
    for arg in call.args:
        if isinstance(arg, Buffer):
            shape = tuple(_plain(n, names) for n in arg.shape)
            args.append(("array", position[arg], shape))
        else:
            is_open = isinstance(arg, Expr)
            args.append(("extent", _plain(arg, names)) if is_open else ("value", arg))
    return HostCall(before, call.name, tuple(args))


def _shape(buffer: Buffer) -> tuple[Any, ...]:
    """Flat where the memory has more elements than the tensor: overhanging tiles need them."""
    if any(isinstance(n, Expr) for n in (buffer.size, *buffer.shape)):
        return buffer.shape
    return buffer.shape if math.prod(buffer.shape) == buffer.size else (buffer.size,)


def _numbers(extents: tuple[Any, ...]) -> Any:
    return tuple(0 if isinstance(n, Expr) else n for n in extents)


def _open_extents(program: Program) -> OpenExtents | None:
    """The variables of a program as plain data; None where it has none."""
    buffers = program.args + program.workspaces
    given = _given(program)
    sizes = _sizes(program)
    loops = [s.extent for k in program.kernels for s in statements(k.body) if isinstance(s, For)]
    if not given and not symbols_of(sizes):
        return None
    places = {g.var: buffers.index(g.buffer) for g in given}
    names = _names(program)
    plain = [_plain(n, names) for n in [*sizes, *loops] if isinstance(n, Expr)]
    return OpenExtents(
        tuple(names.values()),
        tuple(places.get(v, -1) for v in names),
        tuple(tuple(_plain(n, names) for n in _shape(b)) for b in buffers),
        tuple(tuple(_plain(n, names) for n in k.grid) for k in program.kernels),
        tuple(dict.fromkeys(plain)),
    )


def _given(program: Program) -> list[Given]:
    return list(dict.fromkeys(g for k in program.kernels for g in k.given))


def _sizes(program: Program) -> list[Any]:
    """Extents of buffers and launches, and those that functions are given."""
    sizes: list[Any] = [n for b in program.args + program.workspaces for n in b.shape]
    sizes += [t.extent for k in program.kernels for t in k.threads]
    return sizes + [a for _, call in program.calls for a in call.args if isinstance(a, Expr)]


def _names(program: Program) -> dict[Expr, str]:
    """A name of its own for every variable."""
    names: dict[Expr, str] = {}
    for v in (*(g.var for g in _given(program)), *symbols_of(_sizes(program))):
        taken, name, k = set(names.values()), str(v.attr), 1
        while name in taken and v not in names:
            name, k = f"{v.attr}_{k}", k + 1
        names.setdefault(v, name)
    return names


def _plain(extent: Any, names: Mapping[Expr, str]) -> Extent:
    """An extent as it travels."""
    if not isinstance(extent, Expr):
        return int(extent)
    if extent.op == "var":
        return names[extent]
    if extent.op == "const":
        return int(extent.attr)
    if extent.op == "cast":
        return _plain(extent.args[0], names)
    if extent.op not in OPERATIONS:
        raise InternalError(f"generate: the extent {extent}", f"it has the operation {extent.op}")
    return (extent.op, *(_plain(a, names) for a in extent.args))
