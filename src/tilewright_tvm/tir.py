"""Names of TVM's `tir` for expressions: those of `te`, and a few that TVM spells here alone.

In: what `te` has.  Out: the same.  Statements, buffers and passes of TVM's TIR are not there:
`lower` gives a `Program` (docs/design.md).  Read next: `tilewright/te/__init__.py`.
"""

import typing
from collections.abc import Callable
from importlib import import_module

from tilewright.base.doors import door
from tilewright.base.errors import ExpressionError
from tilewright.ir import expr as _E
from tilewright.ir.expr import Expr as PrimExpr
from tilewright.ir.stmt import Program
from tilewright.te import (
    abs,
    acos,
    acosh,
    all,
    any,
    asin,
    asinh,
    atan,
    atan2,
    atanh,
    ceil,
    clz,
    comm_reducer,
    copysign,
    cos,
    cosh,
    div,
    erf,
    exp,
    exp2,
    exp10,
    floor,
    floordiv,
    floormod,
    fmod,
    hypot,
    if_then_else,
    indexdiv,
    indexmod,
    infinity,
    isfinite,
    isinf,
    isnan,
    ldexp,
    log,
    log1p,
    log2,
    log10,
    max,
    max_value,
    min,
    min_value,
    nearbyint,
    popcount,
    power,
    round,
    rsqrt,
    sigmoid,
    sin,
    sinh,
    size_var,
    sqrt,
    sum,
    tan,
    tanh,
    trunc,
    truncdiv,
    truncmod,
    var,
)
from tilewright.te.tensor import IterVar
from tilewright.topi.layout import Layout, parse
from tilewright_tvm.bijective import BijectiveLayout, bijection
from tilewright_tvm.elsewhere import find
from tilewright_tvm.te import ir_builder, stmt_functor
from tilewright_tvm.te.extern import call_packed as _call_packed
from tilewright_tvm.te.ir_builder import BufferVar as Buffer
from tilewright_tvm.te.ir_builder import decl_buffer
from tilewright_tvm.te.lanes import cast as _cast_lanes
from tilewright_tvm.te.lanes import const
from tilewright_tvm.te.tensor_intrin import call_extern

pow = power


@door(ExpressionError, "tir.call_intrin")
def call_intrin(dtype: typing.Any, func_name: str, *args: typing.Any) -> PrimExpr:
    """A function of numbers by its name: `call_intrin("float32", "tir.exp", x)`.

    Raises ExpressionError for what te has no function for.
    """
    name = func_name.removeprefix("tir.")
    if name == "if_then_else":
        return _E.cast(dtype, _E.if_then_else(*args))
    return _E.cast(dtype, _E.call({"fabs": "abs"}.get(name, name), *args))


call_packed = door(ExpressionError, "tir.call_packed")(_call_packed)


@door(ExpressionError, "tir.layout")
def layout(layout_str: str) -> Layout:
    """The layout that a text such as NCHW16c describes: its axes, and blocks by `factor_of`.

    Raises ExpressionError for what is no layout.
    """
    return parse(layout_str, f"tir.layout({layout_str!r})")


@door(ExpressionError, "tir.bijective_layout")
def bijective_layout(src_layout: str, dst_layout: str) -> BijectiveLayout | None:
    """How shapes and indices of one layout become those of another; None where nothing leads there.

    Raises ExpressionError for what is no layout.
    """
    return bijection(src_layout, dst_layout)


__path__: list[str] = []  # so that imports of other names say what to use, too
_EVERYTHING = "lower(s, args) gives a Program, which prints as loops."
_STATEMENTS = (
    "Allocate", "AttrStmt", "BufferRealize", "Evaluate", "For", "ForKind", "IfThenElse", "LetStmt",
    "SeqStmt", "StringImm",
)  # fmt: skip
_ELSEWHERE = {
    **dict.fromkeys(_STATEMENTS, _EVERYTHING),
    "nextafter": "Bits are not read as another type; do it with numpy.",
    "BufferLoad": _EVERYTHING,
    "BufferStore": _EVERYTHING,
    "Call": "Expressions print themselves; their nodes are tilewright.ir.expr.Expr.",
    "CallEffectKind": "Functions of numbers have no effects: leave it out.",
    "Schedule": "Use te.create_schedule.",
    "analysis": _EVERYTHING,
    **dict.fromkeys(
        ("call_llvm_intrin", "call_llvm_pure_intrin"),
        "Intrinsics of LLVM cannot be called; te has exp, log, popcount, clz, ...",
    ),
    "call_pure_extern": "Functions of other libraries cannot be called; te has exp, log, erf, ...",
    "tensor_intrin": "Use te.decl_tensor_intrin.",
    "transform": "Lowering has its own passes (docs/design.md); TILEWRIGHT_DEBUG=5 prints them.",
    "trace": "Kernels do not call Python: make the value an output of its own.",
}


class _Lowered(type):
    """`isinstance(lower(s, args), tir.PrimFunc)`: what is lowered is a program."""

    def __instancecheck__(cls, instance: object) -> bool:
        return isinstance(instance, Program)

    def __call__(cls, *args: typing.Any, **named: typing.Any) -> typing.Any:
        raise ExpressionError(
            "tir.PrimFunc", "functions are made of schedules only",
            "Write statements as the stage of a te.extern, and lower its schedule.",
        )  # fmt: skip


