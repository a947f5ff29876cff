"""What a kernel is as Python: the function, its parameters, and what its checks were about.

In: nothing.  Out: `PythonKernel`, made by `fast_source.py` and run by `fast_interpreter.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from tilewright.ir.expr import Expr
from tilewright.ir.interpreter_memory import first_line
from tilewright.ir.stmt import Buffer, Join, Stmt


@dataclass(frozen=True)
class Site:
    """What a check in the generated code was about."""

    kind: str
    buffer: Buffer
    statement: Stmt
    unit: int = 1  # what an aligned index is a multiple of


@dataclass(frozen=True)
class PythonKernel:
    """`function(fork, block, epoch, tid, threads, *launch variables, *lists)`.

    The lists are, per buffer of `parameters` and then of `shared`, the elements and its
    `trackers[buffer]` stamp lists.
    """

    function: Callable[..., Any]
    source: str
    parameters: tuple[Buffer, ...]
    shared: tuple[Buffer, ...]
    trackers: dict[Buffer, int]
    sites: tuple[Site, ...]
    variables: dict[str, Expr]
    lines: dict[int, Stmt]
    has_barrier: bool
    check: bool
    joins: tuple[Join, ...] = ()

    def statement_at(self, error: BaseException) -> str | None:
        """The statement whose generated code raised `error`, or None if it came from elsewhere."""
        found = None
        trace = error.__traceback__
        while trace is not None:
            if trace.tb_frame.f_code.co_filename == "<interpreter>":
                found = first_line(self.lines[trace.tb_lineno])
            trace = trace.tb_next
        return found


@dataclass
class Block:
    """Lines at one indentation: the hoisted ones, then the others; nested blocks have a header."""

    prelude: list[str] = field(default_factory=list)
    body: list[str | tuple[str, Block]] = field(default_factory=list)
    statement: list[Stmt] = field(default_factory=list)  # one per entry of body
