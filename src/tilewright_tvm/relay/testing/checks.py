"""What tests of networks for TVM call: `run_infer_type`, `run_opt_pass`, `count_ops`, `rand`.

In: expressions and passes.  Out: expressions; targets whose device is there.
Read next: `graph/expr.py`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tilewright.base.dtype import DType
from tilewright.graph.expr import Expr, Function, post_order
from tilewright.graph.traversal import op_name
from tilewright.runtime.device import Device
from tilewright.runtime.ndarray import NDArray, array
from tilewright_tvm.relay.functional.definitions import IRModule
from tilewright_tvm.relay.prelude import Prelude
from tilewright_tvm.relay.transform import InferType
from tilewright_tvm.testing import enabled_targets

Change = Callable[[Any], Any]


def run_opt_pass(
    expr: Expr, opt_pass: Change | Sequence[Change], import_prelude: bool = False
) -> Expr:
    """`expr`, a function or a value of free variables, after a pass or several in order.

    import_prelude: whether the module holds the prelude's functions, too
    """
    mod = IRModule.from_expr(expr)
    if import_prelude:
        assert isinstance(mod, IRModule)
        Prelude(mod)
    for change in opt_pass if isinstance(opt_pass, Sequence) else (opt_pass,):
        mod = change(mod)
    main = mod["main"]
    return main if isinstance(expr, Function) else main.body


def run_infer_type(expr: Expr) -> Expr:
    """`expr` after `InferType`.  Raises ModelError where a variable has no type."""
    return run_opt_pass(expr, InferType())


def count_ops(expr: Expr) -> Counter[str]:
    """How often each operator is called in `expr`, a function or a value, by name."""
    body = expr.body if isinstance(expr, Function) else expr
    return Counter(name for node in post_order(body) if (name := op_name(node)))


def ctx_list() -> list[tuple[str, Device]]:
    """`testing.enabled_targets`, as it was called before."""
    return enabled_targets()


def rand(dtype: str, *shape: int) -> NDArray:
    """An array of random numbers from 0 to 1 on the CPU."""
    kind = DType(dtype, "relay.testing.rand")
    return array(np.random.default_rng().random(shape).astype(kind.storage))


__all__ = ["count_ops", "ctx_list", "enabled_targets", "rand", "run_infer_type", "run_opt_pass"]
