"""Networks from other programs, under TVM's name `relay.frontend`.

In: model files, modules of PyTorch.  Out: `(mod, params)`.
Read next: `models/onnx/importer.py`, `models/torch/export.py`.
"""

import functools
from collections.abc import Callable
from typing import Any

from tilewright.base.doors import open_doors
from tilewright.base.errors import ModelError
from tilewright.graph import expr as nodes
from tilewright.models.limits import Limits
from tilewright.models.onnx import importer
from tilewright.models.torch import export
from tilewright_tvm.elsewhere import find
from tilewright_tvm.relay.frontend import modules
from tilewright_tvm.relay.functional.definitions import IRModule

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


from_onnx = _for_tvm(importer.from_onnx)
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
