"""What a schedule leaves open: decisions, the spaces they form, the tracer that meets them.

In order: `decision.py`, `trace.py`, `entities.py`, `policies.py`, `config.py`, `config_space.py`.
"""
