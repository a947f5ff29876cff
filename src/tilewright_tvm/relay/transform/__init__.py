"""`relay.transform`: passes under TVM's names.

In: options.  Out: objects that map a module to a module.  Read next: `transform.py`.
"""

from typing import Any

from tilewright_tvm.relay.transform import transform as _passes
from tilewright_tvm.relay.transform.transform import *  # noqa: F403
from tilewright_tvm.relay.transform.transform import _ELSEWHERE as _ELSEWHERE
from tilewright_tvm.relay.transform.transform import __all__ as __all__


def __getattr__(name: str) -> Any:
    return getattr(_passes, name)
