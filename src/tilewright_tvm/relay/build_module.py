"""`relay.build_module`: what builds networks, where TVM has it.

Read next: `compile/build.py`, `executor.py`.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from tilewright.base.doors import door, open_doors
from tilewright.base.errors import ModelError, absent
from tilewright.graph.expr import Function, IRModule
from tilewright.graph.passes import bind_params, optimize
from tilewright.network import build as network
from tilewright.runtime.network.library import Library
from tilewright.targets.target import TargetLike
from tilewright_tvm.relay.backend import Executor, Runtime
from tilewright_tvm.relay.executor import create_executor

__all__ = ["bind_params_by_name", "build", "create_executor", "optimize"]


def build(
    mod: IRModule | Function | Sequence[IRModule | Function],
    target: TargetLike | None = None,
    params: Mapping[str, Any] | None = None,
    schedules: Any = None,
    target_host: TargetLike | None = None,
    *,
    verify: bool = True,
    batch_sizes: Sequence[int] | None = None,
    sizes: Sequence[Mapping[str, int]] | None = None,
    partial_batches: bool = False,
    executor: Executor | None = None,
    runtime: Runtime | None = None,
    use_knowledge: bool = True,
) -> Library:
    """Compile a network: see `tilewright.network.build.build`.

    executor, runtime: what scripts for TVM pass on; `relay.backend` refuses those there are not
    """
    return network.build(
        mod, target, params, schedules, target_host, verify=verify, batch_sizes=batch_sizes,
        sizes=sizes, partial_batches=partial_batches, use_knowledge=use_knowledge,
    )  # fmt: skip


open_doors(globals(), ("build", "optimize"), ModelError)


@door(ModelError, "relay.build_module.bind_params_by_name")
def bind_params_by_name(func: Function, params: Mapping[str, Any]) -> Function:
    """`func` with the parameters named in `params` made constants."""
    return bind_params(IRModule.from_expr(func), params)["main"]


def __getattr__(name: str) -> Any:
    raise absent(
        "relay.build_module", name,
        {
            "BuildModule": "Use relay.build.",
            "GraphExecutor": 'Use relay.create_executor("graph").',
            "build_config": "Use transform.PassContext.",
        },
    )  # fmt: skip
