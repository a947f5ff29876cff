"""Run drills at full length and print what happened.

--keep also writes it to `benchmarks/results/drills.json` and into `docs/reliability.md`.

PYTHONPATH=src:tests:benchmarks python -m drills [NAME...] [--tries N] [--seed 0]
"""

from __future__ import annotations

import argparse
import sys
import time
from typing import Any

from results_file import append, table

from drills import drills, page


def main() -> int:
    known = {drill.name: drill for drill in drills()}
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(known)}; or all")
    parser.add_argument("--tries", type=int, help="of each drill, instead of its full number")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--keep", action="store_true", help="write the results down, too")
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
    if options.keep:
        append("drills", rows, seed=options.seed)
        page.write()
    return 0 if all(row["held"] == "yes" for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
