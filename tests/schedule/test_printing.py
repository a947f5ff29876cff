"""What schedules, loop trees and their relatives print: true, complete, one line where it is repr.

A printed loop nest is almost Python.  The property test runs it as such, on whole tensors, and
compares with the reference: indices, guards, places and signs are what the schedule means.
"""

from __future__ import annotations

import math
import operator
import random
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import tilewright
from schedule.computations import draw_computation, matmul
from schedule.drawing import draw_schedule
from schedule.step_cases import chain, doubled, nest, padded, row_sums
from tests.tiers import examples
from tilewright.schedule.schedule import Schedule, create_schedule
from tilewright.schedule.space.decision import Assignment, var
from tilewright.schedule.task import task_of_dag
from tilewright.schedule.tree.loop_tree import LoopTree
from tilewright.targets.target import Target
from tilewright.te.dag import ComputeDAG
from tilewright.te.evaluate import evaluate_with_tolerance, random_inputs

MAX_STATEMENTS = 60_000


COMBINE: dict[str, Callable[[Any, Any], Any]] = {
    "+=": operator.add, "*=": operator.mul, "max=": max, "min=": min,
    "both=": operator.add,  # `general_reduction`: the greater and the lesser, added
}  # fmt: skip


class TooLong(Exception):
    pass


class Nest:
    """Runs a printed schedule.  A tensor is a dict from indices; what nobody wrote is NaN.

    What is stored must lie in the tensor, and fit the buffer whose shape is printed.
    """

    def __init__(self, s: Schedule, inputs: dict[str, np.ndarray]) -> None:
        text = str(s)
        self.shapes = {stage.name: stage.op.shape for stage in s.stages}
        self.rooms: dict[str, int] = {}
        self.tensors: dict[str, dict[tuple[int, ...], Any]] = {
            name: {at: value.item() for at, value in np.ndenumerate(array)}
            for name, array in inputs.items()
        }
        self.steps = 0
        for name in re.findall(r"^ *(\S+): \w+\[", text, re.MULTILINE):
            self.tensors.setdefault(name, {})
        code = "\n".join(filter(None, map(self._line, text.splitlines())))
        scope = {name: getattr(math, name) for name in ("exp", "sqrt", "tanh", "erf", "log", "inf")}
        scope |= {self._name(n): _Reader(t) for n, t in self.tensors.items()}
        scope |= {"stage": self.stage, "store": self.store, "if_then_else": _choose}
        scope |= {"select": _choose, "float32": float, "int32": int, "float16": float}
        exec(code, scope)  # type: ignore[arg-type]

    @staticmethod
    def _name(dotted: str) -> str:
        return dotted.replace(".", "_o_")

    def _line(self, line: str) -> str:
        pad, line = re.match(r"( *)(.*)", line).groups()  # type: ignore[union-attr]
        names = re.compile(r"(?<![\w.])[A-Za-z_][\w.]*")
        if re.match(r"\S+: (\w+\[.*\] (input|constant)$|inlined)", line):
            return ""
        if header := re.match(r"(\S+): \w+\[(.*?)\]", line):
            name = header[1]
            self.rooms[name] = math.prod(map(int, filter(None, header[2].split(", "))))
            return f"{pad}if stage({name!r}):"
        line = line.partition("  #")[0]
        if loop := re.match(r"(?:\S+ )?for (\S+) in (\d+):", line):
            one = loop[2] == "1"  # Python nests 20 loops, and nothing names the variable of one
            return pad + ("if True:" if one else f"for {self._name(loop[1])} in range({loop[2]}):")
        python = names.sub(lambda m: self._name(m[0]), line)
        if python.startswith("if "):
            return pad + python
        name, index, sign, value = re.match(r"(\S+?)\[(.*?)\] (\S*=) (.*)", line).groups()  # type: ignore[union-attr]
        index, value = (names.sub(lambda m: self._name(m[0]), part) for part in (index, value))
        return f"{pad}store({name!r}, ({index}{',' * bool(index)}), {sign!r}, {value})"

    def stage(self, name: str) -> bool:
        self.tensors[name].clear()
        return True

    def store(self, name: str, at: tuple[int, ...], sign: str, value: Any) -> None:
        self.steps += 1
        if self.steps > MAX_STATEMENTS:
            raise TooLong
        assert all(0 <= i < n for i, n in zip(at, self.shapes[name], strict=True)), (name, at)
        tensor = self.tensors[name]
        tensor[at] = COMBINE[sign](tensor[at], value) if sign != "=" and at in tensor else value
        assert len(tensor) <= self.rooms[name], f"{name} holds more than its buffer"


