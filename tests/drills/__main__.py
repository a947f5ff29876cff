"""Run drills at full length; print what happened, and keep it with --folder.

PYTHONPATH=src:tests:benchmarks python -m drills [NAME...] [--tries N] [--seed 0]
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path
from typing import Any

from results_file import append, table

from drills import drills


def main() -> int:
    known = {drill.name: drill for drill in drills()}
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(known)}; or all")
    parser.add_argument("--tries", type=int, help="of each drill, instead of its full number")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--folder", type=Path, help="also append to drills.json there")
    options = parser.parse_args()
    if strangers := [name for name in options.names if name not in known]:
        parser.error(f"no drill {strangers[0]!r}; there are {', '.join(known)}")
    rows: list[dict[str, Any]] = []
    for name in options.names or known:
        drill = known[name]
        began = time.monotonic()
        counts = drill.run(options.tries or drill.long, options.seed)
        broken = drill.broken(counts)
        rows.append(
            {
                "drill": name,
                "tries": f"{counts.total()} {drill.tried}",
                "happened": ", ".join(f"{n} {what}" for what, n in counts.most_common()),
                "held": "; ".join(broken) or "yes",
                "seconds": round(time.monotonic() - began, 1),
            }
        )
        print(table(rows[-1:]), flush=True)
    print(table(rows))
    if options.folder:
        append("drills", rows, folder=options.folder, seed=options.seed)
    return 0 if all(row["held"] == "yes" for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
