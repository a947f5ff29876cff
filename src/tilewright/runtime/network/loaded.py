"""`LoadedLibrary`: code and weights of a compiled network on a device.

In: a `Library`, a device.  Out: kernels and constants there, which all that run the network share.
Read next: `graph_executor.py`, `instance.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from tilewright.base.artifact import Artifact
from tilewright.runtime.device import Device
from tilewright.runtime.drivers import Kernel
from tilewright.runtime.ndarray import NDArray
from tilewright.runtime.network import weights
from tilewright.targets.kind import resolve

if TYPE_CHECKING:
    from tilewright.runtime.network.library import Library


class LoadedLibrary:
    """Code and weights of a library on a device; `GraphModule` runs it."""

    door_words = ("a library on a device", 'relay.build(mod)["default"](device) gives one.')

    def __init__(self, library: Library, dev: Device) -> None:
        self.library, self.device = library, dev
        load: Callable[[Artifact], tuple[Kernel, ...]] = dev.driver.load
        if library.shared is not None and (loader := dev.device_kind.loader):
            load = resolve(loader)(library.shared, library.kernels).load
        self.kernels = tuple(load(artifact) for artifact in library.kernels)
        given = library.constants
        self.constants: tuple[NDArray, ...] = tuple(weights.on_device(c, dev) for c in given)
        library.constants = tuple(map(weights.host_view, self.constants, given))

    def __repr__(self) -> str:
        return f"{self.library!r} on {self.device}"
