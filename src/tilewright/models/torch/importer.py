"""Import of programs of PyTorch: ATen operators become operators of networks.

In: a `Program`.  Out: `(mod, params)`: weights are parameters of main under their names in the
module.  What blocks an import is collected, and told once.  Read next: `ops/__init__.py`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from tilewright.base.dtype import TYPES, DType
from tilewright.base.errors import ModelError
from tilewright.graph.deferred import Deferred, NotYet
from tilewright.graph.expr import (
    Array,
    Constant,
    Expr,
    Function,
    IRModule,
    Tuple,
    TupleGetItem,
    TupleType,
    Var,
    free_vars,
)
from tilewright.graph.layers import adopt
from tilewright.graph.leaves import const, var
from tilewright.graph.traversal import unpacked
from tilewright.models.limits import Limits
from tilewright.models.torch.control import CONTROL
from tilewright.models.torch.node import PARTS, Complex, Node, as_type
from tilewright.models.torch.ops import COMPLEX, CONVERTERS
from tilewright.models.torch.program import Program, Ref, Spec, Step, extent_of, live, refs

_MOST_LINES = 30
_CHECKS = ("_assert_", "sym_constrain_range")  # they compute nothing
_NO_TYPE = "what is not there, or of a type that there is not here"
_COMPLEX_OUTPUT = ("its numbers are complex", "Return torch.view_as_real of it.")
_EXAMPLES = 2  # names of nodes in a line
# What a converter raises over arguments that are not those of the operator's schema.
_UNREAD = (ArithmeticError, AttributeError, LookupError, TypeError, ValueError)
OPERATORS = "models.torch.ops.CONVERTERS lists the operators that can be imported."


def import_program(
    program: Program, place: str, limits: Limits | None = None, staged: bool = True
) -> tuple[IRModule, dict[str, Array]]:
    """The network of `program` and its weights.

    place:  of errors
    staged: data may decide shapes, which networks compute in stages
    Raises ModelError, once for everything that blocks the import.
    """
    return _Importer(program, place, limits or Limits(), staged).run()


class Blocked(ModelError):
    """steps: the names of those that cannot be imported."""

    def __init__(self, place: str, reason: str, way_out: str, steps: frozenset[str]) -> None:
        super().__init__(place, reason, way_out)
        self.steps = steps


class _Importer:
    """One import.

    values:  by name, lists where there are several; None: what has no type here
    blocked: names of steps, by operator, reason and way out
    behind:  names of steps that read what has no type
    calls:   steps by name
    """

    def __init__(self, program: Program, place: str, limits: Limits, staged: bool) -> None:
        self.program, self.place, self.limits, self.staged = program, place, limits, staged
        self.specs: dict[str, Spec] = dict(program.inputs)
        self.values: dict[str, Any] = {}
        self.params: dict[str, Array] = {}
        self.blocked: dict[tuple[str, str, str], list[str]] = {}
        self.behind: list[str] = []
        self.calls = {step.name: step for step in program.steps}
        self.constant_bytes = 0

    def run(self) -> tuple[IRModule, dict[str, Array]]:
        self.limits.check("nodes", len(self.program.steps), self.place)
        every = [self._input(name, spec) for name, spec in self.program.inputs]
        inputs = [v for v in every if v is not None]
        for name, array in self.program.weights.items():
            self.values[name] = self._weight(name, array)
        self._steps()
        if not self.staged:
            self._block_complex_outputs()
        self._check()
        given = enumerate(self.program.outputs)
        outputs = [self._output(k, o) for k, o in given if o is not None]
        if not outputs:
            raise ModelError(self.place, "the module returns no tensor", "Return what it computes.")
        body = outputs[0] if len(outputs) == 1 else Tuple(outputs)
        self.limits.check_graph(body)
        weights = [v for v in free_vars(body) if v not in inputs]
        main = Function([*inputs, *weights], body)
        return IRModule({"main": main}), {v.name_hint: self.params[v.name_hint] for v in weights}

    def _steps(self) -> None:
        for step in live(self.program):
            made = self._convert(step)
            for value in _listed(made):
                for part in (value.real, value.imag) if isinstance(value, Complex) else (value,):
                    if isinstance(part, Expr):
                        adopt(part, (step.layer or step.name,))
            self.values[step.name] = made

    def _check(self) -> None:
        if self.blocked or self.behind:
            names = {name for found in self.blocked.values() for name in found}
            steps = frozenset(names.union(self.behind))
            raise Blocked(self.place, self._blockers(), OPERATORS, steps)

    def _block_complex_outputs(self) -> None:
        """Others may run what gives them."""
        for name in refs(list(self.program.outputs)):
            call = self.calls.get(name)
            if call is not None and isinstance(self.values.get(name), Complex):
                source = call.args["self"].name if call.op == "getitem" else name
                reason, way_out = _COMPLEX_OUTPUT
                self._block(self.calls[source], f"it is an output, and {reason}", way_out)

    def _expanded(self, place: str, body: Program, given: Sequence[Any]) -> list[Expr]:
        """What a branch, or a trip of a loop, gives for `given` values.

        place: of the ModelError for all that blocks it
        """
        inner = _Importer(body, self.place, self.limits, self.staged)
        inner.params, inner.constant_bytes = self.params, self.constant_bytes
        inner.values = {k: Constant(array) for k, array in body.weights.items()}
        inner.values |= zip((name for name, _ in body.inputs), given, strict=True)
        try:
            inner._steps()
            inner._check()
        except Blocked as error:
            inside = "; ".join(line.strip() for line in error.reason.splitlines()[1:])
            raise ModelError(place, f"inside it {inside}") from None
        self.constant_bytes = inner.constant_bytes
        return [inner._output(k, o) for k, o in enumerate(body.outputs)]

    def static(self, value: Expr) -> Array | None:
        """The array of `value` where it is known now."""
        if isinstance(value, Constant):
            return value.data
        return self.params.get(value.name_hint) if isinstance(value, Var) else None

    def _input(self, name: str, spec: Spec) -> Var | None:
        """None, and noted, where networks have no such input but others may run what reads it."""
        try:
            self._fit(name, spec)
        except ModelError as e:
            if self.staged:
                raise
            self.blocked.setdefault(("input", e.reason, e.way_out), []).append(name)
            return None
        made = var(name, shape=spec.shape, dtype=spec.dtype)
        self.values[name] = made
        return made

    def _fit(self, name: str, spec: Spec) -> None:
        """Raises ModelError for what is no input of a network."""
        place = f"{self.place}: input {name!r}"
        if spec.dtype in PARTS:
            raise ModelError(
                place, f"its element type is {spec.dtype}",
                "Take torch.view_as_real(x), and read it with torch.view_as_complex.",
            )  # fmt: skip
        if spec.dtype not in TYPES:
            raise ModelError(
                place, f"its element type is {spec.dtype}", f"Supported are {', '.join(TYPES)}."
            )
        if open_ := [str(n) for n in spec.shape if not isinstance(n, int)]:
            raise ModelError(
                place, f"its extent {', '.join(open_)} is open",
                "Export the module without dynamic_shapes, once for each shape.",
            )  # fmt: skip

    def _weight(self, name: str, array: Array) -> Expr | Complex:
        """Floating-point tensors become parameters, all else constants."""
        if array.dtype.name in PARTS:
            real, imag = (
                self._weight(f"{name}.{part}", np.ascontiguousarray(getattr(array, part)))
                for part in ("real", "imag")
            )
            assert isinstance(real, Expr) and isinstance(imag, Expr)
            return Complex(real, imag)
        if array.dtype.name not in TYPES:
            raise ModelError(
                f"{self.place}: weight {name!r}", f"its element type is {array.dtype}",
                f"Supported are {', '.join(TYPES)}.",
            )  # fmt: skip
        if not array.ndim or not DType(array.dtype).is_float:
            return Constant(array)
        self.params[name] = array
        return var(name, shape=array.shape, dtype=array.dtype.name)

    def _output(self, index: int, given: Any) -> Expr:
        value = self.values.get(given.name) if isinstance(given, Ref) else given
        if isinstance(value, Expr):
            return value
        if isinstance(value, (bool, int, float)):
            return const(value)
        if isinstance(value, Complex):
            raise ModelError(f"{self.place}: output {index}", *_COMPLEX_OUTPUT)
        what = f"{value!r}, not a tensor" if value is not None else "what is not computed here"
        raise ModelError(f"{self.place}: output {index}", f"it is {what}", "Return tensors.")

    # -- steps -------------------------------------------------------------------------------------

    def _convert(self, step: Step) -> Any:
        given = list(refs(list(step.args.values())))
        if step.op.startswith(_CHECKS):
            return None
        if not step.several and step.results and step.results[0] is not None:
            self.specs[step.name] = step.results[0]
        if any(self.values.get(name) is None for name in given):
            return None if step.op == "getitem" else self._passed_over(step)
        if step.op == "getitem":
            found = self.values[given[0]][step.args["index"]]
            return self._left_out(step, given[0]) if found is None else found
        values = {name: self.values[name] for name in given}
        of_complex = any(isinstance(v, Complex) for v in values.values())
        try:
            made = self._made(step, values)
            if self.staged or not any(isinstance(v, Expr) and v.waits for v in _listed(made)):
                return made
            return self._block(step, "how many results there are depends on the data")
        except NotYet as e:
            if of_complex or not self.staged:
                return self._block(step, e.reason)
            return self._later(step, values, e)
        except ModelError as e:
            if e.place == self._place(step):
                return self._block(step, e.reason, e.way_out)
            graphs = "relay." in e.way_out  # it is for who writes them
            return self._block(step, f"{e.place}: {e.reason}", *([] if graphs else [e.way_out]))
        except _UNREAD as e:
            reason = f"its arguments are not understood ({type(e).__name__}: {e})"
            return self._block(step, reason, "Please report it.")

    def _left_out(self, item: Step, source: str) -> Any:
        """A stand-in for one of several results, which the converter of `source` does not give:
        that call is blocked, unless it is already, or this is no tensor."""
        stopped = any(source in names for names in self.blocked.values()) or source in self.behind
        if stopped or item.results[0] is None:
            return None
        self._block(
            self.calls[source], f"its result {item.args['index']} is not computed here",
            "Use its other results only, or compute this one outside.",
        )  # fmt: skip
        return self._stand_in(item)

    def _place(self, step: Step) -> str:
        return f"{self.place}: {step.name} ({step.op})"

    def _made(self, step: Step, values: Mapping[str, Any]) -> Any:
        """What a step gives.  values: of what it reads

        Raises NotYet where data decide it.
        """
        of_complex = any(isinstance(v, Complex) for v in values.values()) or any(
            spec is not None and spec.dtype in PARTS for spec in step.results
        )
        converter = (COMPLEX if of_complex else CONVERTERS).get(step.op)
        if step.op in CONTROL and not of_complex:
            converter = partial(CONTROL[step.op], partial(self._expanded, self._place(step)))
        if converter is None:
            reason = f"no converter{' for complex numbers' * of_complex}"
            raise ModelError(self._place(step), reason)
        there, extents = dict(values), dict[str, int]()
        for name, value in values.items():
            there[name] = _told(value, self.specs.get(name), extents)
        results = tuple(_with_extents(spec, extents) for spec in step.results)
        args = {name: _resolved(value, there) for name, value in step.args.items()}
        node = Node(step.op, self._place(step), args, results, self.static, self._room)
        return self._checked(step, node, converter(node))

    def _later(self, step: Step, values: Mapping[str, Any], wait: NotYet) -> Any:
        """What stands for the results of a step until it is known what it waits for."""
        read = {name: _listed(value) for name, value in values.items()}
        parts = list(dict.fromkeys(v for items in read.values() for v in items))

        def make(given: Sequence[Expr]) -> Expr:
            there = dict(zip(parts, given, strict=True))
            return self._made_then(step, {
                name: [there[v] for v in value] if isinstance(value, list) else there[value]
                for name, value in values.items()
            })  # fmt: skip

        error = NotYet(wait.node, wait.by_value, self._place(step), wait.reason)
        try:
            later = Deferred(parts, wait.among(parts), make, error)
        except NotYet as never:
            return self._block(step, never.reason, never.way_out)
        if not step.several:
            return later
        return [unpacked(TupleGetItem(later, k)) for k in range(len(step.results))]

    def _made_then(self, step: Step, values: Mapping[str, Any]) -> Expr:
        """`_made` when more is known, the limits again those of one import."""
        before = self.constant_bytes
        try:
            made = self._made(step, values)
        finally:
            self.constant_bytes = before
        if not step.several:
            assert isinstance(made, Expr)
            return made
        return Tuple([v if isinstance(v, Expr) else Tuple([]) for v in made])

    def _checked(self, step: Step, node: Node, made: Any) -> Any:
        """What the converter made, with the types that PyTorch says the results have."""
        if isinstance(made, Expr) and made.waits and step.several:
            made = [unpacked(TupleGetItem(made, k)) for k in range(len(step.results))]
        elif isinstance(made, Expr) and not made.waits and isinstance(made.checked_type, TupleType):
            made = list(made)
        values = list(made) if isinstance(made, (list, tuple)) else [made]
        found = [
            None if value is None or spec is None else _typed(node, value, spec)
            for value, spec in zip(values, node.results, strict=False)
        ]
        return found if step.several else found[0]

    def _room(self, nbytes: int) -> None:
        """Asks for `nbytes` of constants that the module does not hold."""
        self.constant_bytes += nbytes
        self.limits.check("constants", self.constant_bytes, self.place)

    def _block(self, step: Step, reason: str, way_out: str = "") -> Any:
        """Note it; what follows is read as if it were there."""
        self.blocked.setdefault((step.op, reason, way_out), []).append(step.name)
        return self._stand_in(step)

    def _passed_over(self, step: Step) -> Any:
        self.behind.append(step.name)
        return self._stand_in(step)

    def _stand_in(self, step: Step) -> Any:
        values = [self._unknown(f"{step.name}.{k}", spec) for k, spec in enumerate(step.results)]
        return values if step.several else values[0]

    def _unknown(self, name: str, spec: Spec | None) -> Var | Complex | None:
        if spec is not None and spec.dtype in PARTS:
            real = self._unknown(name, Spec(spec.shape, PARTS[spec.dtype]))
            return Complex(real, None) if isinstance(real, Var) else None
        if spec is None or spec.dtype not in TYPES or spec.number is not None:
            return None
        known = all(isinstance(n, int) for n in spec.shape)
        return var(name, shape=spec.shape, dtype=spec.dtype) if known else None

    def _blockers(self) -> str:
        """What blocks the import, most frequent first, in a bounded number of lines."""
        total = sum(map(len, self.blocked.values()))
        lines = [f"{total} of {len(self.program.steps)} calls cannot be imported"]
        ordered = sorted(self.blocked.items(), key=lambda item: -len(item[1]))
        room = _MOST_LINES - 4
        for (op, reason, way_out), names in ordered[:room]:
            text = " ".join(f"{reason}. {way_out}".split()).removesuffix(" ")
            lines.append(f"  {len(names)} x {op} ({_some(names)}): {text[:240]}")
        if len(ordered) > room:
            left = sum(len(names) for _, names in ordered[room:])
            lines.append(f"  {left} more, of {len(ordered) - room} other kinds")
        if self.behind:
            lines.append(f"  {len(self.behind)} ({_some(self.behind)}) read {_NO_TYPE}")
        return "\n".join(lines)


def _some(names: Sequence[str]) -> str:
    return ", ".join(names[:_EXAMPLES]) + (", ..." if len(names) > _EXAMPLES else "")


def _typed(node: Node, value: Expr | Complex, spec: Spec) -> Expr | Complex:
    """`value` with the elements that `spec` says."""
    if isinstance(value, Complex):
        part = Spec(spec.shape, PARTS[spec.dtype])
        real, imag = (None if v is None else _typed(node, v, part)
                      for v in (value.real, value.imag))  # fmt: skip
        assert isinstance(real, Expr) and not isinstance(imag, Complex)
        return Complex(real, imag)
    if value.waits:
        return value
    node.require(
        _fits(value.shape, spec.shape),
        f"the result has shape {value.shape}, PyTorch says {spec.shape}",
        "Please report it.",
    )
    return as_type(value, spec.dtype)


def _fits(shape: tuple[int, ...], spec: tuple[int | str, ...]) -> bool:
    return len(shape) == len(spec) and all(
        isinstance(wanted, str) or wanted == found
        for found, wanted in zip(shape, spec, strict=True)
    )


def _told(value: Any, spec: Spec | None, extents: dict[str, int]) -> Any:
    """`value`, a number where PyTorch has one; what it tells of open extents goes to `extents`.

    Raises NotYet where that is not known yet.
    """
    if spec is None or not isinstance(value, Expr):
        return value
    if spec.number is not None and DType(spec.dtype).is_index:
        known = value.as_numbers()
        if known is None:
            raise NotYet(value, by_value=True)
        extents[spec.number] = int(known)
        return int(known)
    for k, extent in enumerate(spec.shape):
        if isinstance(extent, str):
            extents[extent] = value.shape[k]
    return value


def _with_extents(spec: Spec | None, known: Mapping[str, int]) -> Spec | None:
    if spec is None:
        return None
    found = (extent_of(n, known) if isinstance(n, str) else n for n in spec.shape)
    return replace(spec, shape=tuple(found))


def _listed(value: Any) -> Sequence[Any]:
    return value if isinstance(value, (list, tuple)) else [value]


def _resolved(value: Any, known: Mapping[str, Any]) -> Any:
    if isinstance(value, Ref):
        return known[value.name]
    if isinstance(value, (list, tuple)):
        return [_resolved(item, known) for item in value]
    return value
