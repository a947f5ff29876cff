"""Tags of stages by TVM's names: what `op.tag` may be, and what it says of a stage."""

ELEMWISE, BROADCAST, INJECTIVE = "elemwise", "broadcast", "injective"
COMM_REDUCE, COMM_REDUCE_IDX = "comm_reduce", "comm_reduce_idx"


def is_broadcast(tag: str) -> bool:
    """Tell whether each element is made of one element of each input."""
    return tag in (ELEMWISE, BROADCAST) or tag.startswith((f"{ELEMWISE},", f"{BROADCAST},"))


def is_injective(tag: str) -> bool:
    """Tell whether each element is computed on its own."""
    return is_broadcast(tag) or tag.startswith(INJECTIVE)
