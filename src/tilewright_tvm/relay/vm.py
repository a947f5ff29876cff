"""`relay.vm`: networks for `runtime.vm.VirtualMachine`, as TVM has them.

In: a module.  Out: an `Executable`.  Read next: `executable.py`.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tilewright.base.doors import open_doors
from tilewright.base.errors import ModelError, absent
from tilewright.driver.build import resolve_target
from tilewright.graph.expr import Function, IRModule
from tilewright.runtime.device import Device
from tilewright.runtime.network.library import Library
from tilewright.targets.target import Target, TargetLike
from tilewright_tvm.relay import executable
from tilewright_tvm.relay.contextual import build, optimize
from tilewright_tvm.relay.functional import definitions
from tilewright_tvm.relay.functional.calls import is_program
from tilewright_tvm.relay.functional.program import Program
from tilewright_tvm.relay.functional.untyped import has_untyped

__all__ = ["Executable", "VMCompiler", "compile"]

_SAVED = "Constants and code are one file: exe.export_library(path), runtime.load_module(path)."
_NOT_THERE = {
    **dict.fromkeys(
        ("save", "load_exec", "move_late_bound_consts", "load_late_bound_consts",
         "get_late_bound_consts", "load_late_bound_consts_from_map"), _SAVED,
    ),
    **dict.fromkeys(
        ("bytecode", "globals", "primitive_ops", "constants", "virtual_devices", "stats"),
        "Print exe.library.report: it names each kernel and its schedule.",
    ),
}  # fmt: skip


class Executable(executable.Executable):
    """A network, built for the shapes it is called with.

    mod:    the network; params: weights by name, which become constants
    types_by_values: variables whose types nothing tells have those of the values of each call
    Options of `transform.PassContext` and schedules count where it is called for new shapes.
    """

    def __init__(
        self,
        mod: IRModule,
        target: TargetLike | None = None,
        params: Mapping[str, Any] | None = None,
        types_by_values: bool = False,
    ) -> None:
        self._types_by_values = types_by_values
        super().__init__(mod, target, params, build)

    def _take(self, mod: IRModule) -> None:
        main = mod.functions.get("main")
        by_values = main is not None and self._types_by_values and has_untyped(main)
        if main is None or not (by_values or is_program(main)):
            return super()._take(mod)
        self.program = Program(main, self.params)
        self.network, self.tuples, self.open_names = mod, {}, ()

    @property
    def input_names(self) -> tuple[str, ...]:
        """What a call gives: tensors, and tuples of them; of a functional network any values."""
        return super().input_names if self.program is None else tuple(self.program.input_names)

    def called(
        self, values: Sequence[Any], run: Callable[[Library, Sequence[Any]], Sequence[Any]],
        device: Device,
    ) -> Any:  # fmt: skip
        """Give the result for these values of `input_names`, of a functional network; run, what is
        kept and errors as for `staged`."""
        return self.program.run(values, lambda part, inputs: run(self.part(part), inputs), device)

    @property
    def mod(self) -> Library:
        """`library`, as scripts for TVM ask for it: `exe.mod.export_library(path)`."""
        return self.library

    def __getattr__(self, name: str) -> Any:
        raise absent("relay.vm.Executable", name, _NOT_THERE)


def compile(
    mod: IRModule | Function,
    target: TargetLike | None = None,
    target_host: TargetLike | None = None,
    params: Mapping[str, Any] | None = None,
) -> Executable:
    """A network for `runtime.vm.VirtualMachine`; one without open extents, in which no values
    decide shapes, is built at once.

    target_host, params: as for `relay.build`
    """
    module = mod if isinstance(mod, IRModule) else definitions.IRModule.from_expr(mod)
    made = Executable(module, Target(resolve_target(target), target_host), params)
    if made.program is None and not made.open_names and not made.waits:
        _ = made.library
    return made


class VMCompiler:
    """`compile` in steps: `lower`, `codegen`, `get_exec`."""

    def __init__(self) -> None:
        self.params: dict[str, Any] = {}
        self._built: Executable | None = None

    def set_params(self, params: Mapping[str, Any]) -> None:
        """Weights by name, which become constants of what is lowered next."""
        self.params = dict(params)

    def optimize(
        self, mod: IRModule, target: TargetLike | None = None,
        target_host: TargetLike | None = None, params: Mapping[str, Any] | None = None,
    ) -> tuple[IRModule, dict[str, Any]]:  # fmt: skip
        """The module after the passes of a build, and its weights, which are constants in it.

        Raises ModelError for a network with open extents, or values that decide shapes.
        """
        return optimize(mod, {**self.params, **(params or {})}), {}

    def lower(
        self, mod: IRModule, target: TargetLike | None = None,
        target_host: TargetLike | None = None,
    ) -> None:  # fmt: skip
        """What is to be compiled."""
        self._built = compile(mod, target, target_host, self.params)

    def codegen(self) -> None:
        """Nothing more: `lower` has compiled what can be compiled now."""
        self.get_exec()

    def get_exec(self) -> Executable:
        """What was compiled.  Raises ModelError before `lower`."""
        if self._built is None:
            raise ModelError("VMCompiler.get_exec", "nothing was lowered", "Call lower(mod).")
        return self._built


open_doors(globals(), __all__, ModelError)

_ELSEWHERE = {"VMExecutor": 'Use relay.create_executor("vm").'}


def __getattr__(name: str) -> Any:
    raise absent("relay.vm", name, _ELSEWHERE)