class PrimFunc(metaclass=_Lowered):
    """What `lower` gives for a schedule: a program, which prints as loops."""


class _Nodes(type):
    """`isinstance(x, tir.Add)`: expressions are of one class, which says by `op` what they are."""

    holds: Callable[[PrimExpr], bool]
    make: Callable[..., PrimExpr]

    def __instancecheck__(cls, instance: object) -> bool:
        return isinstance(instance, PrimExpr) and cls.holds(instance)

    def __call__(cls, *args: typing.Any, **named: typing.Any) -> typing.Any:
        """The expression itself."""
        return cls.make(*args, **named)


def _node(name: str, holds: Callable[[PrimExpr], bool], make: Callable[..., PrimExpr]) -> _Nodes:
    place = f"tir.{name}"
    body = {"holds": holds, "make": door(ExpressionError, place)(make), "__module__": __name__}
    return _Nodes(name, (), body)


def _of(name: str, op: str, make: Callable[..., PrimExpr]) -> _Nodes:
    return _node(name, lambda e: e.op == op, make)


def _operation(name: str, op: str) -> _Nodes:
    def make(a: typing.Any, b: typing.Any) -> PrimExpr:
        return _E.binary(op, a, b)

    return _of(name, op, make)


def _number(dtype: str, value: typing.Any) -> PrimExpr:
    return _E.const(value, dtype)


def _is_number(is_float: bool) -> Callable[[PrimExpr], bool]:
    return lambda e: e.op == "const" and e.dtype.is_float == is_float


def _cast(dtype: str, value: typing.Any) -> PrimExpr:
    return _cast_lanes(dtype, value)


def _ramp(base: typing.Any, stride: typing.Any, lanes: int) -> PrimExpr:
    return _E.ramp(_E.convert(base), stride, lanes)


def _broadcast(value: typing.Any, lanes: int) -> PrimExpr:
    return _E.broadcast(_E.convert(value), lanes)


Add, Sub, Mul, Div = (
    _operation(*names) for names in (("Add", "add"), ("Sub", "sub"), ("Mul", "mul"), ("Div", "div"))
)
FloorDiv, FloorMod = _operation("FloorDiv", "floordiv"), _operation("FloorMod", "floormod")
Min, Max = _operation("Min", "min"), _operation("Max", "max")
EQ, NE, LT, LE, GT, GE = (_operation(op.upper(), op) for op in ("eq", "ne", "lt", "le", "gt", "ge"))
And, Or, Not = _operation("And", "and"), _operation("Or", "or"), _of("Not", "not", _E.logical_not)
IntImm = _node("IntImm", _is_number(False), _number)
FloatImm = _node("FloatImm", _is_number(True), _number)
Cast = _of("Cast", "cast", _cast)
Select = _of("Select", "select", _E.select)
Ramp, Broadcast = _of("Ramp", "ramp", _ramp), _of("Broadcast", "broadcast", _broadcast)
Var = _of("Var", "var", var)
SizeVar = _of("SizeVar", "var", size_var)  # an extent is at least 1 anyway


__all__ = [
    "EQ",
    "GE",
    "GT",
    "LE",
    "LT",
    "NE",
    "Add",
    "And",
    "BijectiveLayout",
    "Broadcast",
    "Buffer",
    "Cast",
    "Div",
    "FloatImm",
    "FloorDiv",
    "FloorMod",
    "IntImm",
    "IterVar",
    "Layout",
    "Max",
    "Min",
    "Mul",
    "Not",
    "Or",
    "PrimExpr",
    "PrimFunc",
    "Ramp",
    "Select",
    "SizeVar",
    "Sub",
    "Var",
    "abs",
    "acos",
    "acosh",
    "all",
    "any",
    "asin",
    "asinh",
    "atan",
    "atan2",
    "atanh",
    "bijective_layout",
    "call_extern",
    "call_intrin",
    "call_packed",
    "ceil",
    "clz",
    "comm_reducer",
    "const",
    "copysign",
    "cos",
    "cosh",
    "decl_buffer",
    "div",
    "erf",
    "exp",
    "exp2",
    "exp10",
    "floor",
    "floordiv",
    "floormod",
    "fmod",
    "hypot",
    "if_then_else",
    "indexdiv",
    "indexmod",
    "infinity",
    "ir_builder",
    "isfinite",
    "isinf",
    "isnan",
    "layout",
    "ldexp",
    "log",
    "log1p",
    "log2",
    "log10",
    "max",
    "max_value",
    "min",
    "min_value",
    "nearbyint",
    "popcount",
    "pow",
    "power",
    "round",
    "rsqrt",
    "sigmoid",
    "sin",
    "sinh",
    "sqrt",
    "stmt_functor",
    "sum",
    "tan",
    "tanh",
    "trunc",
    "truncdiv",
    "truncmod",
    "var",
]  # fmt: skip


def __getattr__(name: str) -> typing.Any:
    if name == "Any":  # of shapes of networks, which this file does not load
        return import_module("tilewright_tvm.relay").Any
    return find(__name__, name, _ELSEWHERE)
