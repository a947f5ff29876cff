"""What lanes of a warp exchange: who gets what, and what is refused."""

from __future__ import annotations

import numpy as np
import pytest

from tests.interpreter import InterpreterError
from tests.ir.programs import BOTH
from tilewright.base.artifact import Source
from tilewright.base.errors import InternalError
from tilewright.codegen import generate
from tilewright.codegen.serial_threads import serialized
from tilewright.driver import nvrtc
from tilewright.ir import expr as E
from tilewright.ir.stmt import (
    Allocate,
    Buffer,
    Exchange,
    For,
    If,
    Kernel,
    Program,
    Region,
    Stmt,
    Store,
    Thread,
    load,
    seq,
)
from tilewright.ir.verifier import verify
from tilewright.lowering.virtual_threads import inject_virtual_threads
from tilewright.targets.target import Target

COUNT = 2


def program(
    apart: int, *, kind: str = "float32", other: str = "", scope: str = "local", part: int = 32,
    virtual: int = 0,
) -> Program:  # fmt: skip
    """out[lane] is what the lanes have of `a` once they exchanged it; each gets its own doubled.

    other, scope: of what they get, if different; part: so many lanes take part
    """
    copies = max(virtual, 1)
    a, out = (Buffer(name, kind, 32 * COUNT * copies, "global") for name in ("a", "out"))
    own, got = Buffer("own", kind, COUNT, "local"), Buffer("got", other or kind, COUNT, scope)
    lane, k, e, v = (E.var(name) for name in ("lane", "k", "e", "v"))
    at = v * (32 * COUNT) + lane * COUNT
    given, taken = (Region(buffer, E.const(0), COUNT) for buffer in (own, got))
    trade: Stmt = seq(
        Exchange(taken, given, apart), For(e, COUNT, Store(out, at + e, E.cast(kind, load(got, e))))
    )
    fill = For(k, COUNT, Store(own, k, load(a, at + k)))
    body: Stmt = seq(fill, If(lane < part, trade) if part < 32 else trade)
    body = For(v, copies, Allocate(own, Allocate(got, body)), "vthread" if virtual else "serial")
    kernel = Kernel("k", (a, out), body, (Thread("threadIdx.x", lane, 32),))
    return Program("k", (a, out), ("input", "output"), (inject_virtual_threads(kernel),))


@BOTH
@pytest.mark.parametrize("kind", ["float32", "float16", "int32"])
@pytest.mark.parametrize("apart", [1, 2, 4, 8, 16])
def test_each_lane_gets_what_another_one_has(apart: int, kind: str, run) -> None:
    made = program(apart, kind=kind)
    verify(made)
    a, out = (np.arange(b.size).astype(b.dtype.storage) for b in made.args)
    run(made, [a, out])
    lanes = np.arange(32) ^ apart
    np.testing.assert_array_equal(out.reshape(32, COUNT), a.reshape(32, COUNT)[lanes])


@BOTH
def test_virtual_threads_exchange_what_is_their_own(run) -> None:
    made = program(4, virtual=3)
    verify(made)
    a, out = (np.arange(b.size).astype(b.dtype.storage) for b in made.args)
    run(made, [a, out])
    expected = a.reshape(3, 32, COUNT)[:, np.arange(32) ^ 4]
    np.testing.assert_array_equal(out.reshape(expected.shape), expected)


@BOTH
def test_all_lanes_have_to_be_there(run) -> None:
    made = program(1, part=16)
    a, out = (np.zeros(b.size, b.dtype.storage) for b in made.args)
    with pytest.raises(InterpreterError, match="warp divergence"):
        run(made, [a, out])


@pytest.mark.parametrize(
    ("made", "words"),
    [
        (program(1, part=16), "differs between lanes"),
        (program(3), "3 apart"),
        (program(32), "32 apart"),
        (program(1, other="float16"), "exchange no elements"),
        (program(1, scope="shared"), "exchange no elements"),
    ],
)
def test_the_verifier_refuses(made: Program, words: str) -> None:
    with pytest.raises(InternalError, match=words):
        verify(made)


def test_it_takes_turns_by_warps() -> None:
    changed = serialized(generate(program(1), Target("cuda -arch=sm_90")))
    assert isinstance(changed, Source) and "__syncwarp" in changed.text
    assert "tw_apart(" not in changed.text.partition("__global__")[2]  # no lane on its own


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["float32", "float16", "int32"])
def test_nvrtc_accepts(kind: str) -> None:
    pytest.importorskip("cuda.bindings.nvrtc")
    target = Target("cuda -arch=sm_90")
    made = nvrtc.build(generate(program(2, kind=kind), target), target)
    assert "warning" not in made.meta["log"]


def test_other_kinds_have_none() -> None:
    with pytest.raises(InternalError, match="generate"):
        generate(program(1), Target("opencl"))
