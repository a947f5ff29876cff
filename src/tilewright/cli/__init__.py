"""The `tilewright` command: tune, bench, records, doctor.

In: a command line.  Out: text on the terminal, an exit code.  Read next: `main.py`.
"""

from tilewright.cli.main import main

__all__ = ["main"]
