"""Networks from wherever they are: a name, a file, a model in memory.

In: the name of a test network, the path of an .onnx or .pt2 file, `script.py:function`, an ONNX
model, a module or an exported program of PyTorch, a module of ours.  Out: `(mod, params)`, for one
or several sizes.
Read next: `onnx/importer.py`, `torch/export.py`, `scripts.py`.
"""

from __future__ import annotations

import itertools
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from tilewright.base import model_files
from tilewright.base.errors import ModelError, TilewrightError
from tilewright.graph.expr import Array, Function, IRModule
from tilewright.graph.layers import name_by_weights
from tilewright.graph.passes.batch import with_batch
from tilewright.graph.passes.bind import with_weights
from tilewright.models import scripts
from tilewright.models.decoders import read as decoders
from tilewright.models.decoders.config import NAMED
from tilewright.models.decoders.read import is_decoder as is_decoder
from tilewright.models.limits import Limits
from tilewright.models.onnx.importer import from_onnx
from tilewright.models.onnx.inputs import batch_shapes
from tilewright.models.onnx.load import load as load_proto
from tilewright.models.torch.export import (
    Keeps as Keeps,
)
from tilewright.models.torch.export import (
    from_examples,
    from_exported_program,
    from_step,
    torch_module,
)
from tilewright.models.zoo import get_network, is_network, unknown_network
from tilewright.network.build import State
from tilewright.network.conversion import converted
from tilewright.network.places import bounds_of_places

if TYPE_CHECKING:
    from onnx import ModelProto
    from torch.export import ExportedProgram
    from torch.nn import Module

    Model: TypeAlias = (  # said to be one: without PyTorch a part of it is Any
        str
        | os.PathLike[str]
        | bytes
        | ModelProto
        | Module
        | ExportedProgram
        | IRModule
        | Function
        | scripts.Made
    )
Loaded = tuple[IRModule, dict[str, Array]]


def check(name_or_path: str) -> None:
    """Raises ModelError for a name that is no network, a file that is not there, and for one that
    is no model that is read.  Nothing of a script runs.
    """
    if is_network(name_or_path) or is_decoder(name_or_path):
        return
    if scripts.parts_of(name_or_path) is not None:
        scripts.check(name_or_path)
        return
    if not os.path.exists(name_or_path) and not model_files.is_path(name_or_path):
        raise unknown_network(name_or_path, NAMED)
    kinds = (model_files.EXPORTED, model_files.SCRIPTED)
    model_files.check_model(name_or_path, name_or_path, *kinds)


def load(model: Model, shapes: Mapping[str, Any] | None = None, inputs: Any = None) -> Loaded:
    """The network and its weights.

    model:  name of a test network; path of an .onnx file, of what torch.export.save or
            torch.jit.save wrote; the bytes of an .onnx file, an onnx.ModelProto; a torch.nn.Module,
            an ExportedProgram; an IRModule or a Function
    shapes: of inputs of an ONNX model, by name; extents that have a name by that
    inputs: of a module of PyTorch, see `from_examples`
    Raises ModelError for an unknown name, for a file that is missing, damaged, or of another kind,
    and for shapes or inputs of a model that takes none.
    """
    what = _known(model)
    of_torch = (model_files.EXPORTED, model_files.SCRIPTED)
    if isinstance(what, str) and not is_network(what) and _kind(what) in of_torch:
        what = read_torch(what, what)
    module = _is_module(what)
    if not module and not _is_other_model(what):
        made = " (a class: call it to make a module)" if isinstance(what, type) else ""
        raise ModelError(
            f"load({_shown(model)})", f"it is no model{made}",
            "Give the path or the bytes of an .onnx file, a module of PyTorch with example inputs,"
            " an exported program or its .pt2 file, SCRIPT.py:FUNCTION, or the name of a network.",
        )  # fmt: skip
    if module and inputs is None and shapes:
        inputs, shapes = shapes, None
    if module and inputs is None:
        raise ModelError(
            f"load({_shown(model)})", "a module does not tell the shapes of its inputs",
            "Give examples or shapes: inputs=(1, 3, 224, 224), or {\"ids\": tensor}.",
            command="Give them by the names of its arguments: --shape x:[1,3,224,224]",
        )  # fmt: skip
    if inputs is not None and not module:
        raise ModelError(
            f"load({_shown(model)}, inputs=)", "the model tells its inputs", "Leave inputs out."
        )
    if module:
        _refuse_shapes(model, shapes, "inputs= says them")
        return from_examples(what, inputs, place=f"load({_shown(model)})")
    if isinstance(what, str) and is_network(what):
        _refuse_shapes(what, shapes, "only those of an .onnx file can be given")
        return _named(*get_network(what))
    if isinstance(what, IRModule | Function):
        _refuse_shapes(model, shapes, "they are those of its parameters")
        return _named(what if isinstance(what, IRModule) else IRModule.from_expr(what), {})
    if hasattr(what, "graph_signature"):
        _refuse_shapes(model, shapes, "an exported program has its own")
        return from_exported_program(what)
    return from_onnx(what, shapes)


