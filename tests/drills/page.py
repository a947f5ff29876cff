"""The table of `docs/reliability.md`: of each drill the last full run that was kept.

In: `benchmarks/results/drills.json`.  Out: the page with its table written anew.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
RESULTS = ROOT / "benchmarks" / "results"
PAGE = ROOT / "docs" / "reliability.md"
BEGIN, END = "<!-- drills: written by `python -m drills --keep` -->", "<!-- end of drills -->"


def write(page: Path = PAGE, results: Path = RESULTS) -> None:
    before, _, rest = page.read_text().partition(BEGIN)
    _, _, after = rest.partition(END)
    page.write_text("\n".join([before + BEGIN, *lines(results), END + after]))


def lines(results: Path = RESULTS) -> list[str]:
    """The table, one row per drill in the order of names."""
    head = ["| drill | tries | what happened | held | run |", "| --- | --- | --- | --- | --- |"]
    last: dict[str, str] = {}
    kept = results / "drills.json"
    for entry in json.loads(kept.read_text()) if kept.exists() else ():
        for row in entry["rows"]:
            last[row["drill"]] = _line(entry, row)
    return [*head, *(last[name] for name in sorted(last))]


def _line(entry: dict[str, Any], row: dict[str, Any]) -> str:
    when = f"{entry['date'][:10]}, {entry['commit']}, {entry['device']}"
    cells = (row["drill"], row["tries"], row["happened"], row["held"], when)
    return f"| {' | '.join(cell.replace('|', '/') for cell in cells)} |"
