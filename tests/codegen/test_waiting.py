"""Where kernels of a chain wait for the kernel before them, and what compilers make of it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from typing import cast

import numpy as np
import pytest

from tests.codegen.c_family_programs import CASES, glob, program
from tilewright import te, topi
from tilewright.base.artifact import AWAIT_ONLY, Source
from tilewright.base.dtype import FLOAT32
from tilewright.codegen import generate
from tilewright.codegen.c_dialect import LET_IN
from tilewright.codegen.serial_threads import serialized
from tilewright.codegen.waiting import SMALL, is_dealt_evenly
from tilewright.driver import nvrtc
from tilewright.driver.build import build_payload, generate_source, payload_of
from tilewright.ir import expr as E
from tilewright.ir.stmt import (
    Allocate,
    AsyncCopy,
    Barrier,
    Buffer,
    Commit,
    For,
    If,
    Kernel,
    Program,
    Region,
    Seq,
    Stmt,
    Store,
    Thread,
    Wait,
    load,
)
from tilewright.lowering.pipeline import lower_schedule
from tilewright.schedule.default import default_schedule
from tilewright.schedule.schedule import Schedule
from tilewright.schedule.task import task_of_dag
from tilewright.search.rules.derive import with_rules
from tilewright.targets.target import Target

SM90 = Target("cuda -arch=sm_90")
T, B, K = (E.var(n) for n in "tbk")
THREADS = (Thread("threadIdx.x", T, 32), Thread("blockIdx.x", B, 4))
W, X, Y = (glob(n, FLOAT32, 128) for n in "wxy")
PLACE = B * 32 + T


def lines_of(source: Source) -> list[list[str]]:
    """The lines of the body of each kernel."""
    kernels = re.split(r'^extern "C" __global__ .*\n', source.text, flags=re.M)[1:]
    return [k.partition("\n}\n")[0].splitlines() for k in kernels]


def chained(body: Stmt, *params: Buffer, steady: tuple[Buffer, ...] = (W,)) -> list[str]:
    made = program(Kernel("k", params, body, THREADS), 0)
    source = generate(replace(made, steady=frozenset(steady)), SM90)
    assert source.waits
    (lines,) = lines_of(source)
    return [line.strip() for line in lines]


def copied(value: E.Expr) -> Store:
    return Store(Y, PLACE, value)


def test_weights_are_read_before_the_wait_and_inputs_after_it() -> None:
    near = Buffer("s", FLOAT32, 32, "shared")
    first = Store(near, T, load(W, PLACE))
    body = Allocate(near, Seq((first, Barrier(), copied(load(near, 31 - T) + load(X, PLACE)))))
    lines = chained(body, W, X, Y)
    at = lines.index(f"{AWAIT_ONLY}();")
    assert lines[at + 1] == "x = tw_fresh(x);" and lines.count(f"{AWAIT_ONLY}();") == 1
    assert any("w[" in line for line in lines[:at])
    assert not any("x[" in line or "y[" in line for line in lines[:at])
    assert not any("w = " in line or "y = tw" in line for line in lines)


def test_asynchronous_copies_of_weights_begin_before_the_wait() -> None:
    near = Buffer("s", FLOAT32, 128, "shared")
    ring = Seq((
        AsyncCopy(Region(near, T * 4, 4), Region(W, T * 4, 4), E.const(True)), Commit(),
        AsyncCopy(Region(near, T * 4, 4), Region(X, T * 4, 4), E.const(True)), Commit(),
        Wait(0), Barrier(), copied(load(near, PLACE)),
    ))  # fmt: skip
    lines = chained(Allocate(near, ring), W, X, Y)
    copies = [k for k, line in enumerate(lines) if line.startswith("tw_copy_16")]
    assert copies[0] < lines.index(f"{AWAIT_ONLY}();") < copies[1]


@pytest.mark.parametrize("how", ["branch", "loop"])
def test_no_thread_goes_around_its_wait(how: str) -> None:
    """Weights in a branch are read after the wait: it cannot be behind them for all threads."""
    inner = Seq((Store(Y, PLACE, load(W, PLACE)), Store(Y, PLACE, load(X, PLACE))))
    body = If(E.binary("lt", PLACE, 100), inner) if how == "branch" else For(K, 3, inner)
    lines = chained(body, W, X, Y)
    at = lines.index(f"{AWAIT_ONLY}();")
    assert lines[at + 2].startswith(("if (", "for ("))
    assert not any(line.endswith("{") for line in lines[:at])


def test_a_kernel_that_only_writes_waits_too() -> None:
    """Others may still read what it writes."""
    lines = chained(copied(load(W, PLACE)), W, Y)
    assert lines.index(f"{AWAIT_ONLY}();") < next(k for k, x in enumerate(lines) if "y[" in x)
    assert not any("tw_fresh" in line for line in lines)


def test_what_is_read_and_written_is_read_anew() -> None:
    lines = chained(copied(load(Y, PLACE) + 1.0), Y, steady=())
    assert lines[lines.index(f"{AWAIT_ONLY}();") + 1] == "y = tw_fresh(y);"


def test_loops_of_one_step_are_no_loops() -> None:
    lines = chained(For(K, 1, Seq((Store(Y, PLACE, load(X, PLACE)),))), W, X, Y)
    assert f"{AWAIT_ONLY}();" in lines and not any(line.startswith("for") for line in lines)


def with_wait(whole: Program) -> Program:
    return replace(whole, steady=frozenset())


@pytest.mark.parametrize("name", CASES)
def test_only_chained_texts_of_new_devices_wait(name: str) -> None:
    whole = CASES[name].program
    alone, several = generate(whole, SM90), len(whole.kernels) > 1
    assert not alone.waits and alone.waits_inside == ("griddepcontrol" in alone.text) == several
    source = generate(with_wait(whole), SM90)
    for lines, kernel in zip(lines_of(source), whole.kernels, strict=True):
        (at,) = (k for k, line in enumerate(lines) if f"{AWAIT_ONLY}();" in line)
        assert sum(s.count("{") - s.count("}") for s in lines[:at]) in (0, 1), kernel.name
        before = "\n".join(lines[:at])
        names = "|".join(p.name for p in kernel.params)
        assert not re.search(rf"(?<![.\w])({names})(\[| \+)", before)
    for target in ("cuda -arch=sm_80", "opencl"):
        assert generate(with_wait(whole), Target(target)) == generate(whole, Target(target))


def test_kernels_let_those_of_their_own_program_in() -> None:
    whole = CASES["two_kernels"].program
    for made in (whole, with_wait(whole)):
        source = generate(made, SM90)
        first, last = lines_of(source)
        awaits = [k for k, line in enumerate(first) if f"{AWAIT_ONLY}();" in line]
        (let,) = (k for k, line in enumerate(first) if f"{LET_IN}();" in line)
        assert awaits == ([] if made is whole else [let - 1])
        assert any(f"{AWAIT_ONLY}();" in line for line in last) and source.waits_inside
        assert not any(f"{LET_IN}();" in line for line in last)
    early = generate(replace(with_wait(whole), lets_in=True), SM90)
    assert early.waits and f"{LET_IN}();" not in early.text


def test_large_blocks_come_when_those_before_have_ended_and_small_ones_not_to_few_cores() -> None:
    """Winograd's product behind its transform took up to 1.6 times as long when it came early."""
    limits, core = SM90.limits, SM90.limits.shared_bytes_per_core

    def dealt(blocks: object, shared: int, behind: int) -> bool:
        extent = cast("int", blocks)
        kernel = Kernel(
            "k", (), Seq(()), (Thread("threadIdx.x", T, 32), Thread("blockIdx.x", B, extent))
        )
        return is_dealt_evenly(kernel, shared, behind, limits)

    many, few = limits.cores, limits.cores - 4
    assert dealt(many, 0, 0) and dealt(many, core, SMALL) and dealt(few, core // 2, 0)
    assert not dealt(many, 0, SMALL + 1) and not dealt(few, core // 2 + 1, 0)
    assert not dealt(E.var("n"), 0, 0)  # who knows


def test_a_program_alone_reads_what_none_of_its_kernels_writes_before_its_wait() -> None:
    whole = CASES["two_kernels"].program
    _, last = lines_of(generate(whole, SM90))
    (at,) = (k for k, line in enumerate(last) if f"{AWAIT_ONLY}();" in line)
    assert last[at + 1 :] and "w = tw_fresh(w);" in last[at + 1] and "a = tw_fresh" not in str(last)


@pytest.mark.slow
@pytest.mark.sampled(6)
@pytest.mark.parametrize("name", CASES)
def test_nvrtc_accepts(name: str) -> None:
    pytest.importorskip("cuda.bindings.nvrtc")
    made = nvrtc.build(generate(with_wait(CASES[name].program), SM90), SM90)
    assert "error" not in made.meta["log"]


def computation() -> te.ComputeDAG:
    x, b = te.placeholder((1, 16, 14, 14), name="x"), te.placeholder((16, 1, 1), name="b")
    w = te.placeholder((16, 16, 3, 3), name="w", constant=True)
    y = topi.nn.conv2d(x, w, 1, 1, 1)
    return te.ComputeDAG([x, w, b, topi.nn.relu(topi.add(y, b))])


def schedules() -> Iterator[Schedule]:
    """The default one, and one of every sketch."""
    dag, rng = computation(), np.random.default_rng(0)
    yield default_schedule(dag, SM90)
    for sketch in with_rules(task_of_dag(dag, SM90)).sketches:
        some = sketch.space.sample(256, rng)
        yield sketch.close(int(some[sketch.legal(some)][0]))


def ptx(source: Source) -> list[str]:
    binding = nvrtc._binding()
    _, made = binding.nvrtcCreateProgram(source.text.encode(), b"k.cu", 0, [], [])
    assert binding.nvrtcCompileProgram(made, 1, [b"--gpu-architecture=compute_90"])[0] == 0
    return nvrtc._text("ptx", made, binding.nvrtcGetPTXSize, binding.nvrtcGetPTX).splitlines()


@pytest.mark.slow
def test_the_compiler_reads_nothing_of_others_before_the_wait() -> None:
    """Nor by ld.global.nc, which the assembler would move there."""
    pytest.importorskip("cuda.bindings.nvrtc")
    loads = 0
    for schedule in schedules():
        dag = schedule.dag
        plain = te.ComputeDAG.from_json(dag.to_json())
        program = lower_schedule(Schedule.replay(plain, schedule.to_json()), SM90)
        lines = ptx(generate(with_wait(program), SM90))
        awaited = True
        for line in lines:
            if ".entry" in line:
                assert awaited
                awaited = False
            awaited |= "griddepcontrol.wait" in line
            touched = re.search(r"\b(ld|st)\.global|cp\.async\.c[ag]", line)
            assert awaited or not touched, line
            assert "ld.global.nc" not in line
            loads += touched is not None
        assert awaited
    assert loads > 50


@pytest.mark.slow
def test_a_job_to_build_says_whether_it_is_chained() -> None:
    pytest.importorskip("cuda.bindings.nvrtc")
    schedule = default_schedule(computation(), SM90)
    alone, linked = payload_of(schedule), payload_of(schedule, chained=True)
    assert alone == {k: v for k, v in linked.items() if k != "chained"}
    assert not build_payload(alone, SM90).source.waits
    made = build_payload(linked, SM90).source
    assert made == generate_source(schedule, SM90, chained=True) and made.waits
    assert "w_packed = " not in made.text and "x = tw_fresh(x);" in made.text


@pytest.mark.slow
def test_inputs_are_read_before_the_wait_by_their_names() -> None:
    schedule = default_schedule(computation(), SM90)
    plain, named = (generate_source(schedule, SM90, chained=c).text for c in ("early", "early b"))
    for text, count in ((plain, 1), (named, 0)):
        assert "x = tw_fresh(x);" in text and text.count(" b = tw_fresh(b);") == count
    assert "tw_let_next_in" in named


def test_threads_in_turns_do_not_wait_for_a_kernel() -> None:
    source = generate_source(default_schedule(computation(), SM90), SM90, chained=True)
    turned = serialized(source)
    assert isinstance(turned, Source) and not turned.waits
    assert "x = tw_fresh(x);" in turned.text


@pytest.mark.slow
def test_nvrtc_accepts_turns() -> None:
    pytest.importorskip("cuda.bindings.nvrtc")
    source = generate_source(default_schedule(computation(), SM90), SM90, chained=True)
    turned = serialized(source)
    assert isinstance(turned, Source) and nvrtc.build(turned, SM90).binary
