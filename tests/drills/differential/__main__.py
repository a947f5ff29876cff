"""Repeat one case of the drill, by the line that it printed.

PYTHONPATH=src:tests:benchmarks python -m drills.differential SIDE OPERATOR SEED [small]
"""

import sys

from drills.differential.worker import main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
