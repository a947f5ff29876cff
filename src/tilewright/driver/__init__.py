"""Where text meets compilers and devices: `compile_source`, the kernel cache, `diagnose`.

In: `Source` from `codegen`.  Out: `Artifact` for `runtime`.  Read next: `compilers.py`.
"""

from typing import Any

from tilewright.base.errors import absent
from tilewright.driver.compilers import compile_source

__all__ = ["compile_source"]

# A name of TVM that one may look for here.
_ELSEWHERE = {
    "tvmc": "The command is `tilewright`; in Python use relay.frontend, relay.build and autotvm."
}


def __getattr__(name: str) -> Any:
    raise absent("driver", name, _ELSEWHERE)
