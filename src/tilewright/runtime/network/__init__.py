"""Networks that run: the compiled `Library`, its file and its executor.

In: what `relay.build` made, or the file of it.  Out: results.  Nothing here imports a compiler.
Read next: `library.py`, `graph_executor.py`.
"""
