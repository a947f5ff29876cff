"""`python -m tilewright_tvm.exec.rpc_server` lets a tracker lend this machine's device.

In: a command line.  Out: an exit code.  Read next: `farm/command.py`.
"""

import sys

from tilewright.farm.command import server

if __name__ == "__main__":
    sys.exit(server(prog="python -m tilewright_tvm.exec.rpc_server"))
