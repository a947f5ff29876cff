"""Runs functional programs: environments, calls and `match` in Python, tensors as a graph.

In: functions and values.  Out: values whose tensors are known or a graph still (`pool.py`).  Each
call has a frame with the values of its nodes, computed when somebody reads them; a call in the
place of the result takes its caller's frame, so loops do not pile up.  What makes of the values of
its arguments what it is (`later.py`) is made here, too.
Read next: `code.py`, `program.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from tilewright.base.errors import ModelError
from tilewright.graph import expr as nodes
from tilewright.graph.deferred import Branch, Computed, Deferred, made_again
from tilewright.graph.expr import (
    Constant,
    Expr,
    Function,
    GlobalVar,
    TensorType,
    Tuple,
    TupleGetItem,
    Var,
    children,
    free_vars,
)
from tilewright.graph.passes.extents import Numbers, numbers_of
from tilewright.graph.traversal import substitute
from tilewright_tvm.relay.functional.code import Code, Codes, read_by
from tilewright_tvm.relay.functional.later import CallByName, CalledAgain
from tilewright_tvm.relay.functional.nodes import (
    Apply,
    Call,
    Constructor,
    GeneralFunction,
    LetNode,
    Match,
    NamedFunction,
    Pattern,
    PatternConstructor,
    PatternTuple,
    PatternVar,
    RefCreate,
    RefRead,
    RefWrite,
    make_call,
)
from tilewright_tvm.relay.functional.pool import Pool, Tensor
from tilewright_tvm.relay.functional.untyped import OpenCall
from tilewright_tvm.relay.functional.values import Closure, ConstructorValue, RefValue

MOST_CALLS, MOST_FRAMES = 1_000_000, 100_000  # of one run, and at one time
MOST_PENDING = 256  # operators that wait to be computed where a function is called again
_WAY_OUT = "Let what it depends on end it sooner."


class Frame:
    """One call of a function.

    values: of nodes and variables; left: how many readers of a node have not read it yet
    stack:  nodes to be computed, each before the one in front; root: whose value is the result
    made:   what stands for nodes that had to wait
    numbers: what open extents of its parameters are, and of those of functions around it
    """

    __slots__ = ("code", "left", "made", "numbers", "outer", "root", "stack", "values")

    def __init__(self, code: Code, values: dict[Expr, Any], outer: Frame | None) -> None:
        self.code, self.values, self.outer = code, values, outer
        self.root = code.body
        self.left: dict[Expr, int] = {}
        self.made: dict[Expr, Expr] = {}
        self.numbers: tuple[Numbers, ...] = () if outer is None else outer.numbers
        self.stack: list[Expr] = [self.root]

    def has(self, node: Expr) -> bool:
        return self.holder(node) is not None

    def holder(self, node: Expr) -> Frame | None:
        """The frame that knows `node`: this one, or where the function was made."""
        frame: Frame | None = self
        while frame is not None:
            if node in frame.values:
                return frame
            frame = None if node in frame.code.own else frame.outer
        return None

    def value(self, node: Expr) -> Any:
        frame = self.holder(node)
        if frame is None:
            name = node.name_hint if isinstance(node, Var) else type(node).__name__
            raise ModelError(
                f"%{name}", "it has no value", "List it in params, or give it one with relay.Let."
            )
        return frame.values[node]

    def number(self, extent: int) -> int:
        """What a number is, which may stand for an open extent."""
        for numbers in self.numbers:
            extent = numbers.extent(extent)
        return extent

    def attribute(self, value: Any) -> Any:
        """Likewise, of an attribute of an operator."""
        for numbers in self.numbers:
            value = numbers.attribute(value)
        return value

    def finish(self, node: Expr, value: Any, read: Sequence[Expr]) -> None:
        """`node` is `value`; what nobody else reads is let go."""
        self.values[node] = value
        self.stack.pop()
        for child in set(read):
            count = self.left.get(child, self.code.reads[child]) - 1
            self.left[child] = count
            if count == 0 and child is not self.root and child not in self.code.kept:
                self.values.pop(child, None)


class Machine:
    """One run.  codes: of functions, which may be of several runs; pool: its tensors"""

    def __init__(self, codes: Codes, pool: Pool) -> None:
        self.codes, self.pool = codes, pool
        self._frames: list[Frame] = []
        self._calls, self._seen = 0, set[Code]()

    def call(self, function: Any, args: Sequence[Any]) -> Any:
        """The value of a function for values.  Raises ModelError for a run that does not end, and
        for what cannot be made of the values."""
        if isinstance(function, Constructor):
            return ConstructorValue(function.tag, args, function)
        self._frames.append(self._frame(function, args))
        while True:
            frame = self._frames[-1]
            if frame.stack:
                node = frame.stack[-1]
                if frame.has(node):
                    frame.stack.pop()
                else:
                    self._step(frame, node)
                continue
            value = frame.value(frame.root)
            self._frames.pop()
            if not self._frames:
                return value
            caller = self._frames[-1]
            caller.finish(caller.stack[-1], value, children(caller.stack[-1]))

    # -- nodes
    def _step(self, frame: Frame, node: Expr) -> None:
        """Compute `node`, or put what it needs in front of it."""
        needs = _needs(node)
        missing = [n for n in needs if not frame.has(n)]
        if missing:
            frame.stack.extend(reversed(missing))
            return
        if isinstance(node, (Branch, LetNode, Match)):
            self._follow(frame, node, self._chosen(frame, node))
        elif isinstance(node, CallByName):
            values = [frame.value(p) for p in node.parts]
            self._enter(frame, node, Closure(node.function()), values)
        elif isinstance(node, Call) and isinstance(node.op, Function):
            function = Closure(node.op, frame if node.op.free else None)
            self._enter(frame, node, function, [frame.value(a) for a in node.args])
        elif isinstance(node, Apply):
            if isinstance(node.op, GlobalVar):
                function = _named(node.op)
            else:
                function = frame.value(children(node)[0])
            self._enter(frame, node, function, [frame.value(a) for a in node.args])
        elif node in frame.made:
            self._follow(frame, node, frame.made[node])
        elif (again := node if isinstance(node, Deferred) else made_again(node)) is not None:
            self._make(frame, node, again)
        elif isinstance(node, Call):
            args = [self._expr(frame.value(a)) for a in node.args]
            if frame.numbers and not isinstance(node, OpenCall):
                node_attrs = {name: frame.attribute(x) for name, x in node.attrs.items()}
                self._become(frame, node, make_call(node.op, args, node_attrs))
            else:
                self._become(frame, node, node.with_parts(args))
        elif (compute := _SIMPLE.get(type(node))) is not None:
            frame.finish(node, compute(self, frame, node), needs)
        else:
            frame.value(node)  # a variable, which raises that it has none

    def _follow(self, frame: Frame, node: Expr, chosen: Expr) -> None:
        """`node` is what `chosen` is, which is computed first."""
        if frame.has(chosen):
            frame.finish(node, frame.value(chosen), children(node))
        elif node is frame.root and len(frame.stack) == 1:
            frame.root = frame.stack[0] = chosen
        else:
            frame.stack.append(chosen)

    def _chosen(self, frame: Frame, node: Branch | LetNode | Match) -> Expr:
        if isinstance(node, LetNode):
            frame.values[node.var] = frame.value(node.value)
            return node.body
        if isinstance(node, Match):
            return self._matched(frame, node)
        found = self.pool.number(self._tensor(frame.value(node.parts[0]), "relay.If"))
        if found.size != 1:
            raise ModelError("relay.If", f"its condition has {found.size} elements", "Give one.")
        return node.parts[1 if found.reshape(-1)[0] else 2]

    def _matched(self, frame: Frame, node: Match) -> Expr:
        value = frame.value(node.data)
        for clause in node.clauses:
            found: dict[Expr, Any] = {}
            if self._looks_like(value, clause.lhs, found):
                frame.values.update(found)
                return clause.rhs
        shown = value.constructor.name_hint if isinstance(value, ConstructorValue) else "the value"
        raise ModelError("relay.Match", f"no clause looks like {shown}", "Add one for it.")

    def _looks_like(self, value: Any, pattern: Pattern, found: dict[Expr, Any]) -> bool:
        if isinstance(pattern, PatternVar):
            found[pattern.var] = value
        if isinstance(pattern, PatternConstructor):
            if not isinstance(value, ConstructorValue):
                raise ModelError(
                    "relay.Match", f"{_word(value)} is no value of a data type",
                    f"Give one of {pattern.constructor.belong_to}.",
                )  # fmt: skip
            if value.constructor is not pattern.constructor:
                return False
            parts: Sequence[Any] = value.fields
        elif isinstance(pattern, PatternTuple):
            parts = _tuple(value, "relay.Match")
        else:
            return True
        if len(parts) != len(pattern.patterns):
            raise ModelError(
                "relay.Match", f"{len(parts)} values, {len(pattern.patterns)} patterns",
                "Give a pattern for each.",
            )  # fmt: skip
        pairs = zip(parts, pattern.patterns, strict=True)
        return all(self._looks_like(v, p, found) for v, p in pairs)

    def _make(self, frame: Frame, node: Expr, again: Deferred) -> None:
        """What stands for an operator that had to wait for types, for numbers or for extents."""
        values = [frame.value(p) for p in again.parts]
        if isinstance(again, Computed):
            arrays = [self.pool.number(self._tensor(v, again.error.place)) for v in values]
            made = tuple(self.pool.given(a) for a in again.arrays(arrays))
            frame.finish(node, made if again.several else made[0], again.parts)
            return
        if again.trip:
            self.pool.settle()
        needs = set(again.needs)
        parts = [self._numbers(v) if k in needs else self._expr(v) for k, v in enumerate(values)]
        found = again.with_numbers(parts, frame.number).make(parts)
        if not isinstance(again, CalledAgain):  # which may read what is not among its parts
            here = {v: frame.value(v) for v in free_vars(found) if frame.has(v)}
            there: dict[Expr, Expr] = {
                v: self._expr(x) for v, x in here.items() if isinstance(x, (Tensor, tuple))
            }
            found = substitute(found, there)
        self._become(frame, node, found)

    def _become(self, frame: Frame, node: Expr, found: Expr) -> None:
        """`node` is `found`, which was made of typed graph values."""
        if not found.waits:
            frame.finish(node, self.pool.value(found), read_by(node))
            return
        frame.made[node] = found
        stack, done = [found], set[Expr]()
        while stack:
            n = stack.pop()
            if n in done:
                continue
            done.add(n)
            if not n.waits and not isinstance(n, Function):
                frame.values[n] = self.pool.value(n)
            else:
                stack.extend(children(n))
        self._follow(frame, node, found)

    # -- functions
    def _enter(self, frame: Frame, node: Expr, function: Any, args: Sequence[Any]) -> None:
        """Call a function for `node`."""
        if isinstance(function, Constructor):
            value = ConstructorValue(function.tag, args, function)
            frame.finish(node, value, children(node))
            return
        if not isinstance(function, Closure):
            raise ModelError("relay.Call", f"{_word(function)} is no function", "Call a function.")
        made = self._frame(function, args)
        if node is frame.root and frame.stack == [node]:
            self._frames.pop()
        self._frames.append(made)
        if len(self._frames) > MOST_FRAMES:
            raise ModelError("relay.Call", f"{MOST_FRAMES} calls wait for each other", _WAY_OUT)

    def _frame(self, function: Closure, args: Sequence[Any]) -> Frame:
        code = self.codes.of(function.function)
        self._calls += 1
        if self._calls > MOST_CALLS:
            raise ModelError("relay.Call", f"it has not ended after {MOST_CALLS} calls", _WAY_OUT)
        if code in self._seen and self.pool.made > MOST_PENDING:
            self.pool.settle()
        self._seen.add(code)
        params = function.function.params
        place = f"call of {function.function.attrs.get('name', 'a function')}"
        if len(args) != len(params):
            raise ModelError(
                place, f"{len(args)} arguments for {len(params)} parameters",
                f"Give {', '.join(p.name_hint for p in params) or 'none'}.",
            )  # fmt: skip
        for p, value in zip(params, args, strict=True):
            check_fits(p, value, place)
        frame = Frame(code, dict(zip(params, args, strict=True)), function.frame)
        if code.open_params:
            shapes = [self._expr(frame.values[p]).shape for p in code.open_params]
            frame.numbers = (*frame.numbers, numbers_of(code.open_params, shapes, place))
        return frame

    # -- values as nodes
    def _tensor(self, value: Any, place: str) -> Tensor:
        if not isinstance(value, Tensor):
            raise ModelError(
                place, f"{_word(value)} where a tensor is needed",
                "Take a tensor out of it, with relay.Match or relay.RefRead.",
            )  # fmt: skip
        return value

    def _expr(self, value: Any) -> Expr:
        if isinstance(value, tuple):
            return Tuple([self._expr(v) for v in value])
        return self._tensor(value, "relay").expr

    def _numbers(self, value: Any) -> Expr:
        if isinstance(value, tuple):
            return Tuple([self._numbers(v) for v in value])
        return self.pool.constant(self._tensor(value, "relay"))


def check_fits(param: Var, value: Any, place: str) -> None:
    """Raise ModelError unless a tensor has the type of its parameter."""
    kind = param.type_annotation
    if not isinstance(kind, TensorType) or param.open_extents or not isinstance(value, Tensor):
        return
    if value.expr.checked_type != kind:
        raise ModelError(
            place, f"{param.name_hint} has type {kind}, the argument {value.expr.checked_type}",
            "Convert with relay.reshape or relay.cast.",
        )  # fmt: skip


def _named(name: GlobalVar) -> Closure:
    return Closure(CallByName(name, ()).function())


def _needs(node: Expr) -> Sequence[Expr]:
    """What is known before a node is looked at."""
    if isinstance(node, Branch):
        return node.parts[:1]
    if isinstance(node, (LetNode, Match)):
        return node.parts[:1]
    return read_by(node)


def _tuple(value: Any, place: str) -> tuple[Any, ...]:
    if not isinstance(value, tuple):
        raise ModelError(place, f"{_word(value)} is no tuple", "Give a relay.Tuple.")
    return value


def _item(machine: Machine, frame: Frame, node: Any) -> Any:
    parts = _tuple(frame.value(node.tuple_value), f"[{node.index}]")
    if not -len(parts) <= node.index < len(parts):
        raise ModelError(f"[{node.index}]", f"the tuple has {len(parts)} values", "Count from 0.")
    return parts[node.index]


def _reference(value: Any, place: str) -> RefValue:
    if not isinstance(value, RefValue):
        raise ModelError(place, f"{_word(value)} is no reference", "Give a relay.RefCreate.")
    return value


def _write(machine: Machine, frame: Frame, node: Any) -> Any:
    _reference(frame.value(node.ref), "relay.RefWrite").value = frame.value(node.value)
    return ()


def _constant(machine: Machine, frame: Frame, node: Any) -> Any:
    if any(numbers.means(node.data) for numbers in frame.numbers):
        raise ModelError(
            f"a constant of shape {list(node.shape)}", "it was made of an open extent",
            "Make it of relay.shape_of.",
        )  # fmt: skip
    return machine.pool.value(node)


_SIMPLE: dict[type[Expr], Callable[[Machine, Frame, Any], Any]] = {
    Constant: _constant,
    Tuple: lambda machine, frame, node: tuple(map(frame.value, node.fields)),
    TupleGetItem: _item,
    nodes.Function: lambda machine, frame, node: Closure(node, None),
    GeneralFunction: lambda machine, frame, node: Closure(node, frame if node.free else None),
    Constructor: lambda machine, frame, node: node,
    NamedFunction: lambda machine, frame, node: _named(node.name),
    RefCreate: lambda machine, frame, node: RefValue(frame.value(node.value)),
    RefRead: lambda machine, frame, node: _reference(frame.value(node.ref), "relay.RefRead").value,
    RefWrite: _write,
}


def _word(value: Any) -> str:
    if isinstance(value, ConstructorValue):
        return f"a {value.constructor.belong_to}"
    names = {Tensor: "a tensor", tuple: "a tuple", RefValue: "a reference"}
    return names.get(type(value), "a function")
