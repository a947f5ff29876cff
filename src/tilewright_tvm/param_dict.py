"""`save_param_dict` and `load_param_dict` as TVM has them.

In: arrays by name, or bytes.  Out: bytes that can be changed; arrays of numpy that know TVM's
methods, too.  Read next: `runtime/network/param_dict.py` of the compiler.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from tilewright.base.doors import door
from tilewright.base.errors import DeviceError
from tilewright.runtime.network import param_dict

__all__ = ["load_param_dict", "save_param_dict"]


class Parameter(np.ndarray):
    """An array of numpy that scripts may ask for its values as if it were on a device."""

    def numpy(self) -> npt.NDArray[Any]:
        """The values."""
        return np.asarray(self)

    asnumpy = numpy


@door(DeviceError, "save_param_dict")
def save_param_dict(params: Mapping[str, Any]) -> bytearray:
    """`params`, numpy arrays or NDArrays by name, as bytes.  Raises DeviceError for others."""
    return bytearray(param_dict.save_param_dict(params))


@door(DeviceError, "load_param_dict")
def load_param_dict(param_bytes: bytes | bytearray) -> dict[str, Parameter]:
    """What `save_param_dict` gave.  Raises DeviceError for anything else."""
    found = param_dict.load_param_dict(bytes(param_bytes))
    return {name: array.view(Parameter) for name, array in found.items()}
