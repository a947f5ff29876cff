"""Other engines on the same network, to compare results and times with.

Read next: `network.py`, `pytorch.py`.
"""
