"""TVM's names, imported or asked for: those that are not here say what to use instead, or are found
elsewhere.

`from tilewright import micro` and `import tilewright.micro` ask for a module; Python's own words
for one that is missing name nothing else.  In: the `_ELSEWHERE` table of the package that lacks it,
from which `errors.absent` makes the text for attributes; `ALSO`; the table of `old_names`.  Out: an
ImportError or AttributeError with that text; what has another name here.
Read next: `old_names.py`.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from functools import partial
from importlib import import_module
from importlib.abc import InspectLoader, Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import CodeType, ModuleType
from typing import Any

from tilewright.base.errors import absent

ROOT = "tilewright"
_PAGE = "The names of TVM that are here are in docs/tvm/compatibility.md."

# Packages and files that stand in another room than TVM has them in, or had another name before.
ALSO = {
    "tilewright._ffi.function": "tilewright._ffi",
    "tilewright.api": "tilewright",
    "tilewright.arith.analyzer": "tilewright.arith",
    "tilewright.auto_scheduler.cost_model.cost_model": "tilewright.auto_scheduler.cost_model",
    "tilewright.auto_scheduler.cost_model.xgb_model": "tilewright.auto_scheduler.cost_model",
    "tilewright.autotvm.graph_tuner.base_graph_tuner": "tilewright.autotvm.graph_tuner",
    "tilewright.autotvm.graph_tuner.dynamic_programming_tuner": "tilewright.autotvm.graph_tuner",
    "tilewright.autotvm.measure.measure_methods": "tilewright.autotvm.measure",
    "tilewright.autotvm.task.dispatcher": "tilewright.autotvm.dispatch",
    "tilewright.autotvm.task.relay_integration": "tilewright.autotvm.task",
    "tilewright.autotvm.task.topi_integration": "tilewright.autotvm.topi_integration",
    "tilewright.autotvm.tuner.callback": "tilewright.autotvm.callback",
    "tilewright.autotvm.tuner.ga_tuner": "tilewright.autotvm.tuners",
    "tilewright.autotvm.tuner.gridsearch_tuner": "tilewright.autotvm.tuners",
    "tilewright.autotvm.tuner.index_based_tuner": "tilewright.autotvm.tuners",
    "tilewright.autotvm.tuner.model_based_tuner": "tilewright.autotvm.tuners",
    "tilewright.autotvm.tuner.tuner": "tilewright.autotvm.tuners",
    "tilewright.autotvm.tuner.xgboost_cost_model": "tilewright.autotvm.xgboost_cost_model",
    "tilewright.autotvm.tuner.xgboost_tuner": "tilewright.autotvm.xgb_tuner",
    "tilewright.autotvm.util": "tilewright.autotvm.utils",
    "tilewright.container": "tilewright.runtime.container",
    "tilewright.contrib.debugger.debug_runtime": "tilewright.contrib.debugger.debug_executor",
    "tilewright.contrib.graph_runtime": "tilewright.contrib.graph_executor",
    "tilewright.contrib.rpc": "tilewright.rpc",
    "tilewright.contrib.util": "tilewright.contrib.utils",
    "tilewright.driver.build_module": "tilewright.driver.build",
    "tilewright.driver.tvmc": "tilewright.tvmc",
    "tilewright.expr": "tilewright.tir",
    "tilewright.hybrid": "tilewright.te.hybrid",
    "tilewright.intrin": "tilewright.te",
    "tilewright.ir.instrument": "tilewright.instrument",
    "tilewright.ir.module": "tilewright.relay.graph.expr",
    "tilewright.ir.transform": "tilewright.transform",
    "tilewright.ir_builder": "tilewright.te.ir_builder",
    "tilewright.ndarray": "tilewright.nd",
    "tilewright.relay.analysis.analysis": "tilewright.relay.analysis",
    "tilewright.relay.analysis.call_graph": "tilewright.relay.analysis",
    "tilewright.relay.backend.vm": "tilewright.relay.vm",
    "tilewright.relay.base": "tilewright.relay",
    "tilewright.relay.frontend.onnx": "tilewright.relay.frontend",
    "tilewright.relay.frontend.pytorch": "tilewright.relay.frontend",
    "tilewright.relay.function": "tilewright.relay.expr",
    "tilewright.relay.op.algorithm": "tilewright.relay.op",
    "tilewright.relay.op.annotation": "tilewright.relay.annotation",
    "tilewright.relay.op.image": "tilewright.relay.image",
    "tilewright.relay.op.nn.nn": "tilewright.relay.op.nn",
    "tilewright.relay.op.op": "tilewright.relay.op",
    "tilewright.relay.op.random": "tilewright.relay.random",
    "tilewright.relay.op.reduce": "tilewright.relay.op",
    "tilewright.relay.op.tensor": "tilewright.relay.op",
    "tilewright.relay.op.transform": "tilewright.relay.op",
    "tilewright.relay.op.vision": "tilewright.relay.vision",
    "tilewright.relay.param_dict": "tilewright.runtime.network.param_dict",
    "tilewright.relay.pass_manager": "tilewright.transform",
    "tilewright.relay.qnn.op.qnn": "tilewright.relay.qnn.op",
    "tilewright.relay.testing.config": "tilewright.relay.testing",
    "tilewright.relay.vmobj": "tilewright.relay.vm",
    "tilewright.rpc.base": "tilewright.rpc",
    "tilewright.rpc.client": "tilewright.rpc",
    "tilewright.stmt": "tilewright.tir",
    "tilewright.tag": "tilewright.te",
    "tilewright.target.codegen": "tilewright.driver.codegen",
    "tilewright.target.target": "tilewright.target",
    "tilewright.te.autodiff": "tilewright.te",
    "tilewright.te.operation": "tilewright.te",
    "tilewright.te.schedule": "tilewright.schedule.by_name",
    "tilewright.te.tag": "tilewright.te",
    "tilewright.tensor": "tilewright.te.tensor",
    "tilewright.tir.buffer": "tilewright.tir",
    "tilewright.tir.data_layout": "tilewright.tir",
    "tilewright.tir.expr": "tilewright.tir",
    "tilewright.tir.function": "tilewright.tir",
    "tilewright.tir.generic": "tilewright.tir",
    "tilewright.tir.ir_builder": "tilewright.te.ir_builder",
    "tilewright.tir.op": "tilewright.tir",
    "tilewright.tir.stmt": "tilewright.tir",
    "tilewright.tir.stmt_functor": "tilewright.te.stmt_functor",
    "tilewright.topi.arm_cpu.conv2d": "tilewright.topi.arm_cpu",
    "tilewright.topi.bifrost.conv2d": "tilewright.topi.bifrost",
    "tilewright.topi.cuda.conv2d": "tilewright.topi.cuda",
    "tilewright.topi.cuda.conv3d_winograd": "tilewright.topi.tile_sizes",
    "tilewright.topi.cuda.depthwise_conv2d": "tilewright.topi.cuda",
    "tilewright.topi.cuda.injective": "tilewright.topi.cuda",
    "tilewright.topi.cuda.reduction": "tilewright.topi.cuda",
    "tilewright.topi.generic.conv2d": "tilewright.topi.generic",
    "tilewright.topi.generic.injective": "tilewright.topi.generic",
    "tilewright.topi.intel_graphics.conv2d": "tilewright.topi.intel_graphics",
    "tilewright.topi.mali.conv2d": "tilewright.topi.mali",
    "tilewright.topi.math": "tilewright.topi",
    "tilewright.topi.nn.depthwise_conv2d": "tilewright.topi.nn.depthwise",
    "tilewright.topi.nn.util": "tilewright.topi.nn.utils",
    "tilewright.topi.tensor": "tilewright.topi",
    "tilewright.topi.util": "tilewright.topi.utils",
    "tilewright.topi.x86.conv2d": "tilewright.topi.x86",
    "tilewright.topi.x86.conv2d_avx_common": "tilewright.topi.cpu_fallback",
    "tilewright.topi.x86.depthwise_conv2d": "tilewright.topi.cpu_fallback",
    "tilewright.topi.x86.injective": "tilewright.topi.x86",
    "tilewright.topi.x86.reduction": "tilewright.topi.x86",
    "tilewright.tvmc.__main__": "tilewright.__main__",
}
# Modules of TVM of which nothing is left but names, which are in the table.
PLACES = {"tilewright.build_module", "tilewright.module", "tilewright.relay.module"}


def find(owner: str, name: str, elsewhere: Mapping[str, str]) -> Any:
    """What `OWNER.NAME` of TVM is now, for a module's `__getattr__`.

    owner: full name of the module; elsewhere: its own sentences
    Raises AttributeError with what to use instead, or Python's usual words.
    """
    known = f"{owner}.{name}"
    if known in ALSO or known in PLACES:
        return import_module(known)
    told = _old_names().NAMES.get(owner, {}).get(name)
    if told is None:
        raise absent(owner.removeprefix(f"{ROOT}."), name, elsewhere)
    if _old_names().is_sentence(told):
        raise absent(owner.removeprefix(f"{ROOT}."), name, {name: told})
    return _old_names().placed(told)


def _old_names() -> Any:
    """Loaded when the first name is missing."""
    return import_module("tilewright.base.old_names")


class _Same(InspectLoader):
    """Gives the module `name`, which stays what it is; run by `python -m`, its code."""

    def __init__(self, name: str) -> None:
        self.module = import_module(name)
        self.spec = self.module.__spec__

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        return self.module

    def exec_module(self, module: ModuleType) -> None:
        module.__spec__ = self.spec  # importing has put its own there

    def is_package(self, fullname: str) -> bool:
        return hasattr(self.module, "__path__")

    def get_code(self, fullname: str) -> CodeType | None:
        own = None if self.spec is None else self.spec.loader
        return own.get_code(self.module.__name__) if isinstance(own, InspectLoader) else None

    def get_source(self, fullname: str) -> str | None:
        own = None if self.spec is None else self.spec.loader
        return own.get_source(self.module.__name__) if isinstance(own, InspectLoader) else None


class _Place(Loader):
    """Makes a module whose names are those of the table."""

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        return None

    def exec_module(self, module: ModuleType) -> None:
        vars(module)["__getattr__"] = partial(_at, module.__name__)


def _at(place: str, name: str) -> Any:
    return find(place, name, {})


class _Also(MetaPathFinder):
    """Asked before all others, which would load the files of a package again under its other
    name."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if not fullname.startswith("tilewright."):
            return None
        known = fullname
        while known and known not in ALSO:
            known = known.rpartition(".")[0]
        if not known:
            return None
        loader = _Same(ALSO[known] + fullname.removeprefix(known))
        return ModuleSpec(fullname, loader, is_package=loader.is_package(fullname))


class _Elsewhere(MetaPathFinder):
    """Asked after all others have found nothing."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        owner, _, name = fullname.rpartition(".")
        if owner.partition(".")[0] != ROOT:
            return None
        if fullname in PLACES:
            return ModuleSpec(fullname, _Place())
        told = getattr(sys.modules.get(owner), "_ELSEWHERE", {}).get(name)
        if told is None:
            told = _old_names().NAMES.get(owner, {}).get(name)
        if told is None or not _old_names().is_sentence(told):
            raise ModuleNotFoundError(f"No module named {fullname!r}. {_PAGE}", name=fullname)
        place = owner.removeprefix(f"{ROOT}.")
        raise ImportError(f"{place}.{name} does not exist here. {told}", name=fullname)


def explain_imports() -> None:
    """From now on; called once, when the package is imported."""
    if not any(isinstance(finder, _Elsewhere) for finder in sys.meta_path):
        sys.meta_path.insert(0, _Also())
        sys.meta_path.append(_Elsewhere())
