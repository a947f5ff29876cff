"""An ONNX model from wherever it is: a file, bytes, a message.

In: what the user gave.  Out: a `ModelProto` with all its weights, of versions that are known.
Read next: `external.py`, `importer.py`.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tilewright.base.errors import ModelError
from tilewright.base.extras import install
from tilewright.models.limits import Limits
from tilewright.models.onnx.external import read_external

if TYPE_CHECKING:
    from onnx import ModelProto

INSTALL = f"Try {install('onnx')}."
NEWER = "Convert the model, or install a newer onnx."


def load(model: Any, limits: Limits) -> ModelProto:
    """Raises ModelError for what is no model, and for one whose external weights cannot be read."""
    try:
        import onnx
    except ImportError:
        raise ModelError("from_onnx", "the package onnx is not installed", INSTALL) from None
    if isinstance(model, onnx.ModelProto):
        proto, place = model, "from_onnx"
    elif isinstance(model, bytes):
        proto, place = _parse(model, "from_onnx(bytes)"), "from_onnx(bytes)"
    elif not isinstance(model, (str, os.PathLike)):
        raise ModelError(
            f"from_onnx({type(model).__name__})", "it is no ONNX model",
            "Give the path of an .onnx file, its bytes, or a ModelProto.",
        )  # fmt: skip
    else:
        path = Path(model)
        place = f"from_onnx({str(path)!r})"
        proto = _parse(_content(path, place), place)
        read_external(proto, path.parent, place, limits)
    if not proto.HasField("graph") or not proto.graph.output:
        raise ModelError(place, "it holds no graph", "The file may be truncated; export it again.")
    if proto.ir_version > onnx.IR_VERSION:
        raise ModelError(
            place, f"its IR version is {proto.ir_version}, the onnx that is installed knows up to "
            f"{onnx.IR_VERSION}", NEWER,
        )  # fmt: skip
    return proto


def _content(path: Path, place: str) -> bytes:
    if not path.is_file():
        what = "it is a directory" if path.is_dir() else "there is no such file"
        raise ModelError(place, what, "Give the path of an .onnx file.")
    try:
        return path.read_bytes()
    except OSError as error:
        raise ModelError(place, f"it cannot be read ({error.strerror})") from None


def _parse(data: bytes, place: str) -> ModelProto:
    import onnx
    from google.protobuf.message import DecodeError

    if not data:
        raise ModelError(place, "it is empty", "Export or copy it again.")
    try:
        return onnx.load_model_from_string(data)
    except DecodeError:
        raise ModelError(
            place,
            f"its {len(data)} bytes are no ONNX model",
            "It may be truncated; export or copy it again.",
        ) from None


def opsets(imports: Iterable[Any], own: int | None = None) -> dict[str, int]:
    """The versions of operators that a model or a function asks for, by domain.

    own: what to take for ONNX's domain, instead of what the model says
    Raises ModelError for a version of ONNX that is not known.
    """
    from onnx import defs

    found: dict[str, int] = {}
    for item in imports:
        domain = "" if item.domain == "ai.onnx" else item.domain
        found[domain] = max(item.version, found.get(domain, item.version))
    found[""] = version = found.get("", 1) if own is None else own
    if not 1 <= version <= defs.onnx_opset_version():
        raise ModelError(
            "from_onnx", f"its opset is {version}, the onnx that is installed knows 1 to "
            f"{defs.onnx_opset_version()}", NEWER,
        )  # fmt: skip
    return found
