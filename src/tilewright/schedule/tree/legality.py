"""Masks over resources: which candidates a target accepts, each refusal with a name.

In: `Resources` (of ints or vectors) and so a `Target`.  Out: `Verdict`: per reason a mask of the
candidates it refuses.  The same code judges one schedule before it is compiled and thousands.
Read next: `sketch.py`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tilewright.base.errors import LegalityError
from tilewright.ir.atoms import WARP
from tilewright.ir.bulk import MOST_ARRIVALS
from tilewright.ir.stmt import ASYNC_BYTES
from tilewright.ir.swizzle import SWIZZLES
from tilewright.schedule.space.decision import (
    Number,
    logical_and,
    logical_not,
    maximum,
    minimum,
    where,
)
from tilewright.schedule.tree.boxes import begins_between, does_not_fit
from tilewright.schedule.tree.chains import unit_terms
from tilewright.schedule.tree.joins import joined_in
from tilewright.schedule.tree.loop_tree import Bounds, Node
from tilewright.schedule.tree.resources import KernelResources, OpaqueResources, Resources
from tilewright.schedule.tree.rings import (
    is_asynchronous,
    slot_elements,
    slots,
    swizzle,
)
from tilewright.targets.precision import FLOAT32, PRECISIONS, allows, needed
from tilewright.targets.target import Target
from tilewright.te.chains import LONGEST, longest_in_unit, terms_of
from tilewright.te.tensor import IterVar

# Beyond these nothing is fast, and compilers or kernels may take minutes.
_VECTOR_FILES = 4  # one vector in all vector registers of a CPU
_TILE_FILES = 16  # a register tile in them
_WIDE = 16  # a vector of a GPU in its largest accesses
_WASTE = 1024  # iterations of a kernel for each one that the computation has
_LONG = 1 << 28  # iterations that are run in a moment, however many of them are needless

REASONS = {
    "threads": "more threads in a block than the device runs",
    "block_dim": "a block dimension above the device's limit",
    "grid_dim": "a grid dimension above the device's limit",
    "shared_memory": "more shared memory than a block may have",
    "registers": "local arrays exceed the registers of a thread (on a CPU: its vector registers)",
    "unrolled_body": "straight-line code so long that compiling takes seconds",
    "stack": "scratch arrays exceed the stack of a thread",
    "vector": f"a vector wider than {_WIDE} of the target's largest accesses (on a CPU: than its "
    f"registers hold {_VECTOR_FILES} times)",
    "alignment": f"copies of other than {', '.join(map(str, ASYNC_BYTES))} bytes, which cannot be "
    "asynchronous",
    "box": "a bulk copy of a tile that is no box an engine takes, on a device without one, or in a "
    f"block that is no multiple of {WARP} threads",
    "swizzle": f"a swizzle of other than {', '.join(map(str, SWIZZLES))} bytes",
    "spills": "a register tile so far beyond the registers that compiling takes seconds",
    "long_sums": f"a sum of more than {LONGEST} terms, one after the other, in one accumulator",
    "join": "blocks that count each other, on a device where they cannot",
    "atom": "a matrix instruction that the device lacks, loops inside it of another length, splits "
    "around it that are no multiples of these, or other lanes along threadIdx.x than its own",
    "tiles": "operands of a group of warps that are no asynchronous copies, or not in rows as long "
    "as their swizzle, k innermost, of which whole tiles are there; terms that are no whole atoms",
    "precision": "operands in fewer digits than the target's -precision= allows, or so many terms "
    "in one accumulator of a matrix unit, which cuts what it adds, that a sum loses its digits",
    "work": f"loops that run {_WASTE} times the iterations there are, nearly all for nothing",
}


# What a single schedule that breaks a limit should do; of other limits it asks for too much.
_SMALLER = "Use smaller tiles or fewer threads."
_WAYS_OUT = {
    "grid_dim": "Give each block more to do, or fuse loops of blocks into blockIdx.x.",
    "unrolled_body": "Unroll less.",
    "vector": "Vectorize a shorter loop.",
    "box": "Leave bulk_copy out: async_copy takes any tile.",
    "swizzle": f"Use one of {', '.join(map(str, SWIZZLES))}.",
    "join": "Leave join out: another kernel goes on.",
    "atom": "Have the lanes along threadIdx.x (thread_loops.lanes gives such a loop), warps along "
    "threadIdx.y, and split m, n and k by multiples of the instruction's own.",
    "tiles": "Copy both operands by pipeline into rows of 32, 64 or 128 bytes, k innermost, and "
    "swizzle as many.",
    "work": "Use factors nearer to the extents that they split.",
}


@dataclass(frozen=True)
class Verdict:
    """refused:     reason -> bool or mask of candidates that cannot run
    discouraged: likewise, of candidates that run but surely badly (spilled registers, sums that
                 lose their digits): a search leaves them out, a user may still compile one
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


