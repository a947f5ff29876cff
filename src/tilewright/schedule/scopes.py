"""Where buffers of a schedule may live: each scope as a row.

In: nothing.  Out: `SCOPES` by name, and how far a thread index reaches.  Programs know no
fragments: what the lanes of a warp hold together is a local buffer of each lane there.
Read next: `tree/structure.py`, `tree/layout.py`.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Scope:
    """
    rank:    above `tag_rank` of an index: there is one buffer for each value of the index
    owner:   who has such a buffer
    memory:  the scope of the buffer in programs
    """

    name: str
    rank: int
    owner: str
    memory: str

    @property
    def in_registers(self) -> bool:
        """Whether it is a thread's own memory, where indices must be constants."""
        return self.memory == "local"


SCOPES = {
    scope.name: scope
    for scope in (
        Scope("global", 0, "program", "global"),
        Scope("shared", 1, "block", "shared"),
        Scope("fragment", 2, "warp", "local"),
        Scope("local", 3, "thread", "local"),
    )
}
SCOPE_RANK = {name: scope.rank for name, scope in SCOPES.items()}
FRAGMENT = "fragment"
INSIDE = tuple(name for name in SCOPES if name != "global")  # these end with their kernel
_TAG_RANKS = {"threadIdx.x": 2, "threadIdx.y": 1, "threadIdx.z": 1, "vthread": 1}


def tag_rank(tag: str) -> int:
    """0 for blocks, 1 for warps and virtual threads, 2 for threadIdx.x, whose values are lanes."""
    return _TAG_RANKS.get(tag, 0)


def in_registers(scope: str) -> bool:
    """Whether a buffer of this scope is a thread's own."""
    return SCOPES[scope].in_registers
