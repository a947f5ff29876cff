"""Device kinds and what code is generated for: `DeviceKind`, `DeviceSpec`, `Target`, `Limits`.

Importing it loads no compiler and opens no device.  Read next: `kind.py`, `target.py`.
"""

from tilewright.targets import cuda, llvm, opencl
from tilewright.targets.kind import register

for _kind in (llvm.KIND, cuda.KIND, opencl.KIND):
    register(_kind)
