"""`relay.vm`: networks for `runtime.vm.VirtualMachine`.

In: a module.  Out: an `Executable`.  Read next: `compile/vm.py`.
"""

from typing import Any

from tilewright.base.doors import open_doors
from tilewright.base.errors import ModelError, absent
from tilewright.relay.compile.vm import Executable, compile

__all__ = ["Executable", "compile"]
open_doors(globals(), __all__, ModelError)

_ELSEWHERE = {
    "VMCompiler": "Use relay.vm.compile.",
    "VMExecutor": 'Use relay.create_executor("vm").',
}


def __getattr__(name: str) -> Any:
    raise absent("relay.vm", name, _ELSEWHERE)
