"""Arrays on devices under the name TVM users know: `nd.array(x, device)`, `nd.empty(shape)`."""

from typing import Any

from tilewright.runtime.device import cpu, cuda, device, opencl
from tilewright.runtime.ndarray import NDArray, array, empty, from_dlpack
from tilewright_tvm.elsewhere import find

gpu, cl = cuda, opencl

__all__ = [
    "NDArray", "array", "cl", "cpu", "cuda", "device", "empty", "from_dlpack", "gpu", "opencl",
]  # fmt: skip


def __getattr__(name: str) -> Any:
    return find(__name__, name, {})
