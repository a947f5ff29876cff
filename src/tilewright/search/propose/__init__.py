"""Proposers: who says what to measure next.

In: tasks and outcomes.  Out: candidates.  Read next: `proposers.py`, `model_proposer.py`.
"""
