"""Tensor expressions: placeholders, computations and reductions.

In: shapes and Python functions of axes (`axis.py`).  Out: `Tensor`s whose operations form a DAG.
Read next: `dag.py` (order, flops, text, hash) and `evaluate.py` (the float64 reference).
"""

from __future__ import annotations

import inspect
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from tilewright.base import context
from tilewright.base.dtype import BOOL, DType
from tilewright.base.errors import ExpressionError
from tilewright.ir import expr as E
from tilewright.ir.expr import Expr, walk
from tilewright.ir.symbols import is_symbol, one_of
from tilewright.ir.tuples import parts, together
from tilewright.te.axis import AxisCopy as AxisCopy
from tilewright.te.axis import IterVar as IterVar
from tilewright.te.axis import Range as Range
from tilewright.te.axis import counted, shape_of
from tilewright.te.axis import reduce_axis as reduce_axis
from tilewright.te.axis import thread_axis as thread_axis

# Attribute of a computation: names of axes that index constants only.  Loops over them are unrolled
# where it is scheduled, and it is never repeated at its readers.
CONSTANTS_ATTR = "auto_scheduler_simplify_const_tensor_indices"


UNNAMED = "placeholder"  # the name of inputs that get none


@dataclass(frozen=True, eq=False)
class Combiner:
    """An associative, commutative reduction: `result` over `lhs` and `rhs`, and its identity.

    Each is a tuple (`ir.expr.together`) where several values are reduced together.
    """

    name: str
    lhs: Expr
    rhs: Expr
    result: Expr
    identity: Expr

    def combine(self, a: Expr, b: Expr) -> Expr:
        variables = (*parts(self.lhs), *parts(self.rhs))
        values = (*parts(a), *parts(b))
        return E.substitute(self.result, dict(zip(variables, values, strict=True)))

    def only(self, test: Expr, value: Expr) -> Expr:
        """Give `value` where the test holds, and nothing to combine elsewhere."""
        both = zip(parts(value), parts(self.identity), strict=True)
        return together([E.if_then_else(test, v, i) for v, i in both])

    @property
    def sign(self) -> str:
        """How a reduction is written: ``C[i] += ..``, ``C[i] max= ..``."""
        return {"sum": "+=", "prod": "*="}.get(self.name, f"{self.name}=")


class Tensor:
    """A value of an operation: `shape` and `dtype`.  `t[i, j]` or `t[i][j]` reads an element.

    shape:       ints, or expressions of variables (`te.var`) that each call gives a value
    value_index: which of the operation's values it is
    """

    door_words = ("a tensor", "te.placeholder and te.compute make one.")

    __slots__ = ("op", "value_index")

    def __init__(self, op: PlaceholderOp | ComputeOp, value_index: int = 0) -> None:
        self.op, self.value_index = op, value_index

    @property
    def shape(self) -> tuple[int, ...]:
        return self.op.shape

    @property
    def dtype(self) -> DType:
        return self.op.dtypes[self.value_index]

    @property
    def name(self) -> str:
        several = len(self.op.dtypes) > 1
        return f"{self.op.name}.v{self.value_index}" if several else self.op.name

    @property
    def ndim(self) -> int:
        return len(self.shape)

    def __getitem__(self, indices: Any) -> Expr:
        items = indices if isinstance(indices, tuple) else (indices,)
        if len(items) < self.ndim and items:
            return Slice(self, items)  # type: ignore[return-value]
        if len(items) != self.ndim:
            raise ExpressionError(
                f"{self.name}[{', '.join(map(str, items))}]",
                f"{len(items)} indices for a tensor of shape {list(self.shape)}",
                f"Give {self.ndim}.",
            )
        nodes = tuple(E.convert(i) for i in items)
        for node in nodes:
            if node.dtype not in ("int32", "int64"):
                raise ExpressionError(
                    f"{self.name}[{', '.join(map(str, nodes))}]",
                    f"the index {node} of type {node.dtype} is not an integer",
                    "Use axes and integers, or cast it to int32.",
                )
        return E.make("read", nodes, self, self.dtype)

    def __call__(self, *indices: Any) -> Expr:
        return self[indices]

    def __iter__(self) -> Iterator[Expr]:
        raise ExpressionError(
            f"iteration over {self.name}", "a tensor has no elements before it is computed",
            f"Index it, {self.name}[i], with an axis of te.compute; list tensors: [a, b].",
        )  # fmt: skip

    def as_expr(self) -> Expr:
        """Give the element of a zero-dimensional tensor."""
        return self[()]

    def __repr__(self) -> str:
        return f"Tensor(shape={list(self.shape)}, dtype={self.dtype}, name={self.name})"


