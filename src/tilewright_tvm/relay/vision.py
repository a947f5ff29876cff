"""TVM's `relay.vision`: the operators of ours, and what to use for others."""

from typing import Any

from tilewright.base.doors import open_doors
from tilewright.base.errors import ModelError, absent
from tilewright.graph.functions import vision
from tilewright.graph.functions.vision import *  # noqa: F403
from tilewright_tvm.relay.detection import (
    all_class_non_max_suppression,
    get_valid_counts,
    multibox_detection,
    multibox_transform_loc,
    non_max_suppression,
    proposal,
)
from tilewright_tvm.relay.functional.later import defer
from tilewright_tvm.relay.regions import multibox_prior, yolo_reorg

__all__ = [
    "all_class_non_max_suppression", "get_valid_counts", "multibox_detection",
    "multibox_prior", "multibox_transform_loc", "non_max_suppression", "proposal", "yolo_reorg",
]  # fmt: skip
open_doors(globals(), __all__, ModelError)
__all__ += vision.__all__
defer(globals(), __all__)

_NMS = "Use relay.vision.non_max_suppression."
_ELSEWHERE = {"nms": _NMS, "regular_non_max_suppression": _NMS}

__path__: list[str] = []  # so that imports of other names say what to use, too


def __getattr__(name: str) -> Any:
    raise absent("relay.vision", name, _ELSEWHERE)
