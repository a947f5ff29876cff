"""`relay.expr_functor`: walks of a user's own, where TVM has them.

Read next: `functor.py`.
"""

from tilewright_tvm.relay.functor import ExprFunctor, ExprMutator, ExprVisitor

__all__ = ["ExprFunctor", "ExprMutator", "ExprVisitor"]
