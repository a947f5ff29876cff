"""Imports of TVM's names that are not here say what to use instead."""

from __future__ import annotations

from importlib import import_module

import pytest

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
