"""The systems that this package does not run on, told where it is imported.

In: `sys.platform`.  Out: nothing, or a TargetError.  Imports nothing where all is well.
"""

import sys

_OTHERS = {
    "win32": ("Windows", "Use WSL2, where CPUs and NVIDIA GPUs are as on Linux."),
    "cygwin": ("Cygwin", "Use WSL2, where CPUs and NVIDIA GPUs are as on Linux."),
    "darwin": ("macOS", "Use a Linux machine, or a virtual one or container on this one."),
}


if sys.platform in _OTHERS:
    from tilewright.base.errors import TargetError

    name, way_out = _OTHERS[sys.platform]
    reason = f"it is made for Linux; {name} lacks what its worker processes need"
    raise TargetError("import tilewright", reason, way_out)
