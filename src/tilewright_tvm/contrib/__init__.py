"""Names of TVM's `contrib` that tutorials import.

In: nothing.  Out: `contrib.cblas`, `contrib.cc`, `contrib.clang`, `contrib.cudnn`,
`contrib.debugger`, `contrib.download`, `contrib.graph_executor`, `contrib.ndk`, `contrib.nvcc`,
`contrib.pickle_memoize`, `contrib.random`, `contrib.sparse`, `contrib.utils`.
Read next: `runtime/network/graph_executor.py`.
"""

from importlib import import_module
from typing import Any

from tilewright_tvm.elsewhere import find

_ELSEWHERE = {
    "cublas": "Libraries are not called from kernels; topi.nn.matmul is tuned instead.",
    "cutlass": "Libraries are not called from kernels; topi.nn is tuned instead.",
    "dnnl": "Use contrib.cblas, which calls numpy's library, or topi.nn.matmul, which is tuned.",
    "hexagon": "Hexagon is no target; the targets are llvm, cuda and opencl.",
    "mkl": "Use contrib.cblas, which calls numpy's library, or topi.nn.matmul, which is tuned.",
    "pipeline_executor": "Use a GraphModule for each part, in threads of their own.",
    "pipeline_executor_build": "Use a GraphModule for each part, in threads of their own.",
    "relay_viz": "print(mod) shows the network; relay.to_onnx writes it for a viewer.",
    "tedd": "print(s) shows the loops, print(lower(s, args)) what they become.",
    "spirv": "Vulkan is not a target; try opencl().",
    "torch": "Import with relay.frontend.from_pytorch, and run a GraphModule on a.numpy().",
    "tar": "Use Library.export_library: a .tar is written without it.",
}

_FILES = (
    "cblas", "cc", "clang", "cudnn", "debugger", "download", "graph_executor", "ndk", "nvcc",
    "pickle_memoize", "random", "sparse", "utils",
)  # fmt: skip


def __getattr__(name: str) -> Any:
    if name in _FILES:
        return import_module(f"tilewright_tvm.contrib.{name}")
    return find(__name__, name, _ELSEWHERE)
