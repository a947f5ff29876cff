"""`tvmc.run`: a package on a device, here or of a farm.

In: a `TVMCPackage`, inputs.  Out: a `TVMCResult`.
Read next: `runtime/network/graph_executor.py`, `farm/network_there.py`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tilewright.base.doors import door
from tilewright.base.dtype import DType
from tilewright.base.errors import ModelError
from tilewright.base.terminal import say
from tilewright.farm.address import Devices
from tilewright.farm.network_there import network_there
from tilewright.runtime.device import device as device_of
from tilewright.runtime.network.archives import FILLS, complete, filled
from tilewright.runtime.network.graph_executor import GraphModule
from tilewright.targets.target import Target
from tilewright_tvm.tvmc.common import devices_of
from tilewright_tvm.tvmc.model import TVMCPackage, TVMCResult


@door(ModelError)
def generate_tensor_data(shape: Sequence[int], dtype: str, fill_mode: str) -> Any:
    """An array: "random" (from the standard normal distribution, of integers zeros), "zeros" or
    "ones".  Raises ModelError for another mode."""
    if fill_mode not in FILLS:
        raise ModelError(
            f"fill_mode={fill_mode!r}", "there is no such mode", f"Use {', '.join(FILLS)}."
        )
    try:
        return filled(shape, str(DType(dtype)), fill_mode)
    except (ValueError, TypeError, OverflowError, MemoryError) as error:
        raise ModelError(
            f"generate_tensor_data({shape!r}, {dtype!r})", f"there is no such array ({error})",
            'Example: generate_tensor_data((1, 3), "float32", "ones").',
        ) from None  # fmt: skip


@door(ModelError)
def run_module(
    tvmc_package: TVMCPackage, device: str | None = None, hostname: str | None = None,
    port: int | None = None, rpc_key: str | None = None, inputs: Mapping[str, Any] | None = None,
    fill_mode: str = "random", benchmark: bool = True, repeat: int = 10, number: int = 10,
    profile: bool = False, end_to_end: bool = False,
) -> TVMCResult:  # fmt: skip
    """Run a network, and time it.

    device:    "cpu", "cuda" or "opencl" ("cl"); default: the kind that it was compiled for
    hostname, port, rpc_key: a tracker and the key of its devices, to run it there
    inputs:    by name; those that are missing are made as `fill_mode` says, see
               `generate_tensor_data`
    benchmark: whether it is timed: `repeat` times the mean of `number` runs
    profile:   print what each kernel takes
    end_to_end: times count the ways of inputs and outputs from and to host memory
    Raises ModelError for the name of no input, DeviceError without the device.
    """
    if fill_mode not in FILLS:
        generate_tensor_data((), "float32", fill_mode)
    kind = str(Target(tvmc_package.library.target).kind)
    name = {"cl": "opencl"}.get(device or kind, device or kind)
    farm = devices_of(hostname, port, rpc_key)
    given = complete(inputs or {}, tvmc_package.library.plan.inputs, fill_mode, "tvmc.run(inputs=)")
    with _opened(tvmc_package, name, farm) as (module, dev):
        module.run(**given)
        found = [module.get_output(k).numpy() for k in range(module.get_num_outputs())]
        times = None
        if benchmark:
            times = module.benchmark(dev, repeat=repeat, number=number, end_to_end=end_to_end)
        if profile:
            say(str(module.profile(number=number)))
    return TVMCResult({f"output_{k}": value for k, value in enumerate(found)}, times)


@contextmanager
def _opened(package: TVMCPackage, kind: str, farm: Devices | None) -> Iterator[Any]:
    if farm is not None:
        with network_there(farm, Path(package.package_path), kind) as opened:
            yield opened
        return
    dev = device_of(kind)
    yield GraphModule(package.library["default"](dev)), dev
