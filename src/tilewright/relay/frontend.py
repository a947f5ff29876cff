"""Networks from other programs, under TVM's name `relay.frontend`.

In: model files.  Out: `(mod, params)`.  Read next: `onnx.py`.
"""

from typing import Any

from tilewright.base.doors import open_doors
from tilewright.base.errors import ModelError, absent
from tilewright.relay.exchange.limits import Limits
from tilewright.relay.exchange.onnx.importer import from_onnx

__all__ = ["Limits", "from_onnx"]
open_doors(globals(), ["from_onnx"], ModelError)

_ELSEWHERE = {
    f"from_{name}": "Export the model to ONNX and use relay.frontend.from_onnx."
    for name in (
        "caffe", "caffe2", "coreml", "darknet", "keras", "mxnet", "paddle", "pytorch",
        "tensorflow", "tflite",
    )
}  # fmt: skip


def __getattr__(name: str) -> Any:
    raise absent("relay.frontend", name, _ELSEWHERE)