class Slice:
    """A tensor with its first indices given: `t[i]` of a matrix, which `t[i][j]` reads."""

    __slots__ = ("indices", "tensor")

    def __init__(self, tensor: Tensor, indices: tuple[Any, ...]) -> None:
        self.tensor, self.indices = tensor, indices

    def __getitem__(self, indices: Any) -> Expr:
        more = indices if isinstance(indices, tuple) else (indices,)
        return self.tensor[(*self.indices, *more)]

    def as_expr(self) -> Expr:
        names = ", ".join(map(str, self.indices))
        raise ExpressionError(
            f"{self.tensor.name}[{names}]",
            f"{len(self.indices)} indices for a tensor of shape {list(self.tensor.shape)}",
            f"Give {self.tensor.ndim}.",
        )

    def _no_element(self, *_: Any) -> Expr:
        return self.as_expr()

    __add__ = __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = _no_element
    __truediv__ = __rtruediv__ = __floordiv__ = __mod__ = __neg__ = _no_element

    def __iter__(self) -> Iterator[Expr]:
        return iter(self.tensor)

    def __repr__(self) -> str:
        return f"{self.tensor!r}[{', '.join(map(str, self.indices))}]"


class PlaceholderOp:
    """An input.  constant: its value is known when the program is built (weights)."""

    __slots__ = ("constant", "dtype", "name", "output_tensor", "shape")

    axis: tuple[IterVar, ...] = ()
    reduce_axis: tuple[IterVar, ...] = ()
    input_tensors: tuple[Tensor, ...] = ()
    tag = ""
    launches_threads = False

    def __init__(
        self, name: str, shape: tuple[int, ...], dtype: str, constant: bool = False
    ) -> None:
        self.name, self.shape, self.constant = name, shape, constant
        self.dtype = DType(dtype, f"placeholder({name!r})")
        self.output_tensor = Tensor(self)

    @property
    def outputs(self) -> tuple[Tensor, ...]:
        return (self.output_tensor,)

    @property
    def dtypes(self) -> tuple[DType, ...]:
        return (self.dtype,)

    @property
    def num_outputs(self) -> int:
        return 1

    def output(self, index: int = 0) -> Tensor:
        return self.outputs[index]

    def at(self, numbers: Mapping[Expr, int], tensors: Mapping[Tensor, Tensor]) -> PlaceholderOp:
        """Give the same with numbers in the place of symbols."""
        shape = tuple(one_of(numbers, n) for n in self.shape)
        return PlaceholderOp(self.name, shape, self.dtype, self.constant)

    @property
    def text(self) -> str:
        """What it is, as `print(dag)` shows it."""
        return f"{self.name} = PLACEHOLDER [{', '.join(map(str, self.shape))}]"

    def __repr__(self) -> str:
        return f"placeholder({self.name}, {list(self.shape)}, {self.dtype})"