def judge(resources: Resources) -> Verdict:
    """All limits of the target, over all kernels of the schedule (limits combine by "any")."""
    found = _Findings()
    for kernel in resources.kernels:
        steps = kernel.text(kernel.root).steps
        found.discourage("long_sums", kernel.longest_chain > LONGEST)
        _judge_precision(kernel, found)
        found.refuse("work", logical_and(steps > _LONG, steps > _WASTE * kernel.iterations))
        _judge_atoms(kernel, found)
        if resources.target.has_threads:
            _judge_gpu(kernel, found)
        else:
            _judge_cpu(kernel, found)
    if resources.target.has_threads:
        for given in resources.opaque:
            _judge_launch(given, resources.target, found)
    return Verdict(found.refused, found.discouraged, found.quantities)


@dataclass(frozen=True)
class _Findings:
    """A `Verdict` on its way, each kernel adding to it."""

    refused: dict[str, Any] = field(default_factory=dict)
    discouraged: dict[str, Any] = field(default_factory=dict)
    quantities: dict[str, Number] = field(default_factory=dict)

    def refuse(self, reason: str, mask: Any) -> None:
        self.refused[reason] = self.refused[reason] | mask if reason in self.refused else mask

    def discourage(self, reason: str, mask: Any) -> None:
        table = self.discouraged
        table[reason] = table[reason] | mask if reason in table else mask

    def note(self, name: str, value: Number) -> Number:
        known = self.quantities
        known[name] = maximum(known[name], value) if name in known else value
        return value


def _judge_precision(kernel: KernelResources, found: _Findings) -> None:
    """In how many digits matrix units multiply, and how many terms they add up in turn."""
    for node in kernel.nodes:
        if node.product is None:
            continue
        asked = needed(node.product.atom.name)
        found.refuse("precision", not allows(kernel.target.precision, asked))
        if all(isinstance(ax.extent, int) for ax in node.op.reduce_axis):
            most = longest_in_unit(terms_of(node.op), asked)
            found.discourage("precision", unit_terms(node, kernel.bounds) > most)


def _judge_cpu(kernel: KernelResources, found: _Findings) -> None:
    limits = kernel.target.limits
    stack = found.note("stack_bytes", kernel.stack_bytes)
    found.refuse("stack", stack > limits.max_stack_bytes)
    found.refuse("unrolled_body", found.note("body", kernel.body) > limits.max_unrolled_body)
    held = found.note("vector_registers", kernel.vector_registers)
    found.discourage("registers", held > limits.vector_registers)
    found.refuse("spills", held > _TILE_FILES * limits.vector_registers)
    widest = _VECTOR_FILES * limits.vector_registers * limits.vector_bytes
    for node, lanes in kernel.vectors:
        found.refuse("vector", lanes * _widest(node) > widest)


def _widest(node: Node) -> int:
    """Bytes of an element of the widest type that a stage stores."""
    return int(max(dtype.bytes for dtype in node.op.dtypes))


def _judge_launch(
    kernel: KernelResources | OpaqueResources, target: Target, found: _Findings
) -> Number:
    """Blocks, threads and shared memory; gives the threads of a block."""
    limits = target.limits
    for k, dim in enumerate("xyz"):
        block = kernel.launch.get(f"threadIdx.{dim}", 1)
        grid = kernel.launch.get(f"blockIdx.{dim}", 1)
        found.refuse("block_dim", block > limits.max_block[k])
        found.refuse("grid_dim", grid > limits.max_grid[k])
    threads = found.note("threads", kernel.threads)
    found.refuse("threads", threads > limits.max_threads_per_block)
    shared = found.note("shared_bytes", kernel.shared_bytes)
    found.refuse("shared_memory", shared > limits.shared_bytes_per_block)
    return threads


def _judge_atoms(kernel: KernelResources, found: _Findings) -> None:
    """Whether there is the instruction that computes a stage, around loops that fit it."""
    bounds, target = kernel.bounds, kernel.target
    for node in kernel.nodes:
        if node.product is None:
            continue
        atom = node.product.atom
        found.refuse("atom", not target.has(atom.name))
        if not atom.by_thread:
            found.refuse("atom", kernel.launch["threadIdx.x"] != atom.lanes)
        if atom.by_group:
            _judge_tiles(node, bounds, found)
        for letter, part in node.product.parts.items():
            wanted = atom.extents[letter]
            found.refuse("atom", bounds.extent[part.leaf] != wanted)
            for split in part.splits:
                found.refuse("atom", bounds.factor[split] % wanted != 0)
    for node in kernel.nodes:
        for split in node.fold.column.splits if node.fold is not None else ():
            found.refuse("atom", bounds.factor[split] % node.fold.width != 0)  # type: ignore[union-attr]


