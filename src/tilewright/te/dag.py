"""`ComputeDAG`: the operations behind some outputs, in order, with flops, text, hash and JSON.

In: output tensors (and the argument order).  Out: what tasks, records and schedules are keyed by.
Read next: `evaluate.py`, then the room `schedule`.
"""

from __future__ import annotations

import copy
import hashlib
import json
import math
from collections import Counter
from collections.abc import Container, Iterable, Sequence
from typing import Any, TypeVar

from tilewright.base.concurrency import cached_property
from tilewright.base.dtype import DType
from tilewright.base.errors import ExpressionError
from tilewright.ir import expr as E
from tilewright.ir.expr import ARITHMETIC, COMPARE, LOGIC, Expr
from tilewright.ir.symbols import declared, is_extent
from tilewright.ir.tuples import parts, together
from tilewright.te import recurrence, symbolic
from tilewright.te.reductions import builtin_combiner
from tilewright.te.tensor import (
    UNNAMED,
    Combiner,
    ComputeOp,
    IterVar,
    Operation,
    PlaceholderOp,
    Tensor,
)

T = TypeVar("T")
_NAME_LENGTH = 400
# What malformed JSON of a computation makes of the code that reads it.
_MALFORMED = (LookupError, TypeError, ValueError, AttributeError, ArithmeticError, RecursionError)


class ComputeDAG:
    """Operations in topological order.

    tensors: the arguments of the compiled function: inputs in the order given, outputs among them
    or last.  Inputs that are not listed are put first, in the order they are reached.
    """

    door_words = ("a ComputeDAG", "te.ComputeDAG(tensors) makes one.")

    def __init__(self, tensors: Sequence[Tensor] | Tensor) -> None:
        listed = _listed(tensors)
        if not any(isinstance(t.op, ComputeOp) for t in listed):
            raise ExpressionError(
                "ComputeDAG",
                "no computed output among the tensors",
                "Pass the inputs and the outputs.",
            )
        self.ops: tuple[Operation, ...] = tuple(_topological([t.op for t in listed]))
        states = {t.op for scan in recurrence.scans(self.ops) for t in scan.states}
        self.placeholders = tuple(
            op for op in self.ops if isinstance(op, PlaceholderOp) and op not in states
        )
        self.outputs: tuple[Tensor, ...] = tuple(
            t for t in dict.fromkeys(listed) if isinstance(t.op, ComputeOp)
        )
        unlisted = [
            op.output_tensor for op in self.placeholders if op.output_tensor not in set(listed)
        ]
        self.args: tuple[Tensor, ...] = tuple(dict.fromkeys([*unlisted, *listed]))
        _name_apart([op for op in self.placeholders if op.name == UNNAMED])
        for name, count in Counter(op.name for op in self.placeholders).items():
            if count > 1:
                raise ExpressionError(
                    "ComputeDAG", f"{count} placeholders are called {name!r}",
                    "Name every placeholder differently.",
                )  # fmt: skip

    @property
    def compute_ops(self) -> tuple[ComputeOp, ...]:
        return tuple(op for op in self.ops if isinstance(op, ComputeOp))

    @cached_property
    def steps(self) -> dict[recurrence.ScanOp, tuple[ComputeOp, ...]]:
        """Scan -> what its steps compute on the way: all that depends on its states, in order."""
        return recurrence.steps(self.compute_ops)

    @cached_property
    def late(self) -> dict[ComputeOp, int]:
        """What only steps of scans read, at their own time -> the first step that does."""
        made = set(self.outputs)
        inside = [op for op in self.compute_ops if made.isdisjoint(op.outputs)]
        return recurrence.late(self.steps, inside, self.consumers)

    @cached_property
    def computed(self) -> frozenset[Tensor]:
        """What stages compute: outputs, and what lies before them."""
        return frozenset(t for op in self.compute_ops for t in op.outputs)

    @cached_property
    def types(self) -> frozenset[DType]:
        """Every element type that something is stored or computed in."""
        bodies = [e for op in self.compute_ops for e in op.expressions]
        bodies += [op.combiner.result for op in self.compute_ops if op.combiner is not None]
        nodes = E.walk(*bodies)
        return frozenset(kind for op in self.ops for kind in op.dtypes) | {
            node.dtype for node in nodes
        }

    @property
    def flop_ct(self) -> float:
        """Operations as AutoTVM counts them: also those of padding predicates."""
        symbolic.refuse(self.symbols, "ComputeDAG.flop_ct")
        return float(sum(op_flops(op) for op in self.compute_ops))

    @cached_property
    def symbols(self) -> tuple[Expr, ...]:
        """The variables that a call gives: those of extents, and integers in expressions."""
        return symbolic.all_symbols(self.ops)

    @cached_property
    def extent_symbols(self) -> tuple[Expr, ...]:
        """Those of extents, which are at least 1."""
        return symbolic.extent_symbols(self.ops)

    def at(self, **values: int) -> ComputeDAG:
        """Give the computation with these numbers for its variables, by their names."""
        made = symbolic.concrete(self.ops, values)
        return ComputeDAG([made[t.op].outputs[t.value_index] for t in self.args])

    def consumers(self, op: Operation) -> tuple[ComputeOp, ...]:
        return tuple(c for c in self.compute_ops if any(t.op is op for t in c.input_tensors))

    def unique_names(self) -> dict[Operation, str]:
        """Give a distinct name for every operation: repeated names get _1, _2, ... in order."""
        names: dict[Operation, str] = {}
        taken: set[str] = set()
        for op in self.ops:
            names[op] = fresh_name(op.name, taken)
            taken.add(names[op])
        return names

    def __str__(self) -> str:
        return "\n".join(op.text for op in self.ops) + "\n"

    __repr__ = __str__

    def to_json(self, open_extents: bool = False) -> dict[str, Any]:
        """Give plain lists and numbers from which `from_json` rebuilds an equal DAG.

        open_extents: whether it may have variables; records are of computations without
        """
        return _Writer(self, open_extents=open_extents).result

    @staticmethod
    def from_json(data: Any) -> ComputeDAG:
        """Invert `to_json`.  Raises ExpressionError for anything else."""
        try:
            found = _read(data)
            found.to_json(open_extents=True)  # variables of its expressions are its axes
            return found
        except _MALFORMED as error:
            raise ExpressionError(
                "ComputeDAG.from_json", f"not a computation ({type(error).__name__}: {error})",
                "Give what to_json returned.",
            ) from None  # fmt: skip

    def named_as(self, data: Any) -> ComputeDAG:
        """Give this computation with the names of operations and axes of an equal one in `data`.

        data: `to_json()` of the other one; nothing but names is taken from it.  Returns this DAG
        where the names are the same.  Raises ExpressionError where the two are not alike.
        """
        own, wanted = self.to_json(), copy.deepcopy(self.to_json())
        try:
            for mine, other in zip(wanted["ops"], data["ops"], strict=True):
                mine[1] = _name(other[1])
                for axis, named in zip(*(_axes(op) for op in (mine, other)), strict=True):
                    axis[0] = _name(named[0])
        except _MALFORMED as error:
            raise ExpressionError("ComputeDAG.named_as", f"not an equal one ({error})") from None
        return self if wanted == own else ComputeDAG.from_json(wanted)

    @property
    def hash(self) -> str:
        """md5 of the structure, shapes and types; names do not count."""
        data = _Writer(self, names=False).result
        return hashlib.md5(json.dumps(data, separators=(",", ":")).encode()).hexdigest()

    def workload_key(self) -> str:
        """Give a JSON list: md5 of the text without shapes of inputs, then each argument's shape.

        To the letter what TVM's auto-scheduler (v0.14) calls the task, so its logs can be matched.
        """
        symbolic.refuse(self.symbols, "ComputeDAG.workload_key")
        shapes = [list(t.shape) for t in self.args]
        return json.dumps([hashlib.md5(self.key_text().encode()).hexdigest(), *shapes])

    def key_text(self) -> str:
        """What the md5 of `workload_key` is of."""
        return "".join(f"{_key_text(op)}\n" for op in self.ops)

    def __reduce__(self) -> tuple[Any, ...]:
        return ComputeDAG.from_json, (self.to_json(open_extents=True),)


