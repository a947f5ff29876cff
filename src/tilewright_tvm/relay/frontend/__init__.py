"""Networks from other programs, under TVM's name `relay.frontend`.

In: model files, modules of PyTorch.  Out: `(mod, params)`.
Read next: `models/onnx/importer.py`, `models/torch/export.py`.
"""

from typing import Any

from tilewright.base.doors import open_doors
from tilewright.base.errors import ModelError
from tilewright.models.limits import Limits
from tilewright.models.onnx.importer import from_onnx
from tilewright.models.torch.export import from_exported_program
from tilewright_tvm.elsewhere import find
from tilewright_tvm.relay.frontend.modules import from_pytorch

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
