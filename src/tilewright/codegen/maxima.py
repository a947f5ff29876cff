"""Maxima of what the lanes of a warp have, by one instruction.

In: a program.  Out: the same, where lanes that exchange a float five times and keep the larger one
each time find the maximum at once: of the bits as an integer of the same order.  Devices that have
no such instruction exchange.  Read next: `lowering/reductions.py`, where the exchanges come from.
"""

from __future__ import annotations

from dataclasses import replace

from tilewright.base.dtype import FLOAT32
from tilewright.ir import expr as E
from tilewright.ir.atoms import WARP
from tilewright.ir.stmt import Exchange, Program, Seq, Stmt, Store, load, map_children, seq

MAXIMUM = "tw_maximum"  # (float), of `Dialect.instructions`
OF_LANES = "maximum_of_lanes"  # of expressions: (float)
TEXT = f"""static __device__ __forceinline__ float {MAXIMUM}(float x) {{
#if __CUDA_ARCH__ >= 800
  const int bits = __float_as_int(x);
  const unsigned int own = (unsigned int)bits ^ ((unsigned int)(bits >> 31) | 0x80000000u);
  const unsigned int most = __reduce_max_sync(0xffffffffu, own);
  return __uint_as_float(most ^ ((int)most < 0 ? 0x80000000u : 0xffffffffu));
#else
  for (int apart = {WARP // 2}; apart; apart /= 2) {{
    x = fmaxf(x, __shfl_xor_sync(0xffffffffu, x, apart));
  }}
  return x;
#endif
}}
"""
_TURNS = tuple(1 << k for k in reversed(range(WARP.bit_length() - 1)))


def maxima_at_once(program: Program) -> Program:
    """`program` with such maxima."""
    kernels = (replace(k, body=_visit(k.body)) for k in program.kernels)
    return replace(program, kernels=tuple(kernels))


def _visit(stmt: Stmt) -> Stmt:
    if not isinstance(stmt, Seq):
        return map_children(stmt, _visit)
    parts, done = list(stmt.body), []
    while parts:
        run = parts[: 2 * len(_TURNS)]
        made = _of_lanes(run)
        done.append(_visit(parts[0]) if made is None else made)
        del parts[: 1 if made is None else len(run)]
    return seq(*done)


def _of_lanes(run: list[Stmt]) -> Store | None:
    """The exchanges of a maximum as one store; None where they are something else."""
    store = run[-1]
    if len(run) < 2 * len(_TURNS) or not isinstance(store, Store) or store.value.op != "max":
        return None
    own = load(store.buffer, store.index)
    if own.dtype is not FLOAT32 or own.lanes > 1:
        return None
    for apart, exchange, kept in zip(_TURNS, run[::2], run[1::2], strict=True):
        if not isinstance(exchange, Exchange) or not isinstance(kept, Store):
            return None
        other = load(exchange.to.buffer, exchange.to.index)
        source = load(exchange.source.buffer, exchange.source.index)
        alike = kept.buffer is store.buffer and kept.index is store.index and source is own
        if not alike or exchange.apart != apart or set(kept.value.args) != {own, other}:
            return None
        if kept.value.op != "max" or exchange.to.count != 1:
            return None
    return replace(store, value=E.make(OF_LANES, (own,), None, FLOAT32))
