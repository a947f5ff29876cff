"""The `tilewright` command: tune, bench, records, doctor.

In: a command line.  Out: text on the terminal, an exit code.  Read next: `app.py`.
"""

from __future__ import annotations

from collections.abc import Sequence

from tilewright.cli.interrupt import heard


def main(args: Sequence[str] | None = None) -> None:
    """Run a command line (default: `sys.argv`) and exit."""

    def command() -> None:
        from tilewright.cli.app import main  # takes a moment, in which Ctrl-C is heard

        main(args)

    heard(command, ends_process=args is None)


__all__ = ["main"]
