"""Functions that build graphs: operators as users and importers call them, by family.

In: graph values and keywords.  Out: calls with normal attributes, shapes and types known.
Read next: `tensor.py`, `nn.py`.
"""
