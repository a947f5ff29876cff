"""`runtime.vm.VirtualMachine`, where the tutorials look for it.

In: what `relay.vm.compile` gave, a device.  Out: a machine that runs it.
Read next: `virtual_machine.py`.
"""

from typing import Any

from tilewright.base.errors import absent
from tilewright_tvm.runtime.virtual_machine import VirtualMachine

__all__ = ["VirtualMachine"]

_ELSEWHERE = {"Executable": "Save with exe.export_library(path), load with runtime.load_module."}


def __getattr__(name: str) -> Any:
    raise absent("runtime.vm", name, _ELSEWHERE)
