"""`relay.vm`: networks for `runtime.vm.VirtualMachine`.

In: a module.  Out: an `Executable`.  Read next: `compile/vm.py`.
"""

from collections.abc import Mapping
from typing import Any

from tilewright.base.doors import open_doors
from tilewright.base.errors import ModelError, absent
from tilewright.graph.expr import IRModule
from tilewright.graph.passes import optimize
from tilewright.network.vm import Executable, compile
from tilewright.targets.target import TargetLike

__all__ = ["Executable", "VMCompiler", "compile"]


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
