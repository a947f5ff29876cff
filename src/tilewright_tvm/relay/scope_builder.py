"""`relay.scope_builder`, where TVM has `ScopeBuilder`.

Read next: `relay/functional/scope.py`.
"""

from tilewright_tvm.relay.functional.scope import ScopeBuilder

__all__ = ["ScopeBuilder"]
