"""Bytes and seconds of a report of a large log, which is made by program.

    PYTHONPATH=src:tests:benchmarks python benchmarks/bench_report.py --tasks 60 --trials 20000

Seconds are of this process's processor; making the log does not count.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from pathlib import Path

import tilewright as tw
from reporting.made_logs import tasks_of, write_log


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--tasks", type=int, default=60)
    parser.add_argument("--trials", type=int, default=20_000)
    parser.add_argument("--keep", type=Path, help="folder for the log and the page")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as made:
        folder = given.keep or Path(made)
        log, page = folder / "example.jsonl", folder / "example.html"
        if not log.exists():
            write_log(log, tasks_of(given.tasks), given.trials)
        began = time.process_time()
        tw.report(log, page)
        spent = time.process_time() - began
        print(
            f"log {log.stat().st_size:,} bytes, page {page.stat().st_size:,} bytes, {spent:.2f} s"
        )


if __name__ == "__main__":
    main()
