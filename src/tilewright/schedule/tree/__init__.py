"""The loop tree of a schedule: structure once, every number for one candidate or thousands, text.

In: a `ScheduleState`.  Out: regions, extents, resources, masks, printed loop nests.
In order: `access.py`, `structure.py`, `bounds.py`, `printer.py`, `loop_tree.py`,
`accumulators.py`, `touch.py`, `resources.py`, `legality.py`.
"""
