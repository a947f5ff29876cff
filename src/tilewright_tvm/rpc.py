"""Sessions under the names TVM users know: `rpc.connect_tracker(host, port).request(key)`."""

from typing import Any

from tilewright.farm.session import RemoteSession as RPCSession
from tilewright_tvm.by_name import LocalSession, TrackerSession, connect_tracker
from tilewright_tvm.elsewhere import find

__all__ = ["LocalSession", "RPCSession", "TrackerSession", "connect_tracker"]

__path__: list[str] = []  # so that imports of other names say what to use, too
_TRACKER = "A tracker lends devices: rpc.connect_tracker(host, port).request(key)."
_COMMANDS = "Run `python -m tilewright_tvm.exec.rpc_tracker` and `rpc_server`."
_ELSEWHERE = {
    "PopenSession": "Use rpc.LocalSession.",
    "Server": _COMMANDS,
    "Tracker": _COMMANDS,
    "connect": _TRACKER,
    "server": _COMMANDS,
    "tracker": _COMMANDS,
}


def __getattr__(name: str) -> Any:
    return find(__name__, name, _ELSEWHERE)
