"""What an optional part of the package needs, and how a user gets it.

In: the name of an extra of `pyproject.toml`.  Out: a command for pip.  It names the dependencies
themselves: no index has this package, and whoever took its name there could hand out anything.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import sys
from importlib.util import find_spec

# As pyproject.toml has them; tests/base/test_extras.py compares.
EXTRAS: dict[str, tuple[str, ...]] = {
    "onnx": ("onnx>=1.17", "onnxruntime>=1.20"),
    "torch": ("torch>=2.6",),
    "decoders": ("safetensors>=0.5", "tokenizers>=0.20"),
    "openvino": ("openvino>=2025.0",),
    "tensorrt": ("tensorrt>=10.0",),
    "peers": ("onnx>=1.17", "onnxruntime>=1.20", "openvino>=2025.0", "torch>=2.6"),
    "cross": ("ziglang>=0.13",),
    "opencl": ("pyopencl>=2025.1",),
    "opencl-cpu": ("pyopencl>=2025.1", "intel-opencl-rt>=2025.0", "intel-cmplr-lib-rt>=2025.0"),
    "cuda13": ("cuda-bindings>=13.0", "nvidia-cuda-nvrtc>=13.0"),
    "cuda12": ("cuda-bindings>=12.8,<13", "nvidia-cuda-nvrtc-cu12>=12.8"),
    "farm": ("distributed>=2025.1", "cryptography>=42"),
    "docs": ("mkdocs>=1.6,<2", "mkdocs-material>=9.6"),
}


def install(extra: str) -> str:
    """The command that installs what an extra needs: `pip install onnx onnxruntime`.

    A version is named only where the newest would not do.
    """
    return installing(*EXTRAS[extra])


def installing(*requirements: str) -> str:
    """The command that installs packages where this Python finds them."""
    needed = (f"'{r}'" if "<" in r else re.split("[<>=]", r)[0] for r in requirements)
    return f"{_pip()} {' '.join(needed)}"


def _pip() -> str:
    """`pip install` where a shell finds the pip of this Python; else the way to it."""
    found = shutil.which("pip")
    if found is not None and os.path.dirname(found) == os.path.dirname(sys.executable):
        return "pip install"
    python = shlex.quote(sys.executable or "python3")
    if find_spec("pip") is None and shutil.which("uv") is not None:
        return f"uv pip install --python {python}"
    return f"{python} -m pip install"
