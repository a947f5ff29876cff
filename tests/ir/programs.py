"""Small kernels over buffers a and b of eight elements, and how to run one."""

import numpy as np
import pytest

from tests.interpreter import run as run_plain
from tilewright.ir import expr as E
from tilewright.ir.fast_interpreter import run_fast
from tilewright.ir.stmt import (
    Allocate,
    Barrier,
    Buffer,
    For,
    If,
    Kernel,
    Program,
    Store,
    Thread,
    load,
    seq,
)

ZERO = E.const(0.0)
N = 8
A, B = Buffer("a", "float32", N), Buffer("b", "float32", N)
V, J, T, U = E.var("i"), E.var("j"), E.var("t"), E.var("u")
ROLES = ("input", "output")
BOTH = pytest.mark.parametrize("run", [run_plain, run_fast])  # interpreters


def kernel(body, threads=(), params=(A, B)):
    return Kernel("k", params, body, threads)


def launch(body, blocks=1, threads=N):
    return kernel(body, (Thread("blockIdx.x", U, blocks), Thread("threadIdx.x", T, threads)))


def execute(*kernels, check=True, workspaces=(), args=(A, B), run=run_fast):
    """Run on a = 0, 1, 2, ... and return b."""
    arrays = [np.arange(b.size).astype(b.dtype) for b in args[:-1]]
    arrays.append(np.zeros(args[-1].size, args[-1].dtype))
    roles = ("input",) * (len(args) - 1) + ("output",)
    run(Program("p", args, roles, kernels, workspaces), arrays, check=check)
    return arrays[-1]


def copy(source=A, target=B):
    i = E.var("i")
    return For(i, N, Store(target, i, load(source, i)))


def masked(test, then, orelse=None):
    """A condition on the lanes of the vectors stored under it."""
    return kernel(seq(copy(), For(V, 2, If(test, then, orelse))))


def reversed_through_shared(barrier=True):
    shared = Buffer("s", "float32", N, "shared")
    body = seq(
        Store(shared, T, load(A, T)),
        Barrier() if barrier else None,
        Store(B, T, load(shared, N - 1 - T)),
    )
    return launch(Allocate(shared, body))