def _name_apart(unnamed: Sequence[PlaceholderOp]) -> None:
    """Inputs that nobody named are placeholder, placeholder_1, ..."""
    for k, op in enumerate(unnamed):
        op.name = f"{UNNAMED}_{k}" if k else UNNAMED


def _listed(tensors: Any) -> list[Tensor]:
    several = isinstance(tensors, Iterable) and not isinstance(tensors, Tensor)
    listed = list(tensors) if several else [tensors]
    for item in listed:
        if not isinstance(item, Tensor):
            raise ExpressionError(
                "ComputeDAG", f"{item!r} is no tensor",
                "Pass what te.placeholder and te.compute return: the inputs and the outputs.",
            )  # fmt: skip
    return listed


def fresh_name(name: str, taken: Container[str]) -> str:
    """`name`, or the first of name_1, name_2, ... that is not taken."""
    k, new = 0, name
    while new in taken:
        k += 1
        new = f"{name}_{k}"
    return new


def _topological(roots: Sequence[Operation]) -> list[Operation]:
    order: dict[Operation, None] = {}
    # an explicit argument order decides between independent inputs only after data dependence does
    listed = sorted(roots, key=lambda o: isinstance(o, PlaceholderOp))
    waiting = [(op, False) for op in reversed(listed)]
    while waiting:
        op, entered = waiting.pop()
        if op in order:
            continue
        if entered:
            order[op] = None
            continue
        waiting.append((op, True))
        waiting += [(t.op, False) for t in reversed(op.input_tensors)]
    return list(order)


