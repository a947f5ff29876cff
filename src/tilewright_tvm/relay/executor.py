"""`relay.create_executor`: a function of a network as a function of Python.

In: a kind ("graph", "vm", "debug"), a module or none, a device.  Out: `evaluate`, which gives
values, or callables that take arrays and give arrays.
Read next: `executable.py`, `contextual.py`; `graph/evaluate.py` for "debug".
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from tilewright.base.doors import door
from tilewright.base.dtype import DType
from tilewright.base.errors import ModelError
from tilewright.graph.evaluate import evaluate
from tilewright.graph.expr import Expr, Function, IRModule, Var, as_array, free_vars
from tilewright.graph.leaves import const
from tilewright.graph.traversal import substitute
from tilewright.runtime.device import Device
from tilewright.runtime.device import device as device_of
from tilewright.runtime.ndarray import array, converted
from tilewright.targets.target import Target, TargetLike
from tilewright_tvm.relay.functional import definitions
from tilewright_tvm.relay.functional.nodes import make_function
from tilewright_tvm.relay.functional.pool import evaluated
from tilewright_tvm.relay.vm import Executable
from tilewright_tvm.runtime.virtual_machine import VirtualMachine, ordered, shape_of


@door(ModelError, "relay.create_executor")
def create_executor(
    kind: str = "debug",
    mod: IRModule | None = None,
    device: Device | None = None,
    target: TargetLike = "llvm",
    params: Mapping[str, Any] | None = None,
) -> Executor:
    """Make what evaluates expressions and functions.

    kind:   "graph": built for `target` when `evaluate` is called; "vm": the same, but open extents
            may be what the arrays of each call say; "debug": numpy, one operator at a time,
            whatever the target
    mod:    whose "main" `evaluate()` takes
    device: where results are, and where kernels run; default: that of the target
    params: weights of main by name, which become constants
    """
    if kind not in _KINDS:
        raise ModelError(
            f"relay.create_executor({kind!r})", "there is no such kind",
            f"Use one of {', '.join(_KINDS)}; lib.export_library is for use without Python.",
        )  # fmt: skip
    chosen = Target(target)
    return Executor(kind, mod, device or device_of(str(chosen)), chosen, dict(params or {}))


class Executor:
    """Evaluates on one device; `create_executor` makes it."""

    def __init__(
        self, kind: str, mod: IRModule | None, device: Device, target: Target,
        params: Mapping[str, Any],
    ) -> None:  # fmt: skip
        self.kind, self.mod, self.device, self.target = kind, mod, device, target
        self.params = params

    @door(ModelError)
    def evaluate(
        self, expr: Expr | str | None = None, binds: Mapping[Var, Any] | None = None
    ) -> Any:
        """Give the value of an expression, or a callable for a function.

        expr:  default: main of the module; a string names another of its functions
        binds: values for free variables of an expression
        A callable takes arrays, in the order of the parameters or by their names, and gives an
        NDArray, or a list of them for a tuple.
        Raises ModelError for a variable without a value, and whatever relay.build raises.
        """
        if expr is None or isinstance(expr, str):
            if self.mod is None:
                raise ModelError(
                    "evaluate", "the executor has no module",
                    "Give an expression, or create_executor(mod=).",
                )  # fmt: skip
            if expr is None or expr == "main":
                return self._run(self.mod, self.params)
            expr = self.mod[str(expr)]
        given: dict[Expr, Expr] = {
            v: x if isinstance(x, Expr) else const(as_array(x)) for v, x in (binds or {}).items()
        }
        found = substitute(expr, given) if given else expr
        if isinstance(found, Function):
            return self._callable(found)
        if free := [v.name_hint for v in free_vars(found)]:
            raise ModelError(
                "evaluate", f"{', '.join(free)} has no value", "Give it in binds=, or a function."
            )
        return self._callable(make_function([], found))()

    def _callable(self, function: Function) -> Callable[..., Any]:
        return self._run(definitions.IRModule.from_expr(function), {})

    def _run(self, mod: IRModule, params: Mapping[str, Any]) -> Callable[..., Any]:
        built = Executable(mod, self.target, params, types_by_values=self.kind != "graph")
        return _KINDS[self.kind](self, built)


def _graph(executor: Executor, built: Executable) -> Callable[..., Any]:
    _ = built.library  # built now; an open extent is refused now
    return _vm(executor, built)


def _vm(executor: Executor, built: Executable) -> Callable[..., Any]:
    machine = VirtualMachine(built, executor.device)

    def run(*args: Any, **named: Any) -> Any:
        machine.set_input("main", *args, **named)  # each call gives all of them
        return machine.invoke("main")

    return run


def _debug(executor: Executor, built: Executable) -> Callable[..., Any]:
    program = built.program
    if program is not None:
        return lambda *args, **named: program.run(
            ordered(program.input_names, args, named, "evaluate"), evaluated, executor.device, False
        )

    def run(*args: Any, **named: Any) -> Any:
        values = built.tensors(ordered(built.input_names, args, named, "evaluate"))
        main = built.sized([shape_of(v) for v in values])
        types: dict[str, DType] = {p.name_hint: p.dtype for p in main.params}
        given = {**dict(zip(built.tensor_names, values, strict=True)), **built.params}
        checked = {
            name: converted(as_array(value), types[name], f"evaluate({name})")
            for name, value in given.items()
        }
        return arrays(evaluate(main, checked))

    def arrays(value: Any) -> Any:
        is_tuple = isinstance(value, tuple)
        return [*map(arrays, value)] if is_tuple else array(np.asarray(value), executor.device)

    return run


_KINDS: dict[str, Callable[[Executor, Executable], Callable[..., Any]]] = {
    "graph": _graph, "vm": _vm, "debug": _debug,
}  # fmt: skip
