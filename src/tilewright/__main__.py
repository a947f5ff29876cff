"""`python -m tilewright` is the `tilewright` command.

In: `sys.argv`.  Out: an exit code.  Read next: `cli/app.py`.
"""

from tilewright.cli import main

if __name__ == "__main__":
    main()
