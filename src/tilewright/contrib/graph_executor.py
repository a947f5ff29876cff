"""`contrib.graph_executor.GraphModule`, where the tutorials look for it.

In: `lib["default"](dev)`.  Out: a module that runs.  Read next: `relay/graph_executor.py`.
"""

from tilewright.relay.graph_executor import GraphModule
from tilewright.runtime.timing import BenchmarkResult

__all__ = ["BenchmarkResult", "GraphModule"]
