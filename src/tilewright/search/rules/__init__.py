"""Sketch rules: see `rules.py`."""