class ComputeOp:
    """One stage: `body` over `axis`, which gives a tensor, or several (`outputs`) of one shape.

    A reduction is the root of `body`, or the one argument of a cast there: then its partial results
    have another type (the accumulator) than the elements of the stage.  Of several values the root
    is their tuple, or a reduction of one.

    Subclasses are stages of another kind: `opaque.OpaqueOp`, `recurrence.ScanOp`.
    """

    __slots__ = (
        "attrs",
        "axis",
        "body",
        "input_tensors",
        "name",
        "outputs",
        "tag",
    )

    kind: ClassVar[str] = "compute"  # in JSON
    constant = False
    launches_threads = False  # whether statements of its own are run by blocks and threads

    def __init__(
        self,
        name: str,
        axis: tuple[IterVar, ...],
        body: Expr,
        tag: str = "",
        attrs: dict[str, Any] | None = None,
    ) -> None:
        self.name, self.axis, self.body, self.tag, self.attrs = name, axis, body, tag, attrs or {}
        self.input_tensors = tuple(dict.fromkeys(n.attr for n in walk(body) if n.op == "read"))
        self.outputs = tuple(Tensor(self, k) for k in range(len(self.dtypes)))

    def __setstate__(self, state: tuple[dict[str, Any] | None, dict[str, Any]]) -> None:
        """Take what a pickle has; before there was `recurrence.ScanOp`, a slot more."""
        if state[1].pop("recurrence", None) is not None:
            raise ExpressionError(
                f"pickle of {state[1]['name']}", "it is a scan of an older version",
                "Declare it again with te.scan.",
            )  # fmt: skip
        for name, value in {**(state[0] or {}), **state[1]}.items():
            setattr(self, name, value)

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(ax.size for ax in self.axis)

    def over(self, axis: tuple[IterVar, ...], body: Expr) -> ComputeOp:
        """Give the same of another body, over other axes."""
        return ComputeOp(self.name, axis, body, self.tag, self.attrs)

    def at(self, numbers: Mapping[Expr, int], tensors: Mapping[Tensor, Tensor]) -> ComputeOp:
        """Give the same with numbers in the place of symbols, of other inputs."""
        axes = {ax: ax.at(numbers) for ax in (*self.axis, *self.reduce_axis)}
        mapping: dict[Expr, E.Value] = {ax.var: new.var for ax, new in axes.items()}
        mapping |= {v: E.const(n, v.dtype) for v, n in numbers.items()}

        def rule(node: Expr) -> Expr | None:
            if node.op == "read" and node.attr in tensors:
                return tensors[node.attr][node.args]
            if node.op == "reduce":
                combiner, over = node.attr
                return E.make(
                    "reduce", node.args, (combiner, tuple(axes[a] for a in over)), node.dtype
                )
            return None

        body = E.transform(E.substitute(self.body, mapping), rule)
        return ComputeOp(self.name, tuple(axes[a] for a in self.axis), body, self.tag, self.attrs)

    @property
    def why_fixed(self) -> tuple[str, str] | None:
        """Why its place and the order of its iterations are its own, and what to do instead; None
        where a schedule says both."""
        return None

    @property
    def why_untuned(self) -> tuple[str, str] | None:
        """Why no task may contain it, and what to do instead; None where one may."""
        return None

    @property
    def text(self) -> str:
        """What it computes, as `print(dag)` shows it."""
        axes = ", ".join(ax.name for ax in self.axis)
        if self.combiner is None:
            return f"{self.name}({axes}) = {self.body}"
        narrowed = "" if self.dtype is self.accumulator else f", as {self.dtype}"
        return f"{self.name}({axes}) {self.combiner.sign} {self.reduced}{narrowed}"

    def rest_of_json(self, number: Callable[[Tensor], Any]) -> list[Any]:
        """What its row has beside what all rows have.

        number: what stands for a tensor there
        Raises ExpressionError for a stage that has no JSON.
        """
        return [] if self.dtype is self.accumulator else [str(self.dtype)]

    @property
    def expressions(self) -> tuple[Expr, ...]:
        """All that is computed: the body, or what the statements of a stage say."""
        return (self.body,)

    @property
    def inputs(self) -> tuple[Tensor, ...]:
        """`input_tensors`, by the name that TVM's operations of statements have for it."""
        return self.input_tensors

    @property
    def scan_axis(self) -> IterVar:
        """The time of a scan.  Raises ExpressionError for any other computation."""
        raise ExpressionError(f"{self.name}.scan_axis", "it is no te.scan", "Use op.axis.")

    @property
    def output_tensor(self) -> Tensor:
        """The tensor, or the first of several."""
        return self.outputs[0]

    @property
    def dtype(self) -> DType:
        """The element type of the tensor, or of the first of several."""
        return self.dtypes[0]

    @property
    def dtypes(self) -> tuple[DType, ...]:
        node = self.body.args[0] if self.body.op == "reduce" else self.body
        return tuple(value.dtype for value in parts(node))

    @property
    def bytes(self) -> int:
        """Bytes of an element in all tensors."""
        return sum(dtype.bytes for dtype in self.dtypes)

    @property
    def reduction(self) -> Expr | None:
        """The `reduce` node, whose dtype is the accumulator's."""
        return reduction_of(self.body)

    @property
    def reduce_axis(self) -> tuple[IterVar, ...]:
        node = self.reduction
        return node.attr[1] if node is not None else ()

    @property
    def combiner(self) -> Combiner | None:
        node = self.reduction
        return node.attr[0] if node is not None else None

    @property
    def reduced(self) -> Expr:
        """The value that is reduced; only for a stage that is a reduction."""
        node = self.reduction
        assert node is not None
        return node.args[0]

    @property
    def accumulator(self) -> DType:
        """The type of partial results: of the stage itself where nothing is reduced."""
        return self.accumulators[0]

    @property
    def accumulators(self) -> tuple[DType, ...]:
        """The same for each tensor; of several they are what the tensors are."""
        node = self.reduction
        return (node.dtype,) if node is not None and self.num_outputs == 1 else self.dtypes

    @property
    def num_outputs(self) -> int:
        return len(self.outputs)

    def output(self, index: int = 0) -> Tensor:
        return self.outputs[index]

    def __repr__(self) -> str:
        return f"compute({self.name}, {list(self.shape)}, {self.dtype})"


