"""Names of TVM's `contrib` that tutorials import.

In: nothing.  Out: `contrib.graph_executor`.  Read next: `relay/graph_executor.py`.
"""
