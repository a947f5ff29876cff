"""Networks in half precision: casts around the operators that gain by it.

In: a module.  Out: one that computes the same to the rounding of the narrow type.  What each
operator does is data: `ALWAYS` and `NEVER`; all others follow what they read.  Users reach the pass
as `relay.transform.ToMixedPrecision`.  Read next: `constants.py`, which folds casts of weights.
"""

from __future__ import annotations

import numpy as np

from tilewright.base.dtype import FLOAT32, DType
from tilewright.base.errors import ModelError
from tilewright.graph.expr import (
    Array,
    Call,
    Constant,
    Expr,
    Function,
    IRModule,
    TensorType,
    Tuple,
    TupleGetItem,
    check_dtype,
    children,
    post_order,
)
from tilewright.graph.layers import adopt, layers_of
from tilewright.graph.op import call
from tilewright.graph.op.conv import TRANSPOSED
from tilewright.graph.op.window import RANKS
from tilewright.graph.passes.simplify import simplify_inference
from tilewright.graph.passes.weights import CONTRACTIONS
from tilewright.graph.traversal import each_function, op_name, with_body, with_children

# Sums of products: they do the work, and accumulate in float32 whatever their operands are.
ALWAYS = (*CONTRACTIONS, *TRANSPOSED, "nn.batch_matmul")
FILLED = 1e30  # what is beyond it fills in masks: any other number so large would do
LP_POOLS = tuple(f"nn.lp_pool{rank}d" for rank in RANKS)
# Their results may leave the range of a half, or need the digits it lacks.
NEVER = (
    "cosh", "sinh", "exp", "log", "power", "sum", "prod", "mean", "cumsum", "cumprod", "nn.softmax",
    "nn.log_softmax", *LP_POOLS,
)  # fmt: skip


def to_mixed_precision(
    mod: IRModule, dtype: str = "float16", keep_outputs: bool = False
) -> IRModule:
    """Give `mod` with its float32 contractions, and what follows them, in `dtype`.

    Parameters and inputs keep their types and are cast where they are read; `relay.build` folds the
    casts of weights.  An operator that reads both a narrow value and the result of one in `NEVER`
    computes in float32, and so does one whose constant weights `dtype` cannot hold.
    keep_outputs: cast results back to the types they had
    Raises ModelError unless `dtype` is a float type narrower than float32.
    """
    narrow = check_dtype(dtype, "ToMixedPrecision")
    if not narrow.is_float or narrow.bits >= FLOAT32.bits:
        raise ModelError(
            f"ToMixedPrecision({str(narrow)!r})", f"{narrow} is no float narrower than float32",
            'Use "float16" or "bfloat16".',
        )  # fmt: skip
    simple = simplify_inference(mod)  # a batch norm's variance would not survive the cast
    return each_function(simple, lambda f: _Conversion(narrow).function(f, keep_outputs))


class _Conversion:
    """of one function.  chosen: a node of the old graph -> the type that its value was given
    because of its operator; absent where only parameters and inputs are behind it."""

    def __init__(self, narrow: DType) -> None:
        self.narrow = narrow
        self.new: dict[Expr, Expr] = {}
        self.chosen: dict[Expr, DType] = {}
        self._sizes: dict[tuple[Constant, float], float] = {}
        self._casts: dict[tuple[Expr, DType], Expr] = {}

    def function(self, function: Function, keep_outputs: bool) -> Function:
        for node in post_order(function.body):
            wanted = self._type_of(node)
            parts = tuple(self.new[c] for c in children(node))
            if wanted is not None:
                self.chosen[node] = wanted
                if not isinstance(node, TupleGetItem):
                    parts = tuple(self._cast(p, wanted) for p in parts)
            made = with_children(node, parts)
            made = self._narrow_result(made) if wanted is self.narrow else made
            self.new[node] = adopt(made, layers_of(node))
        body = self.new[function.body]
        return with_body(function, self._cast(body, FLOAT32) if keep_outputs else body)

    def _narrow_result(self, node: Expr) -> Expr:
        """A contraction whose result has the narrow type, also where float32 was asked for."""
        if (
            op_name(node) not in ALWAYS
            or not isinstance(node, Call)
            or "out_dtype" not in node.attrs
        ):
            return node
        if node.args[0].dtype is not self.narrow or node.attrs.out_dtype not in ("", FLOAT32):
            return node
        return Call(node.op, node.args, {**node.attrs, "out_dtype": str(self.narrow)})

    def _type_of(self, node: Expr) -> DType | None:
        name = op_name(node)
        constants = [c for c in children(node) if isinstance(c, Constant)]
        if name in ALWAYS:
            return self.narrow if all(map(self._keeps, constants)) else FLOAT32
        if name in NEVER:
            return FLOAT32
        read = {self.chosen[c] for c in children(node) if c in self.chosen}
        if name == "cast" or not read:
            return None  # asked for by the user, or nothing to follow
        if FLOAT32 in read or any(self._size(c, FILLED) > self.narrow.greatest for c in constants):
            return FLOAT32
        return self.narrow

    def _keeps(self, weights: Constant) -> bool:
        """Whether they stay what they are but for rounding: none is infinite then, nor are all of
        them zeros or nearly so."""
        size = self._size(weights)
        least = self.narrow.smallest / self.narrow.eps  # that is no subnormal number
        return size == 0 or least <= size <= self.narrow.greatest

    def _size(self, constant: Constant, below: float = np.inf) -> float:
        """The largest number of an array that is cast, of those below a limit; 0 of others."""
        if constant.data.size == 1 or constant.dtype is not FLOAT32:
            return 0.0
        key = constant, below
        if key not in self._sizes:
            size = np.abs(constant.data)
            self._sizes[key] = float(np.max(size, initial=0.0, where=size < below))
        return self._sizes[key]

    def _cast(self, value: Expr, wanted: DType) -> Expr:
        """`value` in the type wanted; what is neither float32 nor narrow stays."""
        if isinstance(value, Tuple):
            return with_children(value, tuple(self._cast(f, wanted) for f in value.fields))
        kind = value.checked_type
        if not isinstance(kind, TensorType) or kind.dtype not in (FLOAT32, self.narrow):
            return value
        if kind.dtype is wanted:
            return value
        key = value, wanted
        if key not in self._casts:
            held = isinstance(value, Constant) and (
                value.data.size == 1 or (self._size(value) >= FILLED and wanted is self.narrow)
            )
            self._casts[key] = (
                Constant(_within(value.data, wanted).astype(wanted.storage))  # type: ignore[attr-defined]
                if held
                else call("cast", value, dtype=str(wanted))
            )
        return self._casts[key]


def _within(data: Array, kind: DType) -> Array:
    """`data` with finite numbers kept finite in `kind`: what a mask fills in, the limits of a clip
    are as large as their type allows."""
    return np.where(np.isfinite(data), np.clip(data, kind.least, kind.greatest), data)
