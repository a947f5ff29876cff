"""Run drills at full length and print what happened.

--keep also writes it to `benchmarks/results/drills.json` and into `docs/reliability.md`.

PYTHONPATH=src:tests:benchmarks python -m drills [NAME...] [--tries N | --minutes M] [--seed 0]
    [--jobs 1]
"""

from __future__ import annotations

import argparse
import multiprocessing
import sys
import time
from collections import Counter
from concurrent.futures import ProcessPoolExecutor
from typing import Any

from results_file import append, table

from drills import named, names, page, run
from drills.drill import Counts, Drill


def main() -> int:
    known = names()
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(known)}; or all")
    parser.add_argument("--tries", type=int, help="of each drill, instead of its full number")
    parser.add_argument("--minutes", type=float, help="of each drill, instead of a number of tries")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--jobs", type=int, default=1, help="processes that share the tries")
    parser.add_argument("--keep", action="store_true", help="write the results down, too")
    options = parser.parse_args()
    if strangers := [name for name in options.names if name not in known]:
        parser.error(f"no drill {strangers[0]!r}; there are {', '.join(known)}")
    rows: list[dict[str, Any]] = []
    for name in options.names or known:
        drill = named(name)
        began = time.monotonic()
        if options.minutes:
            counts = _for_minutes(drill, options.minutes, options.seed, options.jobs)
        else:
            counts = _run(drill, options.tries or drill.long, options.seed, options.jobs)
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
        append("drills", rows, seed=options.seed, jobs=options.jobs)
        page.write()
    return 0 if all(row["held"] == "yes" for row in rows) else 1


def _for_minutes(drill: Drill, minutes: float, seed: int, jobs: int) -> Counts:
    """Runs with a seed each, of twice the short number of tries, until the time is over."""
    counts: Counts = Counter()
    begun = time.monotonic()
    while (gone := time.monotonic() - begun) < 60 * minutes:
        counts += _run(drill, 2 * drill.short * jobs, seed, jobs)
        seed += 1
        told = ", ".join(f"{n} {what}" for what, n in counts.most_common())
        print(f"[{gone / 60:.1f} of {minutes:g} min] {counts.total()}: {told}", flush=True)
    return counts


def _run(drill: Drill, tries: int, seed: int, jobs: int) -> Counts:
    """What `tries` of them gave, shared by `jobs` processes with a seed each."""
    if jobs <= 1:
        return drill.run(tries, seed)
    shares = [tries * (k + 1) // jobs - tries * k // jobs for k in range(jobs)]
    with ProcessPoolExecutor(jobs, multiprocessing.get_context("spawn")) as pool:
        parts = [
            pool.submit(run, drill.name, share, seed * jobs + k) for k, share in enumerate(shares)
        ]
        return sum((part.result() for part in parts), Counter())


if __name__ == "__main__":
    sys.exit(main())
