"""Imports of TVM's names that are not here say what to use instead."""

from __future__ import annotations

import subprocess
import sys
from functools import reduce
from importlib import import_module
from pathlib import Path

import numpy as np
import pytest

import tilewright
from tilewright.base.elsewhere import ALSO, PLACES
from tilewright.base.errors import ModelError
from tilewright.base.old_names import NAMES, is_sentence, placed

MISSING = {
    "tilewright.meta_schedule": "Use autotvm",
    "tilewright.micro": "Microcontrollers are no target",
    "tilewright.script.tir": "TVMScript is not read; declare with te.compute",
    "tilewright.contrib.clang": "C text is not compiled",
    "tilewright.te.create_prim_func": "Schedule tensors directly: te.create_schedule.",
    "tilewright.relay.frontend.from_mxnet": "Export the model to ONNX",
    "tilewright.target.adreno": "Use Target",
    "tilewright.tir.analysis": "gives a Program, which prints as loops",
}


@pytest.mark.parametrize("name", MISSING)
def test_an_import_says_what_to_use(name: str) -> None:
    owner, _, last = name.rpartition(".")
    for words in (f"import {name}", f"from {owner} import {last}"):
        with pytest.raises(ImportError, match=f"does not exist here. .*{MISSING[name]}"):
            exec(words, {})


def test_a_name_that_nobody_knows_is_pythons_own_error() -> None:
    with pytest.raises(ModuleNotFoundError, match="No module named 'tilewright.nonsense'"):
        import_module("tilewright.nonsense")


def test_names_of_tir_are_those_of_te() -> None:
    from tilewright import te, tir

    i = te.var("i")
    assert tir.if_then_else is te.if_then_else and tir.exp is te.exp
    assert str(tir.indexdiv(i, 4)) == str(i // 4) and str(tir.indexmod(i, 4)) == str(i % 4)
    x = te.var("x", "float32")
    assert tir.call_intrin("float32", "tir.exp", x) is te.exp(x)
    assert isinstance(tir.Select(i < 2, 1.0, 0.0), tir.PrimExpr)


OLD = {(owner, name): told for owner, names in NAMES.items() for name, told in names.items()}


@pytest.mark.parametrize(("owner", "name"), OLD)
def test_an_old_name_is_what_it_is_called_now_or_says_what_to_use(owner: str, name: str) -> None:
    told = OLD[owner, name]
    try:
        now = None if is_sentence(told) else placed(told)
    except AttributeError as error:  # it is not there by its new name either, which says why
        told = str(error)
        now = None
    if now is not None:
        assert getattr(import_module(owner), name) == now
        return
    with pytest.raises(AttributeError) as caught:
        getattr(import_module(owner), name)
    assert str(caught.value).endswith(told)
    with pytest.raises(ImportError):
        exec(f"from {owner} import {name}", {})


@pytest.mark.parametrize("name", [*ALSO, *sorted(PLACES)])
def test_a_module_that_moved_is_imported_and_is_an_attribute(name: str) -> None:
    module = import_module(name)
    assert module is sys.modules[name]
    if name in ALSO:
        assert module is import_module(ALSO[name])
    if name.endswith("__main__"):
        return
    owner, _, last = name.rpartition(".")
    assert getattr(import_module(owner), last) is module


# As tutorials of TVM 0.6 to 0.8 have them, from names at the top of `tvm` and under `topi.util`.
TUTORIALS = """
module.load module.enabled build_config relay.build_config target.current_target
contrib.util.tempdir contrib.graph_runtime.create contrib.graph_runtime.GraphModule
contrib.debugger.debug_runtime.create relay.Module relay.Module.from_expr relay.module.Module
relay.transform.PassContext ir_builder.create relay.transform.Sequential
topi.util.get_const_tuple hybrid.script expr.Var expr.IntImm nd.gpu nd.cl tensor.Tensor
api.convert ndarray.array autotvm.task.register autotvm.measure.measure_methods.RPCRunner
context gpu opencl TVMContext relay.testing.config.ctx_list get_global_func rpc lower
"""


@pytest.mark.parametrize("name", TUTORIALS.split())
def test_what_tutorials_print_is_there(name: str) -> None:
    assert reduce(getattr, name.split("."), tilewright) is not None


def test_arguments_have_their_old_names_too() -> None:
    here = tilewright.context("llvm", 0)
    a = tilewright.nd.array(np.ones(3, "float32"), ctx=here)
    b = tilewright.nd.empty((3,), ctx=here)
    assert a.ctx == b.ctx == here
    with pytest.raises(TypeError, match="unexpected keyword argument 'ctx'"):
        tilewright.nd.array(np.ones(3), device=here, ctx=here)
    with pytest.raises(TypeError, match="unexpected keyword argument 'ctx'"):
        tilewright.te.placeholder((3,), ctx=here)


def test_options_of_builds_are_a_pass_context() -> None:
    with tilewright.build_config(auto_unroll_max_step=16, unroll_explicit=True):
        assert tilewright.transform.PassContext.current().config["tir.auto_unroll_max_step"] == 16
    with tilewright.relay.build_config(disabled_pass=["FuseOps"]):
        assert tilewright.transform.PassContext.current().opt_level == 2
    with pytest.raises(ModelError, match=r"add_lower_pass=\): lowering has its own passes"):
        tilewright.build_config(add_lower_pass=[(1, print)])
    with pytest.raises(ModelError, match="is built for one device"):
        tilewright.relay.build_config(fallback_device=tilewright.cpu())


def test_targets_and_sessions_have_their_old_spellings() -> None:
    arm = tilewright.target.create("llvm -target=aarch64-linux-gnu -mcpu=cortex-a53")
    assert arm.triple == "aarch64-linux-gnu" and arm.mcpu == "cortex-a53"
    assert tilewright.rpc.LocalSession().context("llvm", 0) == tilewright.cpu()


def test_operators_to_extract_may_be_functions() -> None:
    from tilewright import autotvm, relay

    mod, params = relay.testing.mlp.get_workload(1)
    keys = [
        [t.key for t in autotvm.task.extract_from_program(mod["main"], params, "llvm", ops=ops)]
        for ops in ((relay.op.nn.dense,), relay.nn.dense, "nn.dense", [relay.op.get("nn.dense")])
    ]
    assert len(keys[0]) == 3 and all(k == keys[0] for k in keys)


def _commands() -> list[str]:
    """Modules that `python -m` runs, by all their names."""
    root = Path(tilewright.__file__).parent
    found = {
        ".".join(["tilewright", *file.relative_to(root).with_suffix("").parts])
        for file in root.rglob("*.py")
        if '\nif __name__ == "__main__":' in file.read_text()
    }
    known = {name: real for name, real in ALSO.items() if real in found}
    packages = {name for name, real in ALSO.items() if f"{real}.__main__" in {*found, *known}}
    return sorted(name.removesuffix(".__main__") for name in {*found, *known, *packages})


def test_the_commands_are_those_that_are_known() -> None:
    assert {"tilewright", "tilewright.tvmc", "tilewright.driver.tvmc"} <= {*_commands()}
    assert len(_commands()) >= 7


@pytest.mark.slow
@pytest.mark.parametrize("name", _commands())
def test_a_module_is_a_command_by_each_of_its_names(name: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", name, "--help"], capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0 and not done.stderr, done.stderr
    assert "usage: " in done.stdout.lower()
