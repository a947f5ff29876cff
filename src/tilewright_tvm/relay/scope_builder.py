"""`relay.scope_builder`, where TVM has `ScopeBuilder`.

Read next: `graph/scope.py`.
"""

from tilewright_tvm.relay.functional.scope import ScopeBuilder

__all__ = ["ScopeBuilder"]
