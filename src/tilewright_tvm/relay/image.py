"""TVM's `relay.image`: the operators of ours."""

from typing import Any

from tilewright.base.doors import open_doors
from tilewright.base.errors import ModelError, absent
from tilewright.graph.functions import image
from tilewright.graph.functions.image import *  # noqa: F403
from tilewright_tvm.relay.functional.later import defer
from tilewright_tvm.relay.regions import crop_and_resize, dilation2d
from tilewright_tvm.relay.resized import resize1d, resize2d, resize3d

__all__ = ["crop_and_resize", "dilation2d"]
open_doors(globals(), __all__, ModelError)
__all__ += ["resize1d", "resize2d", "resize3d", *image.__all__]
defer(globals(), __all__)

__path__: list[str] = []  # so that imports of other names say what to use, too


def __getattr__(name: str) -> Any:
    raise absent("relay.image", name, {})
