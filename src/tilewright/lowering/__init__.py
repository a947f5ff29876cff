"""Schedule to program: loop nests, virtual threads, barriers, vectors, unrolling.

In: a `Schedule` (all decisions closed) and a `Target`.  Out: an `ir.stmt.Program`.
Read next: `pipeline.py`, the literal list of passes.
"""
