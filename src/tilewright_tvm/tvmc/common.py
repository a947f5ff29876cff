"""Errors of `tvmc`, and devices that are somewhere else.

In: what users pass for a tracker.  Out: `Devices`.  Read next: `autotuner.py`.
"""

from __future__ import annotations

from tilewright.base.errors import ModelError, TilewrightError
from tilewright.farm.address import Devices, tracker_address
from tilewright_tvm.tvmc.shape_parser import parse_shape_string

__all__ = ["TVMCException", "TVMCImportError", "devices_of", "parse_shape_string"]

# Whatever is refused on the way, in whichever room.
TVMCException = TilewrightError


class TVMCImportError(ModelError):
    """A package that a model of this kind needs is not installed."""


def devices_of(hostname: str | None, port: int | None, rpc_key: str | None) -> Devices | None:
    """Those of a tracker; None: this machine's.  Raises ModelError where one of them is missing."""
    if hostname is None and rpc_key is None:
        return None
    if hostname is None or rpc_key is None:
        raise ModelError(
            f"hostname={hostname!r}, rpc_key={rpc_key!r}", "devices of a tracker need both",
            "Give the host of the tracker, perhaps port=, and the key of the devices.",
        )  # fmt: skip
    return Devices(rpc_key, *tracker_address(hostname, port))
