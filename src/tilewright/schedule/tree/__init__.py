"""The loop tree of a schedule: structure once, every number for one candidate or thousands.

In: a `Schedule`.  Out: regions, extents, masks.  Read next: `loop_tree.py`, `bounds.py`,
`legality.py`.
"""
