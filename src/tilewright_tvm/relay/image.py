"""TVM's `relay.image`: the operators of ours."""

from typing import Any

from tilewright.base.errors import absent
from tilewright.graph.functions.image import *  # noqa: F403
from tilewright.graph.functions.image import __all__ as __all__
from tilewright_tvm.relay.functional.later import defer

defer(globals(), __all__)

__path__: list[str] = []  # so that imports of other names say what to use, too


def __getattr__(name: str) -> Any:
    raise absent("relay.image", name, {})
