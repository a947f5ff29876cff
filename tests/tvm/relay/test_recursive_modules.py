"""Modules whose functions call themselves or each other: computed, or refused by a ModelError."""

from __future__ import annotations

from contextlib import suppress

import numpy as np
import pytest

from tilewright.base.errors import ModelError, TilewrightError
from tilewright_tvm import auto_scheduler, autotvm, relay
from tilewright_tvm.relay import transform

X = "%x: Tensor[(1), float32]"
TO = "-> Tensor[(1), float32]"
MODULES = {
    "itself": f"def @main({X}) {{ @main(%x) }}",
    "each other": f"def @a({X}) {{ @b(%x) }} def @b({X}) {{ @a(%x) }} def @main({X}) {{ @a(%x) }}",
    "each other, typed": (
        f"def @a({X}) {TO} {{ @b(%x) }} def @b({X}) {TO} {{ @a(%x) }}"
        f" def @main({X}) {TO} {{ @a(%x) }}"
    ),
    "between operators": (
        f"def @a({X}) {{ exp(@b(%x)) }} def @b({X}) {{ add(@a(%x), %x) }}"
        f" def @main({X}) {{ @a(%x) }}"
    ),
    "three": (
        f"def @a({X}) {{ @b(%x) }} def @b({X}) {{ @c(%x) }} def @c({X}) {{ @a(%x) }}"
        f" def @main({X}) {{ @a(%x) }}"
    ),
    "beside main": (
        f"def @a({X}) {{ @b(%x) }} def @b({X}) {{ @a(%x) }} def @main({X}) {{ exp(%x) }}"
    ),
    "in tuples": (
        f"def @a({X}) {{ (@b(%x), %x) }} def @b({X}) {{ @a(%x).0 }} def @main({X}) {{ @b(%x) }}"
    ),
    "in a branch": (
        f"def @a({X}, %c: bool) {TO} {{ if (%c) {{ @b(%x, %c) }} else {{ %x }} }}"
        f" def @b({X}, %c: bool) {TO} {{ @a(%x, %c) }}"
        f" def @main({X}, %c: bool) {TO} {{ @a(%x, %c) }}"
    ),
    "as values": f"def @a({X}) {{ @b }} def @b({X}) {{ @a }} def @main({X}) {{ @a(%x) }}",
}
ONE = {"x": np.ones(1, "float32"), "c": np.array(False)}
DOORS = {
    "build": lambda mod: relay.build(mod, "llvm", {}),
    "text": lambda mod: relay.fromtext(mod.astext()),
    "evaluate": lambda mod: relay.evaluate(mod, ONE),
    "debug": lambda mod: relay.create_executor("debug", mod).evaluate()(
        *(ONE[p.name_hint] for p in mod["main"].params)
    ),
    "vm": lambda mod: relay.vm.compile(mod, "llvm"),
    "call graph": lambda mod: str(relay.analysis.CallGraph(mod)),
    "optimize": relay.optimize,
    "types": transform.InferType(),
    "simplify": transform.SimplifyExpr(),
    "inline": transform.Inline(),
    "fold": transform.FoldConstant(),
    "dead code": transform.DeadCodeElimination(),
    "unused": transform.RemoveUnusedFunctions(),
    "gradient": lambda mod: transform.gradient(mod["main"], mod),
    "tasks": lambda mod: autotvm.task.extract_from_program(mod["main"], {}, "llvm"),
    "all tasks": lambda mod: auto_scheduler.extract_tasks(mod, {}, "llvm"),
}


def module(name: str) -> relay.IRModule:
    return relay.fromtext(f'#[version = "0.0.5"]\n{MODULES[name]}')


@pytest.mark.sampled(54)
@pytest.mark.slow
@pytest.mark.parametrize("door", DOORS)
@pytest.mark.parametrize("name", MODULES)
def test_every_door_works_or_raises_an_error_of_its_own(name, door):
    with suppress(TilewrightError):
        DOORS[door](module(name))


@pytest.mark.parametrize("name", ["itself", "each other", "between operators", "three"])
@pytest.mark.parametrize("door", ["build", "all tasks"])
def test_a_build_says_which_function_has_no_body_yet(name, door):
    with pytest.raises(ModelError, match="called before its module has it"):
        DOORS[door](module(name))


@pytest.mark.parametrize("name", ["itself", "each other", "between operators", "in tuples"])
def test_calls_without_an_end_are_told(name):
    with pytest.raises(ModelError, match="too deeply, or for ever"):
        relay.evaluate(module(name), ONE)


def test_a_branch_that_is_not_taken_ends_the_calls():
    assert relay.evaluate(module("in a branch"), ONE) == 1
