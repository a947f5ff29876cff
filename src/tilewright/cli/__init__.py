"""The `tilewright` command: tune, bench, records, doctor.

In: a command line.  Out: text on the terminal, an exit code.  Read next: `app.py`.
"""

from tilewright.cli.app import main

__all__ = ["main"]
