"""Networks by name or path, and inputs to try them with.

In: the name of a test network or the path of an .onnx file.  Out: `(mod, params)`, random inputs.
Read next: `onnx/importer.py`, `../testing/`.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tilewright.base.errors import ModelError
from tilewright.graph.expr import Array, IRModule
from tilewright.graph.passes.batch import with_batch
from tilewright.graph.passes.bind import with_weights
from tilewright.models.limits import Limits
from tilewright.models.onnx.importer import from_onnx
from tilewright.models.onnx.inputs import open_batch
from tilewright.models.onnx.load import load as load_proto
from tilewright.models.zoo import NETWORKS, get_network, unknown_network


def check(name_or_path: str | os.PathLike[str]) -> None:
    """Raises ModelError for a name that is no network and a file that is not there."""
    text = os.fspath(name_or_path)
    if text in NETWORKS or Path(text).is_file():
        return
    if text.endswith(".onnx") or os.sep in text:
        raise ModelError(
            f"network {text!r}", "there is no such file", "Give the path of an .onnx file."
        )
    raise unknown_network(text)


def load(
    name_or_path: str | os.PathLike[str], shapes: Mapping[str, Any] | None = None
) -> tuple[IRModule, dict[str, Array]]:
    """The network called so, or in the .onnx file there, with its weights.

    shapes: of inputs of the file, by name
    Raises ModelError for an unknown name and for a file that is missing or damaged.
    """
    text = os.fspath(name_or_path)
    check(text)
    if text not in NETWORKS:
        return from_onnx(text, shapes)
    _refuse_shapes(text, shapes)
    return get_network(text)


def _refuse_shapes(name: str, shapes: Mapping[str, Any] | None) -> None:
    if shapes:
        raise ModelError(
            f"network {name!r}", "its shapes are fixed, only those of an .onnx file can be given",
            "Leave them out.",
        )  # fmt: skip


def load_sizes(
    name_or_path: str | os.PathLike[str],
    batch: Sequence[int] = (),
    shapes: Mapping[str, Any] | None = None,
) -> tuple[list[IRModule], dict[str, Array]]:
    """The network for each batch size and for each number that an open extent may be.

    batch:  none: as it is
    shapes: as for `load`; a list stands for several numbers of an extent that has a name
    """
    given = dict(shapes or {})
    several = {name: numbers for name, numbers in given.items() if isinstance(numbers, list)}
    made: list[tuple[IRModule, dict[str, Array]]] = []
    for numbers in itertools.product(*several.values()):
        chosen = {**given, **dict(zip(several, numbers, strict=True))}
        if batch:
            mods, params = load_batches(name_or_path, batch, chosen)
            made += ((mod, params) for mod in mods)
        else:
            made.append(load(name_or_path, chosen))
    return _sharing(made)


def load_batches(
    name_or_path: str | os.PathLike[str],
    sizes: Sequence[int],
    shapes: Mapping[str, Any] | None = None,
) -> tuple[list[IRModule], dict[str, Array]]:
    """`load` for each batch size: modules for `relay.build`, and the weights that they share.

    Where an .onnx file leaves the first extents of its inputs open, they are `sizes`; otherwise the
    network is made again for them.  Raises ModelError as `load` does, and where that cannot be.
    """
    text = os.fspath(name_or_path)
    check(text)
    if text in NETWORKS:
        _refuse_shapes(text, shapes)
        return _sharing([get_network(text, batch_size=size) for size in sizes])
    proto = load_proto(text, Limits())
    if names := open_batch(proto):
        return _sharing([
            from_onnx(proto, {**(shapes or {}), **dict.fromkeys(names, size)}) for size in sizes
        ])  # fmt: skip
    mod, params = from_onnx(proto, shapes)
    bound = tuple(params)
    return [IRModule.from_expr(with_batch(mod["main"], size, bound)) for size in sizes], params


def _sharing(
    made: Sequence[tuple[IRModule, dict[str, Array]]],
) -> tuple[list[IRModule], dict[str, Array]]:
    """One network for several shapes, with the weights of the first."""
    weights = made[0][1]
    return [with_weights(mod, own, weights) for mod, own in made], weights
