"""TVM's names, imported or asked for: those that are not here say what to use instead, or are found
elsewhere.

`from tilewright_tvm import micro` and `import tilewright_tvm.micro` ask for a module; Python's own
words for one that is missing name nothing else.  In: the `_ELSEWHERE` table of the package that
lacks it, from which `errors.absent` makes the text for attributes; `ALSO`; the table of
`old_names`.  Out: an ImportError or AttributeError with that text; what has another name here.
Read next: `old_names.py`.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from functools import partial
from importlib import import_module
from importlib.abc import InspectLoader, Loader, MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any

from tilewright.base.errors import absent

ROOT = "tilewright_tvm"
_COMPILER = "tilewright"
_PAGE = "The names of TVM that are here are in docs/tvm/compatibility.md."

# Networks by name, which were a part of `relay.testing`.
_NETWORKS = (
    "layers", "mlp", "mobilenet", "mobilenet_v2", "resnet", "resnet_v1", "squeezenet",
    "transformers", "vgg",
)  # fmt: skip
# Packages and files that stand in another place than TVM has them in, or had another name before;
# where it is not said otherwise, in this package.
_ALSO = {
    "_ffi.function": "_ffi",
    "api": "tilewright_tvm",
    "arith.analyzer": "arith",
    "auto_scheduler.cost_model.cost_model": "auto_scheduler.cost_model",
    "auto_scheduler.cost_model.xgb_model": "auto_scheduler.cost_model",
    "autotvm.graph_tuner.base_graph_tuner": "autotvm.graph_tuner",
    "autotvm.graph_tuner.dynamic_programming_tuner": "autotvm.graph_tuner",
    "autotvm.measure.measure_methods": "autotvm.measure",
    "autotvm.task.dispatcher": "autotvm.dispatch",
    "autotvm.task.relay_integration": "autotvm.task",
    "autotvm.task.topi_integration": "autotvm.topi_integration",
    "autotvm.tuner.callback": "autotvm.callback",
    "autotvm.tuner.ga_tuner": "autotvm.tuners",
    "autotvm.tuner.gridsearch_tuner": "autotvm.tuners",
    "autotvm.tuner.index_based_tuner": "autotvm.tuners",
    "autotvm.tuner.model_based_tuner": "autotvm.tuners",
    "autotvm.tuner.tuner": "autotvm.tuners",
    "autotvm.tuner.xgboost_cost_model": "autotvm.xgboost_cost_model",
    "autotvm.tuner.xgboost_tuner": "autotvm.xgb_tuner",
    "autotvm.util": "autotvm.utils",
    "container": "runtime.container",
    "contrib.debugger.debug_runtime": "contrib.debugger.debug_executor",
    "contrib.graph_runtime": "contrib.graph_executor",
    "contrib.rpc": "rpc",
    "contrib.util": "contrib.utils",
    "driver.build_module": "tilewright.driver.build",
    "driver.tvmc": "tvmc",
    "expr": "tir",
    "hybrid": "te.hybrid",
    "intrin": "te",
    "ir.instrument": "instrument",
    "ir.module": "tilewright_tvm.relay.functional.definitions",
    "ir.transform": "transform",
    "ir_builder": "te.ir_builder",
    "ndarray": "nd",
    "relay.analysis.analysis": "relay.analysis",
    "relay.analysis.call_graph": "relay.analysis",
    "relay.backend.vm": "relay.vm",
    "relay.base": "relay",
    "relay.frontend.onnx": "relay.frontend",
    "relay.frontend.pytorch": "relay.frontend",
    "relay.function": "relay.expr",
    "relay.op.algorithm": "relay.op",
    "relay.op.annotation": "relay.annotation",
    "relay.op.image": "relay.image",
    "relay.op.nn": "relay.nn",
    "relay.op.nn.nn": "relay.nn",
    "relay.op.op": "relay.op",
    "relay.op.random": "relay.random",
    "relay.op.reduce": "relay.op",
    "relay.op.tensor": "relay.op",
    "relay.op.transform": "relay.op",
    "relay.op.vision": "relay.vision",
    "relay.param_dict": "tilewright.runtime.network.param_dict",
    "relay.pass_manager": "transform",
    "relay.qnn.op.qnn": "relay.qnn.op",
    "relay.testing.config": "relay.testing",
    "relay.vmobj": "relay.vm",
    "rpc.base": "rpc",
    "rpc.client": "rpc",
    "stmt": "tir",
    "tag": "te",
    "target.codegen": "driver.codegen",
    "target.target": "target",
    "te.autodiff": "te",
    "te.operation": "te",
    "te.tag": "te",
    "tensor": "tilewright.te.tensor",
    "tir.buffer": "tir",
    "tir.data_layout": "tir",
    "tir.expr": "tir",
    "tir.function": "tir",
    "tir.generic": "tir",
    "tir.ir_builder": "te.ir_builder",
    "tir.op": "tir",
    "tir.stmt": "tir",
    "tir.stmt_functor": "te.stmt_functor",
    "topi.arm_cpu.conv2d": "topi.arm_cpu",
    "topi.bifrost.conv2d": "topi.bifrost",
    "topi.cuda.conv2d": "topi.cuda",
    "topi.cuda.conv3d_winograd": "topi.tile_sizes",
    "topi.cuda.depthwise_conv2d": "topi.cuda",
    "topi.cuda.injective": "topi.cuda",
    "topi.cuda.reduction": "topi.cuda",
    "topi.generic.conv2d": "topi.generic",
    "topi.generic.injective": "topi.generic",
    "topi.intel_graphics.conv2d": "topi.intel_graphics",
    "topi.mali.conv2d": "topi.mali",
    "topi.math": "topi",
    "topi.nn.depthwise_conv2d": "topi.nn.depthwise_names",
    "topi.nn.util": "topi.nn.utils",
    "topi.nn.winograd_util": "topi.nn.winograd",
    "topi.tensor": "topi",
    "topi.transform": "topi",
    "topi.util": "topi.utils",
    "topi.x86.conv2d": "topi.x86",
    "topi.x86.conv2d_avx_common": "topi.cpu_fallback",
    "topi.x86.depthwise_conv2d": "topi.cpu_fallback",
    "topi.x86.injective": "topi.x86",
    "topi.x86.reduction": "topi.x86",
    **{f"relay.testing.{name}": f"tilewright.models.zoo.{name}" for name in _NETWORKS},
}
ALSO = {
    f"{ROOT}.{name}": now if now.startswith(_COMPILER) else f"{ROOT}.{now}"
    for name, now in _ALSO.items()
}
# Modules of TVM of which nothing is left but names, which are in the table.
PLACES = {f"{ROOT}.{name}" for name in ("build_module", "module", "relay.module")}


def find(owner: str, name: str, elsewhere: Mapping[str, str]) -> Any:
    """What `OWNER.NAME` of TVM is now, for a module's `__getattr__`.

    owner: full name of the module; elsewhere: its own sentences
    Raises AttributeError with what to use instead, or Python's usual words.
    """
    known = f"{owner}.{name}"
    if known in ALSO or known in PLACES:
        return import_module(known)
    told = _old_names().NAMES.get(owner, {}).get(name)
    if told is None and _is_ours(known.replace(ROOT, _COMPILER, 1)):
        return import_module(known)
    if told is None:
        raise absent(owner.removeprefix(f"{ROOT}."), name, elsewhere)
    if _old_names().is_sentence(told):
        raise absent(owner.removeprefix(f"{ROOT}."), name, {name: told})
    return _old_names().placed(told)


def _old_names() -> Any:
    """Loaded when the first name is missing."""
    return import_module("tilewright_tvm.old_names")


class Same(InspectLoader):
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
        if not fullname.startswith(f"{ROOT}."):
            return None
        known = fullname
        while known and known not in ALSO:
            known = known.rpartition(".")[0]
        if not known:
            return None
        loader = Same(ALSO[known] + fullname.removeprefix(known))
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
        if _is_ours(same := fullname.replace(ROOT, _COMPILER, 1)):
            loader = Same(same)
            return ModuleSpec(fullname, loader, is_package=loader.is_package(fullname))
        told = getattr(sys.modules.get(owner), "_ELSEWHERE", {}).get(name)
        if told is None:
            told = _old_names().NAMES.get(owner, {}).get(name)
        if told is None or not _old_names().is_sentence(told):
            raise ModuleNotFoundError(f"No module named {fullname!r}. {_PAGE}", name=fullname)
        place = owner.removeprefix(f"{ROOT}.")
        raise ImportError(f"{place}.{name} does not exist here. {told}", name=fullname)


def _is_ours(module: str) -> bool:
    """Whether the compiler has a module of this name, of a package that has a part of TVM's."""
    owner = sys.modules.get(module.rpartition(".")[0])
    places = getattr(owner, "__path__", ())
    return owner is not None and PathFinder.find_spec(module, places) is not None


def adopt(package: str) -> None:
    """Have the modules of ours that a package of TVM's takes names from under its name, too.

    Importing them by it would make them attributes, and so hide functions of the same names.  Where
    the package has a module of that name itself, that is the one.
    """
    ours = package.replace(ROOT, _COMPILER, 1)
    for name, module in list(sys.modules.items()):
        theirs = name.replace(_COMPILER, ROOT, 1)
        if name.startswith(f"{ours}.") and theirs not in ALSO and not _is_there(theirs):
            sys.modules.setdefault(theirs, module)


def _is_there(module: str) -> bool:
    """Whether this package has a file or a folder for a module."""
    place = Path(__file__).parent.joinpath(*module.split(".")[1:])
    return place.is_dir() or place.with_suffix(".py").is_file()


def explain_imports() -> None:
    """From now on; called once, when the package is imported."""
    if not any(isinstance(finder, _Elsewhere) for finder in sys.meta_path):
        sys.meta_path.insert(0, _Also())
        sys.meta_path.append(_Elsewhere())