class _Reader:
    def __init__(self, tensor: dict[tuple[int, ...], Any]) -> None:
        self.tensor = tensor

    def __getitem__(self, at: Any) -> Any:
        return self.tensor.get(at if isinstance(at, tuple) else (at,), math.nan)


def _choose(condition: bool, yes: Any, no: Any) -> Any:
    return yes if condition else no


@pytest.mark.slow
@examples(40)
@given(st.integers(0, 10**9), st.booleans())
def test_a_printed_schedule_run_as_python_is_the_computation(seed: int, gpu: bool) -> None:
    rng = random.Random(seed)
    dag = ComputeDAG(draw_computation(rng)[1])
    schedule = draw_schedule(dag, rng, gpu=gpu)
    text = str(schedule)
    if re.search(r"\bthreadIdx\.\w(?! for)|\bblockIdx\.\w(?! for)", text):
        return  # a lane outside the loop that is bound to it
    inputs = random_inputs(dag, seed)
    names = [op.name for op in dag.placeholders]
    try:
        ran = Nest(schedule, dict(zip(names, inputs, strict=True)))
    except TooLong:
        return
    except SyntaxError as error:
        assert "nested" in str(error)  # Python has a limit, too
        return
    expected, tolerance = evaluate_with_tolerance(dag, inputs)
    unique = dag.unique_names()
    for tensor, reference, bound in zip(dag.outputs, expected, tolerance, strict=True):
        found = np.full(tensor.shape, np.nan)
        for at, value in ran.tensors[unique[tensor.op]].items():
            found[at] = value
        assert (np.abs(found - reference) <= bound).all(), text


def open_schedule() -> Schedule:
    """Tiles, a padding and an unrolling limit that are still open."""
    s = create_schedule([matmul(16, 12, 8)[-1].op])
    c, a = s.outputs[0].tensor, s.find("A").tensor
    i, _ = s[c].op.axis
    outer, _ = s[c].split(i, factor=var("tile_i.1"))
    s[c].split(s[c].op.reduce_axis[0], nparts=var("parts") * 2)
    s[c].pragma(outer, "auto_unroll_max_step", var("unroll"))
    shared = s.cache_read(a, "shared", [c])
    s[shared].compute_at(s[c], outer)
    s[shared].storage_align(s[shared].op.axis[0], 8, var("pad"))
    return s


def test_open_decisions_are_named() -> None:
    s = open_schedule()
    # the region of what is computed at a loop is known when the decisions are
    assert str(s) == str(LoopTree(s)) == """\
A: float32[16, 8] input
B: float32[8, 12] input
C: float32[16, 12] global
  for i.outer in ceil_div(16, tile_i.1):  # auto_unroll_max_step unroll
    A.shared: float32[?, ?] shared, stride of ax0 (8n + pad), at C.i.outer
      for ax0 in ?:
        for ax1 in ?:
          A.shared[? + ax0, ? + ax1] = A[? + ax0, ? + ax1]
    for i.inner in tile_i.1:
      for j in 12:
        for r.outer in parts*2:
          for r.inner in ceil_div(8, parts*2):
            C[i.outer*tile_i.1 + i.inner, j] += \
A.shared[i.outer*tile_i.1 + i.inner, r.outer*ceil_div(8, parts*2) + r.inner]\
*B[r.outer*ceil_div(8, parts*2) + r.inner, j]"""  # fmt: skip


def gpu_schedule() -> Schedule:
    s = create_schedule([matmul(16, 12, 8)[-1].op])
    c, a = s.outputs[0].tensor, s.find("A").tensor
    local = s.cache_write(c, "local")
    shared = s.cache_read(a, "shared", [local])
    i, j = s[c].op.axis
    v, rest = s[c].split(i, nparts=2)
    thread, inner = s[c].split(rest, nparts=4)
    s[c].reorder(j, v, thread, inner)
    for axis, tag in ((j, "blockIdx.x"), (v, "vthread"), (thread, "threadIdx.x")):
        s[c].bind(axis, tag)
    s[local].compute_at(s[c], inner)
    s[shared].compute_at(s[c], j)
    s[shared].storage_align(s[shared].op.axis[0], 4, 1)
    return s


