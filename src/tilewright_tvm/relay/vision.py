"""TVM's `relay.vision`: the operators of ours, and what to use for others."""

from typing import Any

from tilewright.base.errors import absent
from tilewright.graph.functions.vision import *  # noqa: F403
from tilewright.graph.functions.vision import __all__ as __all__
from tilewright_tvm.relay.functional.later import defer

defer(globals(), __all__)

_NMS = "Use relay.vision.non_max_suppression."
_ELSEWHERE = {"nms": _NMS, "regular_non_max_suppression": _NMS}

__path__: list[str] = []  # so that imports of other names say what to use, too


def __getattr__(name: str) -> Any:
    raise absent("relay.vision", name, _ELSEWHERE)
