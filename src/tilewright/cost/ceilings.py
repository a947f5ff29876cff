"""What a device can do at best, and how little time a kernel can take for it: the roofline.

In: a target whose device is known; operations and bytes of a computation.  Out: `Ceilings`, which a
log tells of the device that it was measured on, and the `Bound` of a kernel.
Read next: `targets/limits.py`, where the figures are from; `machine_model.py`, which predicts.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, NamedTuple

from tilewright.ir.expr import walk
from tilewright.targets.precision import allows, needed
from tilewright.targets.target import Target
from tilewright.te.chains import is_product
from tilewright.te.dag import ComputeDAG
from tilewright.te.tensor import ComputeOp

ARITHMETIC, MATRIX, MEMORY, CACHE, LAUNCH = (
    "arithmetic",
    "matrix units",
    "memory",
    "cache",
    "launch",
)
_FLOAT32 = "float32"
_IN_TYPE = {"tf32": _FLOAT32, "3xtf32": _FLOAT32}  # whose factors are float32 in memory
_MOST = 1e30


class Bound(NamedTuple):
    """seconds: that a kernel takes at least, its start included; side: what takes most of them."""

    seconds: float
    side: str


class Work(NamedTuple):
    """What a computation asks of a device.

    flop:   operations; nbytes: inputs and outputs, each once
    dtype:  of the factors of its products, else of its result; multiplies: it sums up products
    """

    flop: float
    nbytes: int
    dtype: str
    multiplies: bool

    @property
    def intensity(self) -> float:
        """Operations a byte."""
        return self.flop / self.nbytes if self.nbytes else 0.0


@dataclass(frozen=True)
class Ceilings:
    """Rates per second; 0: not known.

    rates:  operations by element type; matrix: those of the unit that multiplies matrices
    memory, cache: bytes; cache_bytes: what stays in the cache; launch: seconds to start a kernel
    """

    rates: Mapping[str, float] = field(default_factory=dict)
    matrix: Mapping[str, float] = field(default_factory=dict)
    memory: float = 0.0
    cache: float = 0.0
    cache_bytes: int = 0
    launch: float = 0.0

    def rate(self, work: Work) -> tuple[float, str]:
        """Operations per second of the fastest unit that can do it, and which that is."""
        plain = self.rates.get(work.dtype) or self.rates.get(_FLOAT32, 0.0)
        matrix = self.matrix.get(work.dtype, 0.0) if work.multiplies else 0.0
        return (matrix, MATRIX) if matrix > plain else (plain, ARITHMETIC)

    def bandwidth(self, work: Work) -> tuple[float, str]:
        """Bytes per second, of the cache where its operands stay there."""
        if self.cache and work.nbytes <= self.cache_bytes:
            return self.cache, CACHE
        return self.memory, MEMORY

    def bound(self, work: Work) -> Bound | None:
        """What limits a kernel; None where nothing of the device is known."""
        sides = [(work.flop, *self.rate(work)), (work.nbytes, *self.bandwidth(work))]
        found = [Bound(amount / rate, side) for amount, rate, side in sides if rate]
        if not found:
            return None
        most = max(found, key=lambda bound: bound.seconds)
        side = most.side if most.seconds >= self.launch else LAUNCH
        return Bound(self.launch + most.seconds, side)

    def to_json(self) -> dict[str, Any]:
        """Plain numbers, of which `from_json` makes the same."""
        return {name: value for name, value in asdict(self).items() if value}


def ceilings_of(target: Target) -> Ceilings:
    """The limits of a target, as models of its kernels take them."""
    limits = target.limits
    matrix: dict[str, float] = {}
    for atom in limits.atoms:
        name = atom.name.partition(".")[2]
        dtype = _IN_TYPE.get(name, name)
        if allows(target.precision, needed(atom.name)):
            matrix[dtype] = max(atom.rate, matrix.get(dtype, 0.0))
    rates = {str(dtype): rate for dtype, rate in limits.rates}
    if _FLOAT32 not in rates:
        rates = {}
    # A function of this processor starts in no time; what the model counts is that of its threads.
    launch = limits.launch_seconds if target.has_threads else 0.0
    return Ceilings(
        rates, matrix, limits.memory_bandwidth, limits.l2_bandwidth, limits.l2_bytes, launch
    )


def from_json(told: Any) -> Ceilings | None:
    """Invert `Ceilings.to_json`, of a log that anybody may have written; None for anything else."""
    if not isinstance(told, dict) or not told:
        return None
    tables = [told.get(name, {}) for name in ("rates", "matrix")]
    numbers = [told.get(name, 0) for name in ("memory", "cache", "cache_bytes", "launch")]
    listed = [*numbers, *(v for t in tables if isinstance(t, dict) for v in t.values())]
    if not all(isinstance(table, dict) for table in tables) or not all(map(_is_rate, listed)):
        return None
    rates, matrix = ({str(name): float(rate) for name, rate in table.items()} for table in tables)
    memory, cache, cache_bytes, launch = map(float, numbers)
    return Ceilings(rates, matrix, memory, cache, int(cache_bytes), launch)


def _is_rate(value: Any) -> bool:
    number = isinstance(value, int | float) and not isinstance(value, bool)
    return number and math.isfinite(value) and 0 <= value < _MOST


def work_of(dag: ComputeDAG, flop: float | None = None) -> Work:
    """What a computation asks for.  flop: where somebody counted them otherwise"""
    products = [op for op in dag.compute_ops if _sums(op) and is_product(op)]
    factors = [t.dtype for op in products for t in op.input_tensors]
    dtype = max(factors, key=lambda d: d.bits, default=dag.outputs[0].dtype)
    flop = dag.flop_ct if flop is None else flop
    return Work(flop, _bytes(dag), str(dtype), any(map(_of_matrices, products)))


def _sums(op: ComputeOp) -> bool:
    added = op.combiner is not None and op.combiner.result.op == "add"
    return added and bool(op.reduce_axis)


def _of_matrices(op: ComputeOp) -> bool:
    """Whether a sum of products is one: of each factor there is an axis that the other lacks."""
    term = op.reduced
    while term.op in ("cast", "if_then_else"):
        term = term.args[1 if term.op == "if_then_else" else 0]
    axes = {ax.var for ax in op.axis if ax.size > 1}
    left, right = (axes.intersection(walk(factor)) for factor in term.args)
    return bool(left - right and right - left)


def _bytes(dag: ComputeDAG) -> int:
    """Of inputs and outputs; of one that is read in part, such as a table, that part."""
    total = 0
    for tensor in dag.args:
        read = sum(
            math.prod(ax.size for ax in (*op.axis, *op.reduce_axis))
            * sum(t is tensor for t in op.input_tensors)
            for op in dag.consumers(tensor.op)
        )
        size = math.prod(tensor.shape)
        total += tensor.dtype.bytes * (size if tensor in dag.outputs else min(size, read))
    return total
