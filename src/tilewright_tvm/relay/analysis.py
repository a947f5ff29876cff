"""Questions about graphs, under TVM's name `relay.analysis`.

In: expressions and modules.  Out: lists of nodes, numbers, yes or no.
Read next: `graph/traversal.py`, `relay/equality.py`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

from tilewright.base.doors import open_doors
from tilewright.base.errors import ModelError
from tilewright.graph.expr import (
    Call,
    Constant,
    Expr,
    Function,
    IRModule,
    Tuple,
    Var,
    children,
    free_vars,
)
from tilewright.graph.expr import post_order as _post_order
from tilewright.graph.op.work import work
from tilewright.graph.passes import inline_calls, simplify_inference
from tilewright.graph.traversal import op_name
from tilewright_tvm.elsewhere import find
from tilewright_tvm.relay.equality import Graph, Plain, first_difference, hash_of
from tilewright_tvm.relay.functional import definitions
from tilewright_tvm.relay.functional.call_graph import CallGraph
from tilewright_tvm.relay.functional.nodes import Match, Pattern, make_function
from tilewright_tvm.relay.functional.unmatched import unmatched
from tilewright_tvm.relay.transform.fusion import fuse_operators
from tilewright_tvm.relay.type_variables import all_type_vars as all_type_vars
from tilewright_tvm.relay.type_variables import bound_type_vars as bound_type_vars
from tilewright_tvm.relay.type_variables import free_type_vars as free_type_vars

__all__ = [
    "CallGraph", "all_vars", "assert_structural_equal", "bound_vars", "check_constant",
    "count_layers", "extract_fused_functions", "extract_intermdeiate_expr", "extract_operators",
    "free_vars",
    "get_total_mac_number", "list_op_freqs", "post_order", "post_order_visit", "structural_equal",
    "structural_hash", "unmatched_cases", "well_formed",
]  # fmt: skip

# What TVM counts: one of these multiplies and adds for each pair of operations.
_MULTIPLY = ("nn.conv1d", "nn.conv2d", "nn.conv3d", "nn.conv2d_transpose", "nn.dense",
             "nn.batch_matmul")  # fmt: skip


def post_order(root: Expr) -> list[Expr]:
    """Every node under `root`, each once, arguments before their reader, left to right."""
    return _post_order(root)


def post_order_visit(expr: Expr, fvisit: Callable[[Expr], Any]) -> None:
    """Call `fvisit` with every node under `expr`, each once, what a node reads before it; of a
    function, its parameters, its body and itself."""
    for node in _nodes(expr):
        fvisit(node)


def all_vars(expr: Expr) -> list[Var]:
    """The variables under `expr`, parameters among them, in the order in which they are reached."""
    return [n for n in _nodes(expr) if isinstance(n, Var)]


def bound_vars(expr: Expr) -> list[Var]:
    """The parameters of the functions under `expr`."""
    functions = [n for n in _nodes(expr) if isinstance(n, Function)]
    functions += [n.op for n in _nodes(expr) if isinstance(n, Call) and isinstance(n.op, Function)]
    return list(dict.fromkeys(p for f in functions for p in f.params))


def well_formed(expr: Expr | IRModule) -> bool:
    """True: what is not well formed is refused when it is made."""
    return True


def unmatched_cases(match: Match, mod: IRModule | None = None) -> list[Pattern]:
    """Patterns of all values that no clause of `match` looks like.

    mod: accepted for TVM's spelling: constructors know their data types
    """
    return unmatched(match)


def check_constant(expr: Expr) -> bool:
    """Whether it is a constant, or a tuple of constants."""
    return isinstance(expr, Constant) or (
        isinstance(expr, Tuple) and all(isinstance(f, Constant) for f in expr.fields)
    )


def structural_equal(lhs: Graph | Plain, rhs: Graph | Plain, map_free_vars: bool = False) -> bool:
    """Whether they compute the same in the same way; names of parameters do not count.  Types and
    expressions of te are equal where they are one, lists and dicts where all that they hold is.

    map_free_vars: free variables may be others, each in the place of one
    """
    return not first_difference(lhs, rhs, map_free_vars)


class StructuralDifference(ModelError, ValueError):
    """Of two graphs that should be one; scripts for TVM expect a ValueError."""


def assert_structural_equal(
    lhs: Graph | Plain, rhs: Graph | Plain, map_free_vars: bool = False
) -> None:
    """Raises StructuralDifference that says where, unless `structural_equal` holds."""
    if difference := first_difference(lhs, rhs, map_free_vars):
        raise StructuralDifference(
            "assert_structural_equal", f"they differ: {difference}", "Print both to compare them."
        )


def structural_hash(node: Graph, map_free_vars: bool = False) -> int:
    """Equal for what is `structural_equal` with the same numbers as attributes; map_free_vars: free
    variables need names no more."""
    if map_free_vars and isinstance(node, Expr) and not isinstance(node, Function):
        return hash_of(make_function(free_vars(node), node))
    return hash_of(node)


def count_layers(expr: Expr | IRModule, valid_ops: Sequence[str]) -> int:
    """The most calls of `valid_ops` on any path through the graph."""
    depth: dict[Expr, int] = {}
    body = _body(expr)
    for node in _post_order(body):
        below = max((depth[c] for c in children(node)), default=0)
        depth[node] = below + (op_name(node) in valid_ops)
    return depth[body]


def list_op_freqs(mod: IRModule) -> dict[str, int]:
    """How often each operator is called, in all functions."""
    nodes = (n for f in mod.functions.values() for n in _nodes(f))
    return dict(Counter(name for n in nodes if (name := op_name(n))))


def extract_operators(mod: IRModule) -> list[str]:
    """The names of the operators that main calls, each once, in the order of the graph."""
    names = (op_name(n) for n in _post_order(mod["main"].body))
    return list(dict.fromkeys(name for name in names if name))


def get_total_mac_number(expr: Expr | IRModule) -> int:
    """Multiplications of convolutions, dense layers and products of batches."""
    return sum(work(n) // 2 for n in _post_order(_body(expr)) if op_name(n) in _MULTIPLY)


def extract_fused_functions(mod: IRModule) -> dict[int, Function]:
    """The groups that `FuseOps` makes of a module, each distinct one by its `structural_hash`."""
    fused = fuse_operators(simplify_inference(inline_calls(mod)))
    nodes = (n for f in fused.functions.values() for n in _post_order(f.body))
    groups = [n.op for n in nodes if isinstance(n, Call) and isinstance(n.op, Function)]
    return {hash_of(group): group for group in groups}


def extract_intermdeiate_expr(mod: IRModule, expr_id: int) -> IRModule:
    """A module whose result is the call number `expr_id` of main, in the order of the printed text.

    The name is spelled as in TVM.  Raises ModelError for a number that no call has.
    """
    calls = [n for n in _post_order(mod["main"].body) if isinstance(n, Call)]
    if not 0 <= expr_id < len(calls):
        raise ModelError(
            f"extract_intermdeiate_expr({expr_id})", f"main has {len(calls)} calls",
            f"Use 0 to {len(calls) - 1}.",
        )  # fmt: skip
    return definitions.IRModule.from_expr(calls[expr_id])


def _body(expr: Expr | IRModule) -> Expr:
    found = expr["main"] if isinstance(expr, IRModule) else expr
    return found.body if isinstance(found, Function) else found


def _nodes(expr: Expr) -> list[Expr]:
    if isinstance(expr, Function):
        return list(dict.fromkeys([*expr.params, *_post_order(expr.body), expr]))
    return _post_order(expr)


open_doors(globals(), [n for n in __all__ if n[0].islower()], ModelError)

_ELSEWHERE = dict.fromkeys(
    ("check_kind",), "What does not fit is an error of relay.transform.InferType."
)

__path__: list[str] = []  # so that imports of other names say what to use, too


def __getattr__(name: str) -> Any:
    return find(__name__, name, _ELSEWHERE)
