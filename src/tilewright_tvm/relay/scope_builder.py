"""`relay.scope_builder`, where TVM has `ScopeBuilder`.

Read next: `graph/scope.py`.
"""

from tilewright.graph.scope import ScopeBuilder

__all__ = ["ScopeBuilder"]
