"""Networks from other programs, under TVM's name `relay.frontend`.

In: model files, modules of PyTorch.  Out: `(mod, params)`.
Read next: `models/onnx/importer.py`, `models/torch/export.py`.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from tilewright.base.doors import open_doors
from tilewright.base.errors import ModelError
from tilewright.graph import expr as nodes
from tilewright.models.limits import Limits
from tilewright.models.onnx import importer
from tilewright.models.torch import export
from tilewright_tvm.elsewhere import find
from tilewright_tvm.relay.frontend import modules
from tilewright_tvm.relay.functional.definitions import IRModule

if TYPE_CHECKING:
    from onnx import ModelProto

Imported = tuple[nodes.IRModule, dict[str, Any]]


def _for_tvm(load: Callable[..., Any]) -> Callable[..., Imported]:
    """The same, whose module may have data types, too."""

    @functools.wraps(load)
    def loaded(*args: Any, **kwargs: Any) -> Imported:
        mod, params = load(*args, **kwargs)
        if type(mod) is nodes.IRModule:  # one with open extents is made for numbers later
            mod = IRModule(mod.functions)
        return mod, params

    return loaded


def from_onnx(
    model: ModelProto | bytes | str | os.PathLike[str],
    shape: Mapping[str, Any] | None = None,
    dtype: str | Mapping[str, str] = "float32",
    opset: int | None = None,
    freeze_params: bool = False,
    convert_config: Mapping[str, bool] | None = None,
    *,
    params: Mapping[str, Any] | None = None,
    limits: Limits | None = None,
) -> Imported:
    """The network in `model` and its weights, as `tilewright.models.onnx.importer.from_onnx`.

    dtype: element types of inputs by name; one name for all is accepted and has no effect
    convert_config: "use_nt_batch_matmul" says how TVM writes products down, which here is decided
            when the network is built
    """
    if not isinstance(dtype, (str, Mapping)):
        raise ModelError(
            f"from_onnx(dtype={dtype!r})", "it is neither one name nor names by input",
            'Leave it out, or give {"input": "float32"}.',
        )  # fmt: skip
    for key, value in dict(convert_config or {}).items():
        if key != "use_nt_batch_matmul" or not isinstance(value, bool):
            raise ModelError(
                f"from_onnx(convert_config={{{key!r}: {value!r}}})", "there is no such choice",
                'Leave it out, or give {"use_nt_batch_matmul": True}.',
            )  # fmt: skip
    by_name = None if isinstance(dtype, str) else dtype
    load = _for_tvm(importer.from_onnx)
    return load(model, shape, by_name, opset, freeze_params, params=params, limits=limits)


from_pytorch = _for_tvm(modules.from_pytorch)
from_exported_program = _for_tvm(export.from_exported_program)

__all__ = ["Limits", "from_exported_program", "from_onnx", "from_pytorch"]
open_doors(globals(), ["from_exported_program", "from_onnx", "from_pytorch"], ModelError)

_ELSEWHERE = {
    f"from_{name}": "Export the model to ONNX and use relay.frontend.from_onnx."
    for name in (
        "caffe", "caffe2", "coreml", "darknet", "keras", "mxnet", "oneflow", "paddle",
        "tensorflow", "tflite",
    )
}  # fmt: skip


def __getattr__(name: str) -> Any:
    return find(__name__, name, _ELSEWHERE)