def _named(mod: IRModule, params: dict[str, Array]) -> Loaded:
    """A graph of ours whose layers have names, those of their weights, where they have none."""
    for function in mod.functions.values():
        name_by_weights(function.body)
    return mod, params


def read_torch(path: str | os.PathLike[str], place: str) -> Any:
    """The ExportedProgram or the scripted module in a file.  PyTorch unpickles parts of such files:
    only those of people whom one trusts may be read.

    Raises ModelError without PyTorch, and for a file that it cannot read.
    """
    torch = torch_module(place)
    kind = model_files.kind_of(Path(path))
    whole = kind == model_files.EXPORTED or Path(path).suffix == ".pt2"
    try:
        return torch.export.load(path) if whole else torch.jit.load(path, map_location="cpu")
    except Exception as error:  # PyTorch's readers raise many kinds
        raise ModelError(
            place, f"PyTorch cannot read it ({str(error).splitlines()[0]})",
            "It may be damaged: write it again, with torch.jit.save, or as .pt2 with "
            "torch.export.save.",
        ) from None  # fmt: skip


def _known(model: Any) -> Any:
    """A name or a path as text that is known to be one; all else as it is."""
    if not isinstance(model, str | os.PathLike):
        return model
    text = os.fspath(model)
    check(text)
    return text


def _kind(path: str) -> str:
    return model_files.kind_of(Path(path))


def _is_module(model: Any) -> bool:
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(model, torch.nn.Module)


def _is_other_model(model: Any) -> bool:
    """Whether it is one of those that tell their inputs: of ours, exported, or of ONNX."""
    if isinstance(model, IRModule | Function | str | bytes | bytearray):
        return True
    told = hasattr(model, "graph_signature") or hasattr(model, "SerializeToString")
    return told and not isinstance(model, type)


def _shown(model: Any) -> str:
    return repr(model) if isinstance(model, str | os.PathLike) else type(model).__name__


def _refuse_shapes(model: Any, shapes: Mapping[str, Any] | None, why: str) -> None:
    if shapes:
        name = f"network {model!r}" if isinstance(model, str) else f"load({_shown(model)}, shape=)"
        raise ModelError(
            name, f"its shapes are fixed, {why}", "Leave them out.", command="Leave --shape out."
        )


def load_sizes(
    model: Model,
    batch: Sequence[int] = (),
    shapes: Mapping[str, Any] | None = None,
    inputs: Any = None,
    bound: Sequence[str] = (),
) -> tuple[list[IRModule], dict[str, Array]]:
    """The network for each batch size and for each number that an open extent may be.

    batch:  none: as it is
    shapes: as for `load`; a list stands for several numbers of an extent that has a name
    bound:  parameters of a module of ours that are weights, not inputs
    """
    given = dict(shapes or {})
    several = {name: numbers for name, numbers in given.items() if isinstance(numbers, list)}
    made: list[Loaded] = []
    for numbers in itertools.product(*several.values()):
        chosen = {**given, **dict(zip(several, numbers, strict=True))}
        if batch:
            mods, params = load_batches(model, batch, chosen, inputs, bound)
            made += ((mod, params) for mod in mods)
        else:
            made.append(load(model, chosen, inputs))
    return _sharing(made)


