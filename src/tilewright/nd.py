"""Arrays on devices under the name TVM users know: `nd.array(x, device)`, `nd.empty(shape)`."""

from tilewright.runtime.ndarray import NDArray, array, empty, from_dlpack

__all__ = ["NDArray", "array", "empty", "from_dlpack"]