Operation = PlaceholderOp | ComputeOp


def reduction_of(body: Expr) -> Expr | None:
    """The reduction at the root of a stage's body, under the cast of its result if there is one."""
    node = body.args[0] if body.op == "cast" else body
    return node if node.op == "reduce" else None


def placeholder(
    shape: Any,
    dtype: str = "float32",
    name: str = UNNAMED,
    *,
    constant: bool = False,
) -> Tensor:
    """Declare an input tensor.

    shape: ints, or one for a vector; constant: the value is known at build time, so packing it
    costs nothing
    """
    place = f"placeholder({name!r})"
    return PlaceholderOp(name, shape_of(shape, place), DType(dtype, place), constant).output_tensor


def compute(
    shape: Any,
    fcompute: Callable[..., Any],
    name: str = "compute",
    tag: str = "",
    attrs: dict[str, Any] | None = None,
) -> Tensor:
    """Give the tensor whose element at (i, j, ...) is `fcompute(i, j, ...)`.

    shape: ints, or one for a vector.  A function that gives a tuple of elements, or a reduction of
    several values, makes a tuple of tensors, `NAME.v0`, `NAME.v1`, ..., of one stage.
    Axis names are the parameter names of `fcompute` (i0, i1, ... for `*args`).
    """
    place, tag = f"compute({name!r})", tag or context.current("tag", "")
    dims = shape_of(shape, place)
    axis = tuple(
        counted(IterVar(n, d))
        for n, d in zip(_axis_names(fcompute, len(dims), place), dims, strict=True)
    )
    value = fcompute(*(ax.var for ax in axis))
    several = isinstance(value, (tuple, list)) and bool(value)
    values = [_element(v, place) for v in (value if several else (value,))]
    body = _with_scalars(_joined(values))
    root = reduction_of(body)
    for node in walk(*(body if root is None else root).args):
        if node.op == "reduce":
            raise ExpressionError(
                place, "a reduction inside a larger expression",
                "Give the reduction its own te.compute and read its result.",
            )  # fmt: skip
    known = {ax.var for ax in axis}
    if root is not None:
        known |= {ax.var for ax in root.attr[1]}
    for node in walk(body):
        if node.lanes > 1:
            raise ExpressionError(
                place, f"{node} is a vector, and elements are single numbers",
                "Compute one, and vectorize the loop: s[C].vectorize(x).",
            )  # fmt: skip
        if node.op == "var" and node not in known and not is_symbol(node):
            raise ExpressionError(
                place, f"{node} is not an axis of this computation",
                "Use the axes passed to the function, or name a reduce_axis in te.sum(axis=).",
            )  # fmt: skip
    outputs = ComputeOp(name, axis, body, tag, attrs).outputs
    return outputs if several or len(outputs) > 1 else outputs[0]  # type: ignore[return-value]


