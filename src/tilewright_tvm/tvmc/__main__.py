"""`python -m tilewright_tvm.driver.tvmc` is TVM's command `tvmc`, with its options.

In: `sys.argv`.  Out: an exit code.  Read next: `main.py`.
"""

import sys

from tilewright.cli.interrupt import heard


def _command() -> None:
    from tilewright_tvm.tvmc.main import run  # takes a moment, in which Ctrl-C is heard

    sys.exit(run(sys.argv[1:]))


if __name__ == "__main__":
    heard(_command, ends_process=True)
