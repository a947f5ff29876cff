"""`relay.backend.te_compiler`: where TVM keeps the kernels that it compiled.

In: nothing.  Out: an object with a `clear`.  Read next: `network/build_cache.py`.
"""

from __future__ import annotations

__all__ = ["TECompiler", "get"]


class TECompiler:
    """What builds of one process remember together: nothing.

    What one build takes from another it takes from the cache on disk, where a kernel is found by
    what it computes.
    """

    def clear(self) -> None:
        """Forget nothing: a kernel of an earlier build is never a wrong one for a later."""


def get() -> TECompiler:
    """The one there is."""
    return TECompiler()
