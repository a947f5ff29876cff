"""What a schedule leaves open: decisions, the spaces they form, the tracer that meets them.

Read next: `decision.py`, `config_space.py`, `trace.py`.
"""
