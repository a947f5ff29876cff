"""`python -m tilewright_tvm.auto_scheduler.measure_record --mode distill -i LOG [-o BEST]`.

In: a log.  Out: a log with the best record of each task.  The names of TVM's module are here, too.
Read next: `pairs.py`.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from tilewright.base.errors import TilewrightError
from tilewright_tvm.auto_scheduler.pairs import (
    RecordReader,
    distill_record_file,
    dump_record_to_string,
    load_best,
    load_best_record,
    load_record_from_string,
    load_records,
    save_records,
)
from tilewright_tvm.auto_scheduler.records import RecordToFile

__all__ = [
    "RecordReader", "RecordToFile", "distill_record_file", "dump_record_to_string", "load_best",
    "load_best_record", "load_record_from_string", "load_records", "main", "save_records",
]  # fmt: skip


def main(arguments: Sequence[str] | None = None) -> int:
    """The command; returns its exit code."""
    parser = argparse.ArgumentParser(prog="measure_record", description="Work on a log.")
    parser.add_argument("--mode", choices=["distill"], required=True)
    parser.add_argument("-i", "--input", required=True, help="the log to read")
    parser.add_argument("-o", "--output", help="default: INPUT.best.json")
    options = parser.parse_args(arguments)
    output = options.output or f"{options.input}.best.json"
    try:
        count = distill_record_file(options.input, output)
    except TilewrightError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    print(f"{count} best records are in {output}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
