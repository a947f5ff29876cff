"""Networks from other programs, under TVM's name `relay.frontend`.

In: model files.  Out: `(mod, params)`.  Read next: `onnx.py`.
"""

from tilewright.relay.frontend.onnx import from_onnx

__all__ = ["from_onnx"]
