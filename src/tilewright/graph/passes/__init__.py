"""What happens to a network between import and code generation: one literal list of passes.

In: a module.  Out: a module that computes the same (to rounding).  Every pass is a plain function
of a module; `tests/graph/test_passes.py` compares each with the numpy evaluator before and after.
Read next: the passes, in the order of the list.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tilewright.base.errors import ModelError
from tilewright.graph.expr import Function, IRModule
from tilewright.graph.extension import extension
from tilewright.graph.pass_options import USUAL, Instrument, PassInfo, PassOptions, watched
from tilewright.graph.passes.atrous import flatten_atrous
from tilewright.graph.passes.attention import single_heads
from tilewright.graph.passes.bind import bind_params
from tilewright.graph.passes.canonicalize import canonicalize
from tilewright.graph.passes.combine import combine_products
from tilewright.graph.passes.common_subexpressions import eliminate_common
from tilewright.graph.passes.constants import fold_constants
from tilewright.graph.passes.dead_code import eliminate_dead_code
from tilewright.graph.passes.empty import drop_empty
from tilewright.graph.passes.extents import require_closed
from tilewright.graph.passes.fuse import fuse, fuse_attention, fuse_norms, separate
from tilewright.graph.passes.gates import join_gates
from tilewright.graph.passes.grouped_heads import group_heads
from tilewright.graph.passes.halves import halve_gates
from tilewright.graph.passes.indices import work_out_indices
from tilewright.graph.passes.inline import defuse, inline_calls
from tilewright.graph.passes.moves import moves_last
from tilewright.graph.passes.narrow import narrow_weights
from tilewright.graph.passes.norms import join_norms, widen_inside
from tilewright.graph.passes.pairs import pair_gates
from tilewright.graph.passes.points import choose_points
from tilewright.graph.passes.results import join_readers, norms_beside
from tilewright.graph.passes.scale import fold_scale_after, fold_scale_before
from tilewright.graph.passes.shift import fold_shift
from tilewright.graph.passes.simplify import simplify_inference
from tilewright.graph.passes.slices import slices_first
from tilewright.graph.passes.small import join_small
from tilewright.graph.passes.transposes import merge_transposes
from tilewright.graph.passes.writes import join_writes, write_last
from tilewright.graph.traversal import each_function
from tilewright.graph.waiting import made_of_constants

Pass = Callable[[IRModule], IRModule]

# fmt: off
PASSES: tuple[Pass, ...] = (
    inline_calls,         # functions of the user's are what they compute
    flatten_atrous,       # convolutions of blocks in the batch are dilated ones
    simplify_inference,   # batch_norm becomes a scale and a shift, dropout disappears
    canonicalize,         # one spelling of everything
    drop_empty,           # tensors without elements need no kernel
    fold_constants,       # what depends on constants only is computed now
    join_norms,           # norms and softmax that were taken apart are one operator
    single_heads,         # products of an attention with one head have a batch of one
    group_heads,          # heads of keys that several of queries share are not repeated
    choose_points,        # what is written at one place is a choice
    halve_gates,          # a product whose halves a gate joins is two
    moves_last,           # what is elementwise comes right behind what computes
    fold_shift,           # neighbouring shifts and scales join
    fold_scale_after,     # conv(x, W) * s  ->  conv(x, W * s)
    fold_scale_before,    # conv(x * s, W)  ->  conv(x, W * s)
    fold_shift,           # shifts that met after the scales have gone join as well
    combine_products,     # queries, keys and values are one product
    pair_gates,           # so are two products that a gate joins
    slices_first,         # what would be moved and then dropped is not moved
    eliminate_dead_code,  # operators that do nothing disappear
    widen_inside,         # norms of halves cast them by themselves
    work_out_indices,     # where a cache is written is known in the kernel that writes
    narrow_weights,       # weights are bytes where that is asked for
    fuse,                 # groups that become one kernel each
)
# fmt: on


FOLDING = (fold_shift, fold_scale_after, fold_scale_before)

NEEDED = (inline_calls, simplify_inference)  # without which there are no kernels
# Run where they are asked for, before constants are folded.
OPTIONAL: list[Pass] = [eliminate_common]
_NAMED: dict[str, Pass] = {p.__name__: p for p in (*PASSES, *OPTIONAL)}


def offer(*passes: Pass) -> None:
    """Add passes that builds run where they are asked for by their names."""
    OPTIONAL.extend(passes)
    _NAMED.update((p.__name__, p) for p in passes)


def passes_of(options: PassOptions = USUAL) -> tuple[Pass, ...]:
    """Give the passes of a build: below level 3 scales and shifts stay operators, below 2, or
    without `fuse`, every operator has a kernel of its own.

    Raises ModelError for a name that is none, or of a pass without which there are no kernels.
    """
    off = {_named(name, "disabled") for name in options.disabled}
    on = [_named(name, "required") for name in options.required]
    kept: list[Pass] = []
    for p in PASSES:
        if p is fuse:
            kept.append(fuse if p not in off and (options.opt_level >= 2 or p in on) else separate)
            continue
        if p is fold_constants:
            kept += [more for more in on if more in OPTIONAL and more not in off]
        if p not in off and (options.opt_level >= 3 or p not in FOLDING or p in on):
            kept.append(p)
    return tuple(kept)


def _named(name: str, option: str) -> Pass:
    place = f"PassOptions({option}=[{name!r}])"
    if name not in _NAMED:
        near = difflib.get_close_matches(name, _NAMED, 3) or list(_NAMED)
        raise ModelError(place, "there is no such pass", f"Use {', '.join(near)}.")
    if option == "disabled" and _NAMED[name] in NEEDED:
        raise ModelError(place, "no kernel can be made without it", "Leave it out.")
    return _NAMED[name]


def optimize(
    mod: IRModule | Function,
    params: Mapping[str, Any] | None = None,
    passes: Sequence[Pass] = PASSES,
    observe: Callable[[str, IRModule], None] | None = None,
    instruments: Sequence[Instrument] = (),
) -> IRModule:
    """Make `params` (arrays by name) constants of `mod`, and apply every pass in order.

    observe: called with the name of each pass and its result; instruments: told of each
    """
    current = mod if isinstance(mod, IRModule) else IRModule.from_expr(mod)
    require_closed(current, "the network")
    if params:
        current = bind_params(current, params)
    current = each_function(extension().network(current, "relay.build"), made_of_constants)
    for change in passes:
        current = watched(PassInfo(change.__name__), change, current, instruments)
        if observe is not None:
            observe(change.__name__, current)
    return current


__all__ = [
    "PASSES", "Pass", "bind_params", "canonicalize", "choose_points", "combine_products", "defuse",
    "drop_empty", "eliminate_common", "eliminate_dead_code", "flatten_atrous", "fold_constants",
    "fold_scale_after", "fold_scale_before", "fold_shift", "fuse", "fuse_attention", "fuse_norms",
    "group_heads", "halve_gates", "inline_calls", "join_gates", "join_norms", "join_readers",
    "join_small", "join_writes", "merge_transposes", "moves_last", "narrow_weights", "norms_beside",
    "offer", "optimize", "pair_gates", "passes_of", "separate", "simplify_inference",
    "single_heads", "slices_first", "widen_inside", "work_out_indices", "write_last",
]  # fmt: skip
