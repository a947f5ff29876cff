"""Commands under the names TVM users know: `python -m tilewright.exec.rpc_tracker` and others.

In: a command line.  Read next: `farm/command.py`.
"""
