"""`python -m tilewright_tvm.exec.rpc_tracker` knows devices by key and lends them.

In: a command line.  Out: an exit code.  Read next: `farm/command.py`.
"""

import sys

from tilewright.farm.command import tracker

if __name__ == "__main__":
    sys.exit(tracker(prog="python -m tilewright_tvm.exec.rpc_tracker"))
