"""Networks that were built here, on a device of a farm.

In: libraries or their files, devices.  Out: graphs that run there.  Read next: `session.py`.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import Any

from tilewright.farm.address import Devices
from tilewright.farm.session import request_remote
from tilewright.runtime.network.graph_executor import GraphModule
from tilewright.runtime.network.library import Library


@contextmanager
def networks_there(
    farm: Devices, kind: str, timeout: float = 600
) -> Iterator[Callable[[Library | Path], tuple[GraphModule, Any]]]:
    """A function that brings a library, or its file, to one device, all of them to the same: it
    gives the graph, and the device.

    timeout: seconds to wait for a free device, and for one call
    Raises DeviceError without a free device.
    """
    with (
        request_remote(farm.key, farm.host, farm.port, timeout=timeout) as remote,
        tempfile.TemporaryDirectory() as folder,
    ):
        names = (f"network{number}.tar" for number in count())

        def load(network: Library | Path) -> tuple[GraphModule, Any]:
            path = network if isinstance(network, Path) else Path(folder, next(names))
            if isinstance(network, Library):
                network.export_library(path)
            remote.upload(path)
            device = remote.device(kind)
            loaded: Any = remote.load_module(path.name)
            return GraphModule(loaded["default"](device)), device

        yield load


@contextmanager
def network_there(
    farm: Devices, path: Path, kind: str, timeout: float = 600
) -> Iterator[tuple[GraphModule, Any]]:
    """The graph of the library in the file `path`, and the device it runs on; see
    `networks_there`."""
    with networks_there(farm, kind, timeout) as load:
        yield load(path)
