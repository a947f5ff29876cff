"""What a candidate costs, told from its loop tree: accesses, facts, features, the machine model.

In: trees, decision values, limits.  Out: arrays with one row per candidate.  Templates choose their
fallback with it and searches their candidates.  Read next: `addresses.py`, `nest.py`,
`machine_model.py`, `features.py`.
"""
