"""Modules of PyTorch by the shapes of their inputs, as `relay.frontend.from_pytorch` takes them.

In: a module, also scripted or traced, and names and shapes.  Out: `(mod, params)`.
Read next: `models/torch/export.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tilewright.base.errors import ModelError
from tilewright.graph.expr import Array, IRModule
from tilewright.graph.extents import closed, open_names
from tilewright.graph.passes.extents import opened
from tilewright.models.limits import Limits
from tilewright.models.torch.export import decomposed, exported, read, torch_module
from tilewright.models.torch.importer import import_program
from tilewright.models.torch.program import Program, Ref, Spec, Step


def from_pytorch(
    script_module: Any,
    input_infos: Sequence[Any],
    default_dtype: str = "float32",
    limits: Limits | None = None,
) -> tuple[IRModule, dict[str, Array]]:
    """A module of PyTorch, also a scripted or traced one, and its weights.

    input_infos: for each input its name and shape, and, if it is not `default_dtype`, its element
    type: ``[("input0", (1, 3, 224, 224)), ("ids", ((1, 128), "int64"))]``
    `relay.Any()` in a shape leaves an extent open: the module is exported for each size that
    relay.build is told.
    The module is taken in evaluation mode.  Raises ModelError as `from_exported_program` does.
    """
    place = "from_pytorch"
    torch = torch_module(place)
    if names := open_names(input_infos):
        return opened(
            names,
            lambda sizes: from_pytorch(
                script_module, closed(input_infos, sizes.__getitem__), default_dtype, limits
            ),
        )
    infos = [_input_info(info, default_dtype, place) for info in input_infos]
    if not isinstance(script_module, torch.nn.Module):
        raise ModelError(
            f"{place}({type(script_module).__name__})", "it is no torch.nn.Module",
            "Give a module; for an ExportedProgram there is from_exported_program.",
        )  # fmt: skip
    examples = tuple(_example(torch, spec, place) for _, spec in infos)
    program = read(decomposed(exported(script_module, examples, place)), place)
    if len(infos) != len(program.inputs):
        raise ModelError(
            place, f"the module takes {len(program.inputs)} tensors, input_infos has {len(infos)}",
            "Give one (name, shape) for each.",
        )  # fmt: skip
    return import_program(renamed(program, [name for name, _ in infos]), place, limits)


def _input_info(info: Any, default_dtype: str, place: str) -> tuple[str, Spec]:
    """("x", (1, 3)), ("x", ((1, 3), "int64")) or (("x", (1, 3)), "int64") as name and type."""
    way_out = 'Write [("input0", (1, 3, 224, 224)), ("ids", ((1, 128), "int64"))].'
    try:
        name, rest = info
        dtype = default_dtype
        if isinstance(rest, (tuple, list)) and len(rest) == 2 and isinstance(rest[1], str):
            rest, dtype = rest
        shape = tuple(int(n) for n in rest)
    except (TypeError, ValueError):
        raise ModelError(f"{place}(input_infos=)", f"{info!r} is not understood", way_out) from None
    if not isinstance(name, str):
        raise ModelError(f"{place}(input_infos=)", f"{name!r} is no name", way_out)
    return name, Spec(shape, str(dtype))


def _example(torch: Any, spec: Spec, place: str) -> Any:
    """Zeros: an exporter looks at types only, and zero is an index that everything has."""
    kind = getattr(torch, "float32" if spec.dtype == "float" else spec.dtype, None)
    if not isinstance(kind, torch.dtype):
        raise ModelError(
            f"{place}(input_infos=)", f"PyTorch has no element type {spec.dtype!r}",
            'Use "float32", "int64", ...',
        )  # fmt: skip
    return torch.zeros(spec.shape, dtype=kind)


def renamed(program: Program, names: Sequence[str]) -> Program:
    """`program` whose inputs are called `names`."""
    new = dict(zip((old for old, _ in program.inputs), names, strict=True))

    def value(item: Any) -> Any:
        if isinstance(item, Ref):
            return Ref(new.get(item.name, f"%{item.name}" if item.name in names else item.name))
        if isinstance(item, (list, tuple)):
            return type(item)(value(i) for i in item)
        return item

    def name_of(old: str) -> str:
        return f"%{old}" if old in names else old

    return Program(
        tuple((new[old], spec) for old, spec in program.inputs),
        {name_of(k): v for k, v in program.weights.items()},
        tuple(
            Step(name_of(s.name), s.op, {k: value(v) for k, v in s.args.items()}, s.results,
                 s.several)
            for s in program.steps
        ),
        tuple(value(o) for o in program.outputs),
    )  # fmt: skip
