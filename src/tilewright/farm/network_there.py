"""A network that was built here, on a device of a farm.

In: the file of a library, devices.  Out: a graph that runs there.  Read next: `session.py`.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tilewright.farm.address import Devices
from tilewright.farm.session import request_remote
from tilewright.runtime.network.graph_executor import GraphModule


@contextmanager
def network_there(
    farm: Devices, path: Path, kind: str, timeout: float = 600
) -> Iterator[tuple[GraphModule, Any]]:
    """The graph of the library in the file `path`, uploaded, and the device it runs on.

    timeout: seconds to wait for a free device, and for one call
    Raises DeviceError without a free device.
    """
    with request_remote(farm.key, farm.host, farm.port, timeout=timeout) as remote:
        remote.upload(path)
        device = remote.device(kind)
        loaded: Any = remote.load_module(path.name)
        yield GraphModule(loaded["default"](device)), device
