"""`te.tag_scope`: the tag of all that is computed while it is in force.

In: a tag.  Out: what `te.compute` reads from the context.  Read next: `tilewright/te/tensor.py`.
"""

from __future__ import annotations

from contextlib import ContextDecorator

from tilewright.base import context
from tilewright.base.errors import ExpressionError


class tag_scope(ContextDecorator):
    """`with te.tag_scope("conv"):`, or `@te.tag_scope("conv")`: the tag of what is computed inside.

    Raises ExpressionError where such a scope is entered inside another.
    """

    def __init__(self, tag: str) -> None:
        self.tag = tag

    def __enter__(self) -> tag_scope:
        around = context.current("tag")
        if around is not None:
            raise ExpressionError(
                f"tag_scope({self.tag!r})", f"it is inside tag_scope({around!r})",
                "Leave that first, or give te.compute its tag=.",
            )  # fmt: skip
        context.push("tag", self.tag)
        return self

    def __exit__(self, *_: object) -> None:
        context.pop("tag")
