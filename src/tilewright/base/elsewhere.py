"""Imports of TVM's names: those that are not here say what to use instead, or are found elsewhere.

`from tilewright import micro` and `import tilewright.micro` ask for a module; Python's own words
for one that is missing name nothing else.  In: the `_ELSEWHERE` table of the package that lacks it,
from which `errors.absent` makes the text for attributes; `ALSO`.  Out: an ImportError with that
text; the module that has another name here.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib import import_module
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType

ROOT = "tilewright"

# Packages and files that stand in another room than TVM has them in.
ALSO = {
    "tilewright.auto_scheduler.cost_model.cost_model": "tilewright.auto_scheduler.cost_model",
    "tilewright.auto_scheduler.cost_model.xgb_model": "tilewright.auto_scheduler.cost_model",
    "tilewright.autotvm.tuner.callback": "tilewright.autotvm.callback",
    "tilewright.autotvm.tuner.ga_tuner": "tilewright.autotvm.tuners",
    "tilewright.autotvm.tuner.index_based_tuner": "tilewright.autotvm.tuners",
    "tilewright.autotvm.tuner.tuner": "tilewright.autotvm.tuners",
    "tilewright.autotvm.tuner.xgboost_cost_model": "tilewright.autotvm.xgboost_cost_model",
    "tilewright.autotvm.tuner.xgboost_tuner": "tilewright.autotvm.xgb_tuner",
    "tilewright.autotvm.task.dispatcher": "tilewright.autotvm.dispatch",
    "tilewright.autotvm.task.topi_integration": "tilewright.autotvm.topi_integration",
    "tilewright.driver.build_module": "tilewright.driver.build",
    "tilewright.driver.tvmc": "tilewright.tvmc",
    "tilewright.ir.instrument": "tilewright.instrument",
    "tilewright.ir.module": "tilewright.relay.graph.expr",
    "tilewright.ir.transform": "tilewright.transform",
    "tilewright.relay.backend.vm": "tilewright.relay.vm",
    "tilewright.relay.op.op": "tilewright.relay.op",
    "tilewright.topi.cuda.conv3d_winograd": "tilewright.topi.tile_sizes",
    "tilewright.topi.cuda.conv2d": "tilewright.topi.cuda",
    "tilewright.topi.cuda.depthwise_conv2d": "tilewright.topi.cuda",
    "tilewright.topi.generic.conv2d": "tilewright.topi.generic",
    "tilewright.topi.nn.util": "tilewright.topi.nn.utils",
    "tilewright.topi.x86.conv2d": "tilewright.topi.x86",
    "tilewright.topi.nn.depthwise_conv2d": "tilewright.topi.nn.depthwise",
    "tilewright.topi.x86.conv2d_avx_common": "tilewright.topi.cpu_fallback",
    "tilewright.topi.x86.depthwise_conv2d": "tilewright.topi.cpu_fallback",
    "tilewright.target.codegen": "tilewright.driver.codegen",
    "tilewright.tir.ir_builder": "tilewright.te.ir_builder",
    "tilewright.tir.stmt_functor": "tilewright.te.stmt_functor",
}


class _Same(Loader):
    """Gives the module `name`, which stays what it is."""

    def __init__(self, name: str) -> None:
        self.module = import_module(name)
        self.spec = self.module.__spec__

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        return self.module

    def exec_module(self, module: ModuleType) -> None:
        module.__spec__ = self.spec  # importing has put its own there


class _Also(MetaPathFinder):
    """Asked before all others, which would load the files of a package again under its other
    name."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        for known, real in ALSO.items():
            if fullname == known or fullname.startswith(f"{known}."):
                return ModuleSpec(fullname, _Same(real + fullname.removeprefix(known)))
        return None


class _Elsewhere(MetaPathFinder):
    """Asked after all others have found nothing."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        owner, _, name = fullname.rpartition(".")
        if owner.partition(".")[0] != ROOT:
            return None
        words = getattr(sys.modules.get(owner), "_ELSEWHERE", {}).get(name)
        if words is None:
            return None
        place = owner.removeprefix(f"{ROOT}.")
        raise ImportError(f"{place}.{name} does not exist here. {words}", name=fullname)


def explain_imports() -> None:
    """From now on; called once, when the package is imported."""
    if not any(isinstance(finder, _Elsewhere) for finder in sys.meta_path):
        sys.meta_path.insert(0, _Also())
        sys.meta_path.append(_Elsewhere())
