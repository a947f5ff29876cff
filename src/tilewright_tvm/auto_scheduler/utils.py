"""Small names that scripts take from `auto_scheduler.utils`.

In: keys, functions.  Out: what is read in them; sessions on devices of the farm.
Read next: `farm/session.py`, `workload_registry.py`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from tilewright.base.doors import door
from tilewright.base.errors import SpaceError
from tilewright.farm.session import request_remote
from tilewright_tvm.auto_scheduler.workload_registry import name_of, parsed_key
from tilewright_tvm.topi.utils import get_const_int, get_const_tuple

__all__ = [
    "calc_workload_dis_factor", "decode_workload_key", "get_const_int", "get_const_tuple",
    "get_func_name", "request_remote",
]  # fmt: skip

Workload = tuple[str, Sequence[Any]]


@door(SpaceError)
def get_func_name(func: Callable[..., Any]) -> str:
    """The name that a workload function is registered by, or else its own."""
    return name_of(func)


@door(SpaceError)
def decode_workload_key(workload_key: str) -> Workload:
    """(name or hash, arguments with nested ones in their place) of a workload key."""
    name, *args = parsed_key(workload_key)
    return name, _flat(args)


def _flat(args: Sequence[Any]) -> list[Any]:
    flat: list[Any] = []
    for arg in args:
        flat += _flat(arg) if isinstance(arg, (list, tuple)) else [arg]
    return flat


@door(SpaceError)
def calc_workload_dis_factor(target_workload_pair: Workload, workload_pair: Workload) -> float:
    """How much greater a workload is than another one whose schedules may fit it, too.

    The product of the ratios of their numbers; infinity where they differ otherwise, or a number is
    no multiple of the other's.  Arguments: as `decode_workload_key` gives them
    """
    (name, args), (other_name, others) = target_workload_pair, workload_pair
    if name != other_name or len(args) != len(others):
        return math.inf
    factor = 1
    for mine, other in zip(_flat(args), _flat(others), strict=True):
        if mine == other:
            continue
        numbers = all(isinstance(n, int) and not isinstance(n, bool) for n in (mine, other))
        if not numbers or not mine or not other or mine % other:
            return math.inf
        factor *= mine // other
    return factor
