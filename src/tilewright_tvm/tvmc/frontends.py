"""Model files of other programs, by the end of their names or by the name of their format.

In: a path.  Out: a `TVMCModel`.  Read next: `../relay/frontend/__init__.py`, `model.py`.
"""

from __future__ import annotations

import importlib
import os
from abc import ABC, abstractmethod
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tilewright.base.doors import door
from tilewright.base.errors import ModelError
from tilewright.base.extras import install
from tilewright.graph.expr import IRModule
from tilewright.models.networks import read_torch
from tilewright.models.onnx.importer import from_onnx
from tilewright.models.torch.export import from_exported_program
from tilewright_tvm.relay.frontend.modules import from_pytorch
from tilewright_tvm.tvmc.common import TVMCImportError
from tilewright_tvm.tvmc.model import TVMCModel

Workload = tuple[IRModule, dict[str, Any]]


class Frontend(ABC):
    """A format: its name, the ends of its files' names, and how one is read."""

    @staticmethod
    @abstractmethod
    def name() -> str: ...

    @staticmethod
    @abstractmethod
    def suffixes() -> list[str]:
        """Without the dot."""

    @abstractmethod
    def load(
        self, path: str | os.PathLike[str], shape_dict: Mapping[str, Any] | None = None, **more: Any
    ) -> Workload:
        """The network and its weights.  Raises ModelError, TVMCImportError without a package."""


class OnnxFrontend(Frontend):
    """more: `opset=`, `freeze_params=`, `dtype=`, `limits=` of relay.frontend.from_onnx."""

    @staticmethod
    def name() -> str:
        return "onnx"

    @staticmethod
    def suffixes() -> list[str]:
        return ["onnx"]

    def load(
        self, path: str | os.PathLike[str], shape_dict: Mapping[str, Any] | None = None, **more: Any
    ) -> Workload:
        _require("onnx")
        return from_onnx(path, shape_dict, **more)


class PyTorchFrontend(Frontend):
    """What torch.jit.save wrote, with shape_dict; what torch.export.save wrote, as `.pt2`."""

    @staticmethod
    def name() -> str:
        return "pytorch"

    @staticmethod
    def suffixes() -> list[str]:
        return ["pth", "pt", "pt2", "zip"]

    def load(
        self, path: str | os.PathLike[str], shape_dict: Mapping[str, Any] | None = None, **more: Any
    ) -> Workload:
        _require("torch")
        place = f"load({os.fspath(path)!r})"
        whole = Path(path).suffix == ".pt2"
        if whole and shape_dict:
            raise ModelError(place, "an exported program has its shapes", "Leave out shape_dict.")
        if not whole and not shape_dict:
            raise ModelError(
                place, "a scripted module does not tell the shapes of its inputs",
                'Give them: shape_dict={"input": [1, 3, 224, 224]}.',
            )  # fmt: skip
        read = read_torch(path, place)
        if whole:
            return from_exported_program(read, **more)
        return from_pytorch(read, [(n, tuple(s)) for n, s in (shape_dict or {}).items()], **more)


ALL_FRONTENDS = (OnnxFrontend, PyTorchFrontend)
_OTHERS = {  # formats of TVM that are not read, with the ends of their files' names
    "keras": ["h5"],
    "paddle": ["pdmodel"],
    "pb": ["pb"],
    "relay": ["relay"],
    "tflite": ["tflite"],
}
_EXPORT = "Export the model to ONNX; `tvmc.load` reads .onnx, and files of PyTorch."


def get_frontend_names() -> list[str]:
    """What `model_format=` may be."""
    return [each.name() for each in ALL_FRONTENDS]


@door(ModelError)
def get_frontend_by_name(name: str) -> Frontend:
    """Raises ModelError for a format that is not read."""
    for each in ALL_FRONTENDS:
        if each.name() == name:
            return each()
    raise ModelError(
        f"model_format={name!r}",
        "this format is not read" if name in _OTHERS else "there is no such format", _EXPORT,
    )  # fmt: skip


@door(ModelError)
def guess_frontend(path: str | os.PathLike[str]) -> Frontend:
    """By the end of the file's name.  Raises ModelError where it tells no format that is read."""
    suffix = Path(path).suffix.removeprefix(".").lower()
    for each in ALL_FRONTENDS:
        if suffix in each.suffixes():
            return each()
    other = next((name for name, ends in _OTHERS.items() if suffix in ends), None)
    reason = f"models of {other} are not read" if other else "its name tells no format"
    raise ModelError(f"load({os.fspath(path)!r})", reason, f"{_EXPORT}  Or say model_format=.")


@door(ModelError)
def load_model(
    path: str | os.PathLike[str], model_format: str | None = None,
    shape_dict: Mapping[str, Any] | None = None, **kwargs: Any,
) -> TVMCModel:  # fmt: skip
    """The model in the file `path`.

    model_format: "onnx" or "pytorch"; default: by the end of the file's name
    shape_dict:   shapes of inputs by name, where the file leaves them open; of scripted modules of
                  PyTorch for each input
    kwargs:       more for the importer, such as `freeze_params=True` of ONNX
    Raises ModelError for a file that is missing, damaged or of another program.
    """
    known = guess_frontend(path) if model_format is None else get_frontend_by_name(model_format)
    if not Path(path).is_file():
        raise ModelError(f"load({os.fspath(path)!r})", "there is no such file", "Check the path.")
    try:
        mod, params = known.load(path, shape_dict, **kwargs)
    except TypeError as error:
        if not kwargs:
            raise
        raise ModelError(
            f"load({os.fspath(path)!r})", f"the importer does not take this ({error})",
            "See relay.frontend.from_onnx and from_pytorch.",
        ) from None  # fmt: skip
    return TVMCModel(mod, params)


def _require(package: str) -> None:
    try:
        importlib.import_module(package)
    except ImportError:
        raise TVMCImportError(
            "tvmc.load", f"the package {package} is not installed", f"Try {install(package)}."
        ) from None
