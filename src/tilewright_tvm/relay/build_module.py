"""`relay.build_module`: what builds networks, where TVM has it.

Read next: `network/build.py`, `executor.py`.
"""

from collections.abc import Mapping
from typing import Any

from tilewright.base.doors import door, open_doors
from tilewright.base.errors import ModelError, absent
from tilewright.graph.expr import Function, IRModule
from tilewright.graph.passes import bind_params
from tilewright_tvm.relay.contextual import build, optimize
from tilewright_tvm.relay.executor import create_executor

__all__ = ["bind_params_by_name", "build", "create_executor", "optimize"]
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