def _key_text(op: Operation) -> str:
    """Inputs have no shape in a key, and of a call as the whole expression only the name counts."""
    if isinstance(op, PlaceholderOp):
        return f"{op.name} = PLACEHOLDER "
    if op.combiner is not None or op.body.op not in ("call", "if_then_else"):
        return op.text
    head, _, called = op.text.partition(" = ")
    return f"{head} = Op({called.partition('(')[0]})"


def expression_flops(node: Expr, kind: str = "") -> int:
    """Arithmetic, comparisons, logic; a choice costs its dearer side; index arithmetic is free.

    kind: count only what has an operand of that kind ("float", "int", ...); default: everything
    """
    if node.op in ("read", "load", "var", "const"):
        return 0
    parts = [expression_flops(a, kind) for a in node.args]
    if node.op in ("select", "if_then_else"):
        return parts[0] + max(parts[1], parts[2])
    counts = not kind or any(a.dtype.kind == kind for a in node.args)
    own = counts and (node.op in ARITHMETIC or node.op in COMPARE or node.op in LOGIC)
    return int(own) + sum(parts)


def op_flops(op: ComputeOp, kind: str = "") -> int:
    """What all elements of a stage cost, or what its attribute FLOP says; kind: see
    `expression_flops`."""
    said = op.attrs.get("FLOP")
    if isinstance(said, int) and said >= 0:
        return said
    points = math.prod(op.shape)
    if op.combiner is None:
        return points * expression_flops(op.body, kind)
    reduced, term = math.prod(ax.size for ax in op.reduce_axis), op.reduced
    if term.op == "if_then_else" and not any(n.op == "read" for n in E.walk(term.args[0])):
        term = term.args[1]  # which steps there are is index arithmetic
    each = expression_flops(term, kind) + expression_flops(op.combiner.result, kind)
    return points * reduced * each


# -- JSON ------------------------------------------------------------------------------------------


class _Writer:
    def __init__(self, dag: ComputeDAG, names: bool = True, open_extents: bool = False) -> None:
        if not open_extents:
            symbolic.refuse(dag.symbols, "ComputeDAG.to_json")
        self.index = {op: i for i, op in enumerate(dag.ops)}
        self.symbols = {v: k for k, v in enumerate(dag.symbols)}
        self.vars: dict[Expr, int] = {}
        self.names = names
        self.result: dict[str, Any] = {
            "ops": [self._op(op) for op in dag.ops],
            "args": [self._tensor(t) for t in dag.args],
        }
        if self.symbols:
            self.result["symbols"] = [[str(v.attr), str(v.dtype)] for v in self.symbols]

    def _size(self, extent: Any) -> Any:
        return self._expr(extent) if isinstance(extent, Expr) else extent

    def _tensor(self, tensor: Tensor) -> Any:
        """The number of its operation, with its own where that has several."""
        at = self.index[tensor.op]
        return at if len(tensor.op.outputs) == 1 else [at, tensor.value_index]

    def _op(self, op: Operation) -> list[Any]:
        name = op.name if self.names else ""
        if isinstance(op, PlaceholderOp):
            shape = [self._size(n) for n in op.shape]
            return ["placeholder", name, shape, str(op.dtype), int(op.constant)]
        self.vars = {}
        axes = [self._axis(ax) for ax in (*op.axis, *op.reduce_axis)]
        body = op.reduced if op.combiner else op.body
        combiner = self._combiner(op.combiner) if op.combiner else None
        attrs = {k: v for k, v in op.attrs.items() if self.names and _plain(v)}
        tag = op.tag if self.names else ""
        row = [op.kind, name, axes, len(op.axis), combiner, self._expr(body), tag, attrs]
        return [*row, *op.rest_of_json(self._tensor)]

    def _axis(self, ax: IterVar) -> list[Any]:
        self.vars[ax.var] = len(self.vars)
        return [ax.name if self.names else "", self._size(ax.extent), self._size(ax.begin)]

    def _combiner(self, c: Combiner) -> list[Any]:
        if _is_builtin(c):
            return [c.name, str(c.lhs.dtype)]
        for variable in (*parts(c.lhs), *parts(c.rhs)):
            self.vars[variable] = len(self.vars)
        name = c.name if self.names else ""
        kinds = [str(v.dtype) for v in parts(c.lhs)]
        kind = kinds if len(kinds) > 1 else kinds[0]
        return [name, kind, self._expr(c.result), self._expr(c.identity)]

    def _expr(self, node: Expr) -> Any:
        if node.op == "var":
            return ["symbol", self.symbols[node]] if node in self.symbols else self.vars[node]
        if node.op == "const":
            value = node.attr
            if isinstance(value, float) and not math.isfinite(value):
                value = str(value)
            return ["const", str(node.dtype), value]
        args = [self._expr(a) for a in node.args]
        if node.op == "read":
            return ["read", self._tensor(node.attr), *args]
        if node.op == "cast":
            return ["cast", str(node.dtype), *args]
        if node.op == "call":
            return ["call", node.attr, *args]
        return [node.op, *args]


