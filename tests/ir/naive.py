"""The obvious lowering of a DAG, in a few variants, to test what runs and checks programs.

One kernel per stage.  style: "serial"; "parallel" (the outermost loop); "launched" (the first axis
over blocks, the second over threads); "vector" (the innermost axis in vectors where it divides).
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from tilewright.ir import expr as E
from tilewright.ir.expr import Expr
from tilewright.ir.stmt import Buffer, For, Kernel, Program, Stmt, Store, Thread, load, seq
from tilewright.te.dag import ComputeDAG
from tilewright.te.tensor import ComputeOp, Operation

STYLES = ("serial", "parallel", "launched", "vector")


def flat(indices: Sequence[Expr], shape: Sequence[int]) -> Expr:
    index = E.const(0)
    for i, n in zip(indices, shape, strict=True):
        index = index * n + i
    return index


def program(dag: ComputeDAG, style: str = "serial") -> Program:
    buffers: dict[Operation, Buffer] = {}
    for op, name in dag.unique_names().items():
        buffers[op] = Buffer(name, op.dtype, math.prod(op.shape), "global", op.shape)
    outputs = {t.op for t in dag.outputs}
    kernels = [_kernel(op, buffers, style, f"stage{k}") for k, op in enumerate(dag.compute_ops)]
    return Program(
        "naive",
        tuple(buffers[t.op] for t in dag.args),
        tuple("output" if t.op in outputs else "input" for t in dag.args),
        tuple(kernels),
        tuple(buffers[op] for op in dag.compute_ops if op not in outputs),
    )


def _kernel(op: ComputeOp, buffers: dict[Operation, Buffer], style: str, name: str) -> Kernel:
    fresh = {ax.var: E.var(ax.name, ax.var.dtype) for ax in (*op.axis, *op.reduce_axis)}
    axes = [(fresh[ax.var], int(ax.extent or 0)) for ax in op.axis]
    inner = [(fresh[ax.var], int(ax.extent or 0)) for ax in op.reduce_axis]
    out = buffers[op]

    def lowered(node: Expr) -> Expr:
        moved = E.substitute(node, fresh)
        return E.transform(moved, lambda n: _load(n, buffers) if n.op == "read" else None)

    vector = {}
    lanes = next((n for n in (4, 3, 2) if axes and axes[-1][1] % n == 0), 1)
    if style == "vector" and lanes > 1:
        var, extent = axes.pop()
        part = E.var(f"{var.name}_v")
        vector = {var: E.ramp(part * lanes, 1, lanes)}
        place = flat([*(v for v, _ in axes), vector[var]], op.shape)
        axes.append((part, extent // lanes))
    else:
        place = flat([v for v, _ in axes], op.shape)

    def value(node: Expr) -> Expr:
        return E.broadcast(E.substitute(lowered(node), vector), place.lanes)

    if op.combiner is None:
        body: Stmt = Store(out, place, value(op.body))
    else:
        terms = op.combiner.combine(load(out, place), value(op.body.args[0]))
        update: Stmt = Store(out, place, terms)
        for v, extent in reversed(inner):
            update = For(v, extent, update)
        body = seq(Store(out, place, value(op.combiner.identity)), update)
    threads: list[Thread] = []
    if style == "launched":
        tags = ("blockIdx.x", "threadIdx.x", "threadIdx.y", "blockIdx.y")
        while axes and len(threads) < len(tags):
            threads.append(Thread(tags[len(threads)], *axes.pop(0)))
    for k, (v, extent) in reversed(list(enumerate(axes))):
        body = For(v, extent, body, "parallel" if style == "parallel" and k == 0 else "serial")
    used = dict.fromkeys((*(buffers[t.op] for t in op.input_tensors), out))
    return Kernel(name, tuple(used), body, tuple(threads))


def _load(node: Expr, buffers: dict[Operation, Buffer]) -> Expr:
    return load(buffers[node.attr.op], flat(node.args, node.attr.shape))
