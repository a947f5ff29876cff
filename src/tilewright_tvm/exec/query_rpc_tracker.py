"""`python -m tilewright_tvm.exec.query_rpc_tracker` shows the devices of a tracker.

In: a command line.  Out: an exit code.  Read next: `farm/command.py`.
"""

import sys

from tilewright.farm.command import query

if __name__ == "__main__":
    sys.exit(query(prog="python -m tilewright_tvm.exec.query_rpc_tracker"))