def load_batches(
    model: Model,
    sizes: Sequence[int],
    shapes: Mapping[str, Any] | None = None,
    inputs: Any = None,
    bound: Sequence[str] = (),
) -> tuple[list[IRModule], dict[str, Array]]:
    """`load` for each batch size: modules for `relay.build`, and the weights that they share.

    Where an ONNX model leaves the first extents of its inputs open, they are `sizes`; otherwise the
    network is made again for them.  Raises ModelError as `load` does, and where that cannot be.
    """
    what = _known(model)
    if isinstance(what, str) and is_network(what):
        _refuse_shapes(what, shapes, "only those of an .onnx file can be given")
        return _sharing([_named(*get_network(what, batch_size=size)) for size in sizes])
    if _is_onnx(what):
        what = load_proto(what, Limits())
        made = [batch_shapes(what, size, shapes or {}) for size in sizes]
        if all(made):
            return _sharing([from_onnx(what, shape) for shape in made])
    mod, params = load(what, shapes, inputs)
    weights = (*params, *bound)
    return [IRModule.from_expr(with_batch(mod["main"], size, weights)) for size in sizes], params


def _is_onnx(model: Any) -> bool:
    if isinstance(model, str):
        return _kind(model) in (model_files.ONNX, "")
    return isinstance(model, bytes) or type(model).__name__ == "ModelProto"


def _sharing(made: Sequence[Loaded]) -> tuple[list[IRModule], dict[str, Array]]:
    """One network for several shapes, with the weights of the first."""
    weights = made[0][1]
    return [with_weights(mod, own, weights) for mod, own in made], weights


def load_decoder(
    model: str, batch: Sequence[int], shape: Mapping[str, Any] | None, inputs: Any, dtype: str,
    layout: str | None,
) -> decoders.Read:  # fmt: skip
    """A decoder for each number of positions at once.  Raises ModelError for what cannot be."""
    if inputs is not None or layout is not None:
        what = "inputs" if inputs is not None else "layout"
        raise ModelError(f"load({model!r}, {what}=)", "a decoder has none", f"Leave {what} out.")
    return decoders.load(model, batch, shape, dtype)


def load_step(
    found: Keeps, batch: Sequence[int], dtype: str, layout: str | None
) -> tuple[list[IRModule], dict[str, Array], dict[str, State], dict[str, tuple[int, int]]]:
    """The network of a module that writes to its buffers, its weights, its states, and what inputs
    may hold that say where it writes.

    Raises ModelError for sizes and types that these cannot have.
    """
    if batch:
        raise ModelError(
            f"{found.place}, batch=", "it keeps state, whose shapes are its own", "Leave batch out."
        )
    mod, weights, kept = from_step(found.program, found.place)
    states = {name: State(output, first) for name, (output, first) in kept.items()}
    made, left = converted([mod], weights, dtype, layout)
    kinds = {p.name_hint: p.dtype for p in made[0]["main"].params}
    if any(kinds[p.name_hint] != p.dtype for p in mod["main"].params if p.name_hint in states):
        raise ModelError(
            f"{found.place}, dtype={dtype!r}", "it keeps state in the type that it has",
            "Leave dtype out, or convert the module before it is exported.",
        )  # fmt: skip
    return made, left, states, bounds_of_places(mod["main"], kept)


@contextmanager
def of_model(name: str) -> Iterator[None]:
    """Errors of a graph's functions name the model, which calls none of them by a name of relay."""
    try:
        yield
    except TilewrightError as error:
        if error.place.startswith("relay."):
            error.place = f"{name}: {error.place.removeprefix('relay.')}"
            error.args = (error.place, *error.args[1:])
        raise


def name_of(model: Any) -> str:
    """What a model in memory calls itself, or its class."""
    graph = getattr(getattr(model, "graph", None), "name", "")
    return graph if isinstance(graph, str) and graph else type(model).__name__