def _judge_tiles(node: Node, bounds: Bounds, found: _Findings) -> None:
    """Whether a group finds its operands in whole rows that are as long as their swizzle."""
    assert node.product is not None
    for operand in (node.product.a, node.product.b):
        read, dims = operand.node, operand.held.dims
        (depth,) = (d for d, letter in dims.items() if letter == "k")
        (across,) = (d for d, letter in dims.items() if letter != "k")
        strides, extents = bounds.strides(read), bounds.region(read)
        size = read.op.bytes
        found.refuse("tiles", slots(read, bounds) < 1)
        found.refuse("tiles", logical_not(is_asynchronous(read, bounds)))
        found.refuse("tiles", strides[depth] != 1)
        turned = swizzle(read, bounds)
        found.refuse("tiles", turned < node.product.atom.extents["k"] * size)
        found.refuse("tiles", strides[across] * size != turned)
        found.refuse("tiles", extents[depth] * size != turned)
        letter = dims[across]
        found.refuse("tiles", extents[across] % node.product.atom.extents[letter] != 0)
    k = node.product.parts["k"].root
    found.refuse("tiles", not isinstance(k.extent, int))
    if isinstance(k.extent, int):
        found.refuse("tiles", k.extent % node.product.atom.extents["k"] != 0)


def _judge_gpu(kernel: KernelResources, found: _Findings) -> None:
    limits = kernel.target.limits
    if joined_in(kernel.nodes) is not None:
        found.refuse("join", not kernel.target.counts_blocks)
    threads = _judge_launch(kernel, kernel.target, found)
    found.note("local_words", kernel.local_words)
    share = limits.registers_per_block // maximum(threads + kernel.loading_threads, 1)
    registers = found.note("registers", kernel.registers)
    found.discourage("registers", registers > minimum(share, limits.registers_per_thread))
    if any(n.product is not None and n.product.atom.by_group for n in kernel.nodes):
        # sums of groups stay in registers: assemblers refuse what does not fit
        found.refuse("registers", registers > minimum(share, limits.registers_per_thread))
    found.refuse("unrolled_body", found.note("body", kernel.body) > limits.max_unrolled_body)
    for node in kernel.nodes:
        if node.stage.is_copied:
            small = logical_not(is_asynchronous(node, kernel.bounds))
            found.discourage("alignment", logical_and(slots(node, kernel.bounds) > 0, small))
    _judge_bulk(kernel, found)
    for node in kernel.nodes:
        if not isinstance(node.stage.swizzled, int):
            chosen, other = swizzle(node, kernel.bounds), True
            for one in SWIZZLES:
                other = logical_and(other, chosen != one)
            found.refuse("swizzle", other)
    for node, lanes in kernel.vectors:  # wider ones are written out, element by element
        width = lanes * _widest(node)
        found.discourage("vector", width > limits.vector_bytes)
        found.refuse("vector", width > _WIDE * limits.vector_bytes)


def _begin_of(node: Node, bounds: Bounds) -> tuple[list[Any], Any]:
    """Coefficients of what the place of a box along its innermost axis is made of, and what is
    added."""
    assert node.view is not None
    axis = node.view.dimensions[-1].axis
    assert axis is not None
    base = bounds.base[node][node.op.axis.index(axis)]
    varies = [
        where(bounds.extent[atom] > 1, c, 0) if isinstance(atom, IterVar) else c
        for atom, c in base.terms.items()
    ]
    return varies, base.constant


def _judge_bulk(kernel: KernelResources, found: _Findings) -> None:
    """Whether an engine copies the boxes that stages ask for, in blocks that can wait for it."""
    limits, bounds = kernel.target.limits, kernel.bounds
    for node in kernel.nodes:
        if node.view is None:
            continue
        found.refuse("box", not kernel.target.copies_boxes)
        found.refuse("box", does_not_fit(node.view, bounds.extent, swizzle(node, bounds)))
        found.refuse("box", begins_between(node.view, *_begin_of(node, bounds)))
        found.refuse("box", kernel.threads % WARP != 0)
        nbytes = slot_elements(node, bounds) * node.op.bytes
        found.refuse("box", nbytes > MOST_ARRIVALS)
        with_loaders = kernel.threads + kernel.loading_threads
        found.refuse("threads", with_loaders > limits.max_threads_per_block)


def _asked(resources: Resources) -> str:
    """The precision of fewest digits that its atoms compute in."""
    products = (n.product for kernel in resources.kernels for n in kernel.nodes if n.product)
    names = {needed(product.atom.name) for product in products}
    return max(names, key=lambda name: PRECISIONS[name].rank, default=FLOAT32)


def check(resources: Resources, name: str, *, grids: bool = True) -> None:
    """Raise LegalityError naming every limit that a single schedule breaks.

    grids: whether those of a grid count: of extents that calls give, calls know them
    """
    verdict = judge(resources)
    found = [reason for reason in verdict.reasons() if grids or reason != "grid_dim"]
    if found:
        facts = ", ".join(f"{k}={int(np.max(v))}" for k, v in verdict.quantities.items())
        allowed = f"Multiply halves, or say that you allow it: -precision={_asked(resources)}."
        known = _WAYS_OUT | {"precision": allowed}
        way_out = " ".join(dict.fromkeys(known.get(r, _SMALLER) for r in found))
        raise LegalityError(
            f"schedule of {name} on {resources.target}",
            "; ".join(f"{REASONS[r]} ({r})" for r in found), f"It asks for {facts}. {way_out}",
        )  # fmt: skip
