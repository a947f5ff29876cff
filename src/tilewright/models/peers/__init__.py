"""Other engines on the same network, to compare results and times with.

Read next: `engines.py`, `pytorch.py`.
"""
