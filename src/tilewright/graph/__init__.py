"""The graph IR of networks: nodes, walks over them, their text, what they compute.

Read next: `expr.py`, `traversal.py`, `evaluate.py`.
"""