def test_scopes_sizes_threads_and_padding() -> None:
    assert str(gpu_schedule()) == """\
A: float32[16, 8] input
B: float32[8, 12] input
C: float32[16, 12] global, 192 elements, 768 bytes
  blockIdx.x for j in 12:
    A.shared: float32[16, 8] shared, 144 elements, 576 bytes, stride of ax0 9 (4n + 1), at C.j
      for ax0 in 16:
        for ax1 in 8:
          A.shared[ax0, ax1] = A[ax0, ax1]
    vthread for i.outer in 2:
      threadIdx.x for i.inner.outer in 4:
        for i.inner.inner in 2:
          C.local: float32[1, 1] local, 1 element, 4 bytes, 2 copies (vthread), at C.i.inner.inner
            for i.c in 1:
              for j.c in 1:
                for r in 8:
                  C.local[i.outer*8 + i.inner.outer*2 + i.inner.inner, j] += \
A.shared[i.outer*8 + i.inner.outer*2 + i.inner.inner, r]*B[r, j]
          C[i.outer*8 + i.inner.outer*2 + i.inner.inner, j] = \
C.local[i.outer*8 + i.inner.outer*2 + i.inner.inner, j]"""  # fmt: skip


def test_the_nest_in_the_design_page() -> None:
    s = create_schedule([matmul(16, 12, 8)[-1].op])
    c = s.outputs[0]
    shared = s[s.cache_read(s.find("A").tensor, "shared", [c.tensor])]
    i, j = c.op.axis
    (r,) = c.op.reduce_axis
    outer, inner = c.split(i, nparts=6)
    c.reorder(j, outer, inner, r)
    c.bind(j, "blockIdx.x")
    c.bind(outer, "threadIdx.x")
    c.pragma(r, "auto_unroll_max_step", 16)
    shared.compute_at(c, j)
    shared.storage_align(shared.op.axis[0], 4, 1)
    page = (Path(__file__).parents[2] / "docs" / "schedules.md").read_text()
    assert f"{nest(s)}\n```" in page


def test_a_schedule_that_is_not_finished_says_what_is_missing() -> None:
    s = create_schedule([row_sums(4, 10)[-1].op])
    s.cache_write(s.outputs[0].tensor, "local")
    first, *rest = str(s).splitlines()
    assert first.startswith("# stage C.local: a local buffer ends with its kernel")
    assert "C.local: float32[4] local" in rest


def test_a_thread_index_stands_for_a_loop_that_is_not_around() -> None:
    s = create_schedule([chain(6, 4)[-1].op])
    b, c = s.find("B"), s.find("C")
    i, j = c.op.axis
    c.reorder(j, i)
    c.bind(i, "threadIdx.x")
    b.set_scope("local")
    b.compute_at(c, j)
    assert "B[threadIdx.x, j] = A[threadIdx.x, j]*2.0" in str(s)


def test_lower_shows_threads_without_a_target() -> None:
    s = gpu_schedule()
    assert str(tilewright.lower(s)) == str(tilewright.lower(s, target="cuda"))
    assert "launch 12 blocks of 4 threads: block_x = blockIdx.x, thread_x = threadIdx.x" in str(
        tilewright.lower(s)
    )
    plain = create_schedule([doubled(8)[-1].op])
    assert str(tilewright.lower(plain)) == str(tilewright.lower(plain, target="llvm"))
    with Target("opencl"):
        assert str(tilewright.lower(s)) == str(tilewright.lower(s, target="opencl"))


def test_reprs_say_what_things_are_in_one_line() -> None:
    s = open_schedule()
    tree = LoopTree(s)
    four = np.full(3, 4)
    numbers = Assignment({"tile_i.1": four, "parts": four, "unroll": four, "pad": four})
    task = task_of_dag(ComputeDAG(padded(10)), "llvm", "pool", (10,))
    for thing, text in {
        s: "Schedule(C: 4 stages, 6 steps, open: tile_i.1, parts, unroll, pad)",
        s.find("A.shared"): "Stage(A.shared: at C.i.outer, loops ax0 ax1)",
        gpu_schedule().find("C"): "Stage(C: computed on its own, loops j(blockIdx.x) "
        "i.outer(vthread) i.inner.outer(threadIdx.x) i.inner.inner)",
        tree: "LoopTree(kernels: C; 2 stored stages)",
        tree.bounds(numbers): "Bounds(of A.shared, C; 3 candidates)",
        task: "Task(name=pool, args=(10,), target=llvm)",
    }.items():
        assert repr(thing) == text
