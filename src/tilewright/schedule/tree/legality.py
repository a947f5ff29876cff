"""Masks over bounds: which candidates a target accepts, each refusal with a name.

In: a `LoopTree`, `Bounds` (ints or vectors) and a `Target`.  Out: `Verdict`: per reason a mask of
the candidates it refuses.  The same code judges one schedule before it is compiled and thousands.
Read next: `sketch.py`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from tilewright.base.errors import LegalityError
from tilewright.ir import expr as E
from tilewright.schedule.space.decision import Number, ceil_div, evaluate, maximum, where
from tilewright.schedule.tree.loop_tree import Bounds, LoopTree, Node
from tilewright.targets.target import Target

# Registers of a thread beside its arrays: addresses, loop counters, operands in flight.
BASE_REGISTERS = 24

REASONS = {
    "threads": "more threads in a block than the device runs",
    "block_dim": "a block dimension above the device's limit",
    "grid_dim": "a grid dimension above the device's limit",
    "shared_memory": "more shared memory than a block may have",
    "registers": "local arrays exceed the registers of a thread (on a CPU: its vector registers)",
    "unrolled_body": "straight-line code so long that compiling takes seconds",
    "stack": "scratch arrays exceed the stack of a thread",
    "vector": "a vector wider than the target's largest access",
}


@dataclass(frozen=True)
class Verdict:
    """refused:     reason -> bool or mask of candidates that cannot run
    discouraged: likewise, of candidates that run but surely badly (spilled registers): a search
                 leaves them out, a user may still compile one
    quantities:  what the limits were compared with
    """

    refused: dict[str, Any]
    discouraged: dict[str, Any]
    quantities: dict[str, Number]

    def legal(self, rows: int) -> Any:
        """Mask of `rows` candidates that no reason refuses."""
        return _none_of(self.refused, rows)

    def sensible(self, rows: int) -> Any:
        """Mask of `rows` candidates worth measuring: legal and not discouraged."""
        return _none_of(self.refused, rows) & _none_of(self.discouraged, rows)

    def reasons(self) -> list[str]:
        """The reasons against a single candidate."""
        return [name for name, mask in self.refused.items() if bool(np.any(mask))]


def _none_of(masks: dict[str, Any], rows: int) -> Any:
    ok = np.ones(rows, bool)
    for mask in masks.values():
        ok &= ~np.broadcast_to(np.asarray(mask, bool), rows)
    return ok


def judge(tree: LoopTree, bounds: Bounds, target: Target) -> Verdict:
    """All limits of the target, over all kernels of the schedule (limits combine by "any")."""
    refused: dict[str, Any] = {}
    discouraged: dict[str, Any] = {}
    quantities: dict[str, Number] = {}

    def refuse(reason: str, mask: Any, table: dict[str, Any] = refused) -> None:
        table[reason] = table[reason] | mask if reason in table else mask

    def note(name: str, value: Number) -> Number:
        quantities[name] = maximum(quantities[name], value) if name in quantities else value
        return value

    limits = target.limits
    for root in tree.roots:
        nodes = tree.subtree(root)
        if not target.has_threads:
            stack: Number = 0
            for node in nodes:
                if node.parent is not None:
                    stack = stack + bounds.elements(node) * node.op.dtype.bytes
            refuse("stack", note("stack_bytes", stack) > limits.max_stack_bytes)
            refuse("unrolled_body", note("body", _body(bounds, nodes)) > limits.max_unrolled_body)
            for node in nodes:
                if node.op.combiner is not None and node.scope == "local":
                    held = note("vector_registers", _vectors(tree, bounds, node, target))
                    refuse("registers", held > limits.vector_registers, discouraged)
            continue
        launch = bounds.launch(root)
        threads: Number = 1
        for k, dim in enumerate("xyz"):
            block, grid = launch.get(f"threadIdx.{dim}", 1), launch.get(f"blockIdx.{dim}", 1)
            threads = threads * block
            refuse("block_dim", block > limits.max_block[k])
            refuse("grid_dim", grid > limits.max_grid[k])
        refuse("threads", note("threads", threads) > limits.max_threads_per_block)
        shared: Number = 0
        local: Number = 0
        for node in nodes:
            size = bounds.elements(node)
            if node.scope == "shared":
                shared = shared + ceil_div(size * node.op.dtype.bytes, 16) * 16
            elif node.scope == "local":
                words = size * bounds.replicas(node) * (node.op.dtype.bytes // 4 or 1)
                local = local + words
            if any(ax.kind == "reduce" for ax in node.stage.binds):
                shared = shared + ceil_div(threads * node.op.dtype.bytes, 16) * 16
        note("local_words", local)
        per_thread = limits.registers_per_block // maximum(threads, 1)
        budget = where(
            per_thread < limits.registers_per_thread, per_thread, limits.registers_per_thread
        )
        refuse("shared_memory", note("shared_bytes", shared) > limits.shared_bytes_per_block)
        refuse("registers", note("registers", local + BASE_REGISTERS) > budget, discouraged)
        refuse("unrolled_body", note("body", _body(bounds, nodes)) > limits.max_unrolled_body)
        for node in nodes:
            for ax, how in node.stage.annotations.items():
                if how == "vectorize":
                    width = bounds.extent[ax] * node.op.dtype.bytes
                    refuse("vector", width > limits.vector_bytes)
    return Verdict(refused, discouraged, quantities)


def _vectors(tree: LoopTree, bounds: Bounds, node: Node, target: Target) -> Number:
    """Vector registers in the innermost nest of a local reduction on a CPU: an accumulator per
    element of the loops inside the reduction, the vectors these loops read again, and one operand
    in flight."""
    leaves = node.stage.leaf_iter_vars
    first = next(k for k, ax in enumerate(leaves) if ax.kind == "reduce")
    inner = [ax for ax in leaves[first:] if ax.kind == "spatial"]
    lanes = [ax for ax in inner if node.stage.annotations.get(ax) == "vectorize"]
    width: Number = node.op.dtype.bytes
    for ax in lanes:
        width = width * bounds.extent[ax]
    unit: Number = ceil_div(width, target.limits.vector_bytes)
    loops = [ax for ax in inner if ax not in lanes]

    def vectors(roots: set[Any]) -> Number:
        count = unit
        for ax in loops:
            if any(ax in tree.leaves_under[r] for r in roots):
                count = count * bounds.extent[ax]
        return count

    total = vectors(set(node.op.axis)) + 1
    for e in E.walk(node.body):
        if e.op == "read":
            used = E.free_variables(*e.args)
            roots = {ax for ax in node.op.axis if ax.var in used}
            if any(ax in tree.leaves_under[r] for r in roots for ax in lanes):
                total = total + vectors(roots)
    return total


def _body(bounds: Bounds, nodes: list[Node]) -> Number:
    """Innermost statements that the unrolling somebody asked for writes out, summed over stages."""
    total: Number = 0
    for node in nodes:
        limit = _pragma(bounds, node)
        steps: Number = 1
        body: Number = 1
        for ax in reversed(node.stage.leaf_iter_vars):
            tag = node.stage.binds.get(ax, "")
            how = node.stage.annotations.get(ax, "")
            if how == "vectorize" or (tag and tag != "vthread"):
                continue
            e = bounds.extent[ax]
            steps = steps * e
            if how == "unroll" or tag == "vthread":
                body = body * e
            else:
                body = body * where(steps <= limit, e, 1)
        total = total + body
    return total


def _pragma(bounds: Bounds, node: Node) -> Number:
    """auto_unroll_max_step in force for the loops of a stage."""
    walker: Node | None = node
    while walker is not None:
        entry = walker.stage.pragmas.get("auto_unroll_max_step")
        if entry is not None:
            return evaluate(entry[1], bounds.assignment)
        walker = walker.parent
    return 0


def check(tree: LoopTree, bounds: Bounds, target: Target, name: str) -> None:
    """Raise LegalityError naming every limit that a single schedule breaks."""
    verdict = judge(tree, bounds, target)
    found = verdict.reasons()
    if found:
        facts = ", ".join(f"{k}={int(np.max(v))}" for k, v in verdict.quantities.items())
        raise LegalityError(
            f"schedule of {name} on {target}", "; ".join(f"{REASONS[r]} ({r})" for r in found),
            f"It asks for {facts}. Use smaller tiles or fewer threads.",
        )  # fmt: skip
