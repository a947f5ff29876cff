"""The CUDA driver API of cuda-bindings: loaded once, its failures as errors.

Read next: `cuda.py`.
"""

from __future__ import annotations

from typing import Any

from tilewright.base.concurrency import importing, once
from tilewright.base.errors import DeviceError, TargetError
from tilewright.base.extras import install
from tilewright.runtime.drivers import ForkGuard

# After these every later call of the process fails the same way; the context cannot be repaired.
_FATAL = (
    "CUDA_ERROR_ILLEGAL_ADDRESS", "CUDA_ERROR_LAUNCH_TIMEOUT", "CUDA_ERROR_ASSERT",
    "CUDA_ERROR_HARDWARE_STACK_ERROR", "CUDA_ERROR_ILLEGAL_INSTRUCTION",
    "CUDA_ERROR_MISALIGNED_ADDRESS", "CUDA_ERROR_INVALID_ADDRESS_SPACE", "CUDA_ERROR_INVALID_PC",
    "CUDA_ERROR_LAUNCH_FAILED", "CUDA_ERROR_ECC_UNCORRECTABLE", "CUDA_ERROR_NVLINK_UNCORRECTABLE",
    "CUDA_ERROR_CONTEXT_IS_DESTROYED", "CUDA_ERROR_EXTERNAL_DEVICE", "CUDA_ERROR_CONTAINED",
    "CUDA_ERROR_TENSOR_MEMORY_LEAK", "CUDA_ERROR_UNKNOWN", "CUDA_ERROR_DEVICE_UNAVAILABLE",
)  # fmt: skip

_WAYS_OUT = {
    "CUDA_ERROR_NO_BINARY_FOR_GPU": "Compile for the architecture of this device (Device.target).",
    "CUDA_ERROR_INVALID_IMAGE": "Compile it again with driver.compile_source.",
    "CUDA_ERROR_OUT_OF_MEMORY": "Free arrays, or use smaller shapes.",
    "CUDA_ERROR_NOT_INITIALIZED": "CUDA does not survive fork: start the process with spawn.",
    "CUDA_ERROR_SYSTEM_DRIVER_MISMATCH": "Install a driver that matches the kernel module; reboot.",
    "CUDA_ERROR_NO_DEVICE": "Check nvidia-smi and CUDA_VISIBLE_DEVICES.",
    "CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES": "Use fewer threads or fewer registers per thread.",
    "CUDA_ERROR_UNSUPPORTED_PTX_VERSION": "Update the driver, or use an older NVRTC.",
}

fork = ForkGuard("CUDA")


def cu() -> Any:
    """The driver API, initialised.  Raises TargetError, and DeviceError in a forked child."""
    fork.check()
    return _load()


@once
def _load() -> Any:
    try:
        with importing:
            from cuda.bindings import driver
    except ImportError as error:
        raise TargetError(
            "cuda(0)", f"cuda-bindings is not installed ({error})",
            f"Try {install('cuda13')}; for drivers before 580 {install('cuda12')}.",
        ) from None  # fmt: skip
    try:
        (status,) = driver.cuInit(0)
    except RuntimeError as error:  # the bindings look for libcuda at the first call
        reason = str(error).strip().splitlines()[0]
        raise TargetError(
            "cuda(0)", f"NVIDIA's driver library cannot be loaded ({reason})",
            "Install the NVIDIA driver; compiling for cuda works without it.",
        ) from None  # fmt: skip
    if status != driver.CUresult.CUDA_SUCCESS:
        raise TargetError(
            "cuda(0)", f"the NVIDIA driver failed to start ({status.name})",
            _WAYS_OUT.get(status.name, "Check that nvidia-smi works."),
        )  # fmt: skip
    fork.watch()
    return driver


def call(place: str, result: tuple[Any, ...]) -> Any:
    """The value of a driver call `(status, value...)`.  Raises DeviceError, fatal when it is."""
    status = result[0]
    if status == 0:
        return result[1] if len(result) == 2 else result[1:]
    api = cu()
    _, text = api.cuGetErrorString(status)
    error = DeviceError(
        place, f"{status.name} ({(text or b'').decode()})", _WAYS_OUT.get(status.name, "")
    )
    error.fatal = status.name in _FATAL
    raise error
