"""Rules that derive sketches where no template fits, or besides one.

In: a computation.  Out: sketches, as templates give them.  Read next: `rules.py`, `derive.py`.
"""