def _joined(values: Sequence[Expr]) -> Expr:
    """The body of a stage of these values: reductions over the same axes are one of them all."""
    axes = {v.attr[1] for v in values if v.op == "reduce"}
    if len(values) == 1 or len(axes) != 1 or any(v.op != "reduce" for v in values):
        return together(values)
    combiners = [v.attr[0] for v in values]
    fields = ((c.lhs, c.rhs, c.result, c.identity) for c in combiners)
    # each with variables of its own, since one of them may be there twice
    own = [_fresh(Combiner("", *four)) for four in fields]
    lhs, rhs, result, identity = (
        together([p for c in own for p in parts(getattr(c, part))])
        for part in ("lhs", "rhs", "result", "identity")
    )
    name = "_".join(dict.fromkeys(c.name for c in combiners))
    reduced = together([p for v in values for p in parts(v.args[0])])
    (over,) = axes
    joined = Combiner(name, lhs, rhs, result, identity)
    return E.make("reduce", (reduced,), (joined, over), reduced.dtype)


def _fresh(c: Combiner) -> Combiner:
    """The same over other variables."""
    lhs, rhs = (
        together([E.var(str(v.attr), v.dtype) for v in parts(side)]) for side in (c.lhs, c.rhs)
    )
    return Combiner(c.name, lhs, rhs, c.combine(lhs, rhs), c.identity)


_SCALARS: weakref.WeakKeyDictionary[Expr, Tensor] = weakref.WeakKeyDictionary()


def scalar(symbol: Expr) -> Tensor:
    """The input without dimensions that a variable stands for which is no extent."""
    found = _SCALARS.get(symbol)
    if found is None:
        found = PlaceholderOp(str(symbol.attr), (), symbol.dtype).output_tensor
        _SCALARS[symbol] = found
    return found


def _with_scalars(body: Expr) -> Expr:
    """`body` where variables of numbers that are no extents are read as inputs."""
    found = [n for n in walk(body) if is_symbol(n) and not n.dtype.is_index]
    return E.substitute(body, {n: scalar(n)[()] for n in found}) if found else body


def _element(value: Any, place: str) -> Expr:
    if isinstance(value, Tensor) and value.ndim:
        raise ExpressionError(
            place, f"the function gives all of {value.name}, not one element",
            f"Index it with {value.ndim} indices.",
        )  # fmt: skip
    if value is None or isinstance(value, (tuple, list)):
        raise ExpressionError(
            place, f"the function gives a {type(value).__name__}, not an expression",
            "Return one expression, or a tuple of expressions for several tensors.",
        )  # fmt: skip
    return E.convert(value)


def _axis_names(fcompute: Callable[..., Any], count: int, place: str) -> list[str]:
    names: list[str] = []
    try:
        parameters = inspect.signature(fcompute).parameters.values()
    except (TypeError, ValueError):  # what is no function, or is written in C
        raise ExpressionError(
            place, f"{fcompute!r} is no Python function",
            "Give a function of the axes: lambda i, j: ...",
        ) from None  # fmt: skip
    for p in parameters:
        if p.kind is p.VAR_POSITIONAL:
            while len(names) < count:
                names.append(f"i{len(names)}")
        elif p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD) and p.default is p.empty:
            names.append(p.name)
    if len(names) != count:
        raise ExpressionError(
            place, f"the function takes {len(names)} axes for {count} dimensions",
            "Give one parameter per dimension, or *indices.",
        )  # fmt: skip
    return names


def widened(dtype: DType, value: Expr) -> Expr:
    """`value` computed in `dtype`: what its arithmetic reads is cast, so that no product of narrow
    numbers is rounded, or wraps around, before it is added up."""
    if value.dtype is dtype:
        return value
    if value.op in ("add", "sub", "mul") and value.dtype is not BOOL:
        return E.binary(value.op, *(widened(dtype, a) for a in value.args))
    if value.op in ("select", "if_then_else"):
        test, *sides = value.args
        choose = E.select if value.op == "select" else E.if_then_else
        return choose(test, *(widened(dtype, a) for a in sides))
    return E.cast(dtype, value)