def _is_builtin(c: Combiner) -> bool:
    """Whether `c` is te.sum, prod, max or min, rather than a reducer of that name."""
    if c.name not in ("sum", "prod", "max", "min") or c.lhs.op == "tuple":
        return False
    known = builtin_combiner(c.name, c.lhs.dtype)
    result = E.substitute(c.result, {c.lhs: known.lhs, c.rhs: known.rhs})
    return result is known.result and c.identity is known.identity


def _plain(value: Any) -> bool:
    if isinstance(value, (list, tuple)):
        return all(map(_plain, value))
    return isinstance(value, (int, float, str, bool, type(None)))


def _is(value: Any, kind: type[T]) -> T:
    if not isinstance(value, kind):
        raise TypeError(f"{value!r:.40} is no {kind.__name__}")
    return value


def _axes(op: Any) -> list[Any]:
    axes: list[Any] = op[2] if op[0] in ("compute", "scan") else []
    return axes


def _name(value: Any) -> str:
    if not isinstance(value, str) or len(value) > _NAME_LENGTH or not value.isprintable():
        raise ValueError(f"{value!r:.40} is no name")
    return value


def _read(data: dict[str, Any]) -> ComputeDAG:
    ops: list[Operation] = []
    symbols: list[Expr] = [declared(_name(name), kind) for name, kind in data.get("symbols", ())]

    def size(extent: Any) -> Any:
        if isinstance(extent, int):
            return extent
        made = expr(extent, [])
        if not is_extent(made):
            raise ValueError(f"{made} is no extent")
        return made

    def tensor(at: Any) -> Tensor:
        op, value = (at, 0) if isinstance(at, int) else at
        return ops[op].outputs[value]

    def expr(node: Any, variables: list[Expr]) -> Expr:
        if isinstance(node, int):
            return variables[node]
        op, *rest = node
        if op == "symbol":
            named: Expr = symbols[rest[0]]
            return named
        if op == "const":
            return E.const(float(rest[1]) if isinstance(rest[1], str) else rest[1], rest[0])
        if op == "read":
            return tensor(rest[0])[tuple(expr(a, variables) for a in rest[1:])]
        if op == "cast":
            return E.cast(rest[0], expr(rest[1], variables))
        args = tuple(expr(a, variables) for a in (rest[1:] if op == "call" else rest))
        if op == "tuple":
            return together(args)
        if op == "call":
            return E.call(rest[0], *args)
        if op in ("select", "if_then_else"):
            return getattr(E, op)(*args)  # type: ignore[no-any-return]
        return E.logical_not(args[0]) if op == "not" else E.binary(op, *args)

    for item in data["ops"]:
        if item[0] == "placeholder":
            shape = tuple(size(n) for n in item[2])
            ops.append(PlaceholderOp(_is(item[1], str), shape, item[3], bool(item[4])))
            continue
        kind, name, axes, spatial, combiner, body, tag, attrs, *narrowed = item
        iters = [
            IterVar(
                _is(n, str), size(extent), "spatial" if k < spatial else "reduce",
                begin=size(begin),
            )
            for k, (n, extent, begin) in enumerate(axes)
        ]  # fmt: skip
        variables = [ax.var for ax in iters]
        if combiner is None:
            node = expr(body, variables)
        else:
            if len(combiner) == 2:
                reducer = builtin_combiner(combiner[0], DType(combiner[1]))
            else:
                kinds = [combiner[1]] if isinstance(combiner[1], str) else combiner[1]
                lhs, rhs = ([E.var(side, kind) for kind in kinds] for side in ("lhs", "rhs"))
                both = [*variables, *lhs, *rhs]
                result, identity = (expr(part, both) for part in combiner[2:])
                reducer = Combiner(combiner[0], together(lhs), together(rhs), result, identity)
            value = expr(body, variables)
            node = E.make("reduce", (value,), (reducer, tuple(iters[spatial:])), value.dtype)
            node = E.cast(narrowed[0], node) if narrowed else node
        made = (_is(name, str), tuple(iters[:spatial]), node, _is(tag, str), _is(attrs, dict))
        if kind == recurrence.ScanOp.kind:
            states, first = [tensor(t) for t in narrowed[0]], _is(narrowed[1], int)
            ops.append(recurrence.ScanOp(*made, states=states, first=first))
        else:
            ops.append(ComputeOp(*made))
    return ComputeDAG([tensor(at) for at in data["args"]])
