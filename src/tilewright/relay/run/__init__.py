"""Networks that run: the compiled `Library` and its executor.

Read next: `library.py`, `graph_executor.py`.
"""
