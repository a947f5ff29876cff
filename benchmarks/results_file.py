"""Where benchmarks keep their results: dated JSON in `benchmarks/results/`, with commit, device.

In: a benchmark's name, its device, its rows.  Out: one more entry in `results/NAME.json`.
"""

from __future__ import annotations

import json
import os
import subprocess
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from tilewright.runtime.device import cpu

HERE = Path(__file__).resolve().parent
RESULTS = HERE / "results"


def append(
    name: str, rows: list[dict[str, Any]], device: str | None = None, *,
    folder: Path | None = None, commit: str | None = None, again: bool = False, **notes: Any,
) -> Path:  # fmt: skip
    """Add an entry to `NAME.json`, a list with the oldest first, and return the file.

    rows:   what was measured, each a flat dict with its units in the keys ("seconds", "per_second")
    device: what it was measured on, default: this machine's CPU
    commit: default: that of the working tree
    again:  the last entry was of this run, which now knows more: this one takes its place
    notes:  anything else worth keeping: the command, settings, versions
    """
    path = (folder or RESULTS) / f"{name}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    entries = json.loads(path.read_text()) if path.exists() else []
    if again:
        entries.pop()
    entries.append(
        {
            "date": datetime.now(UTC).strftime("%Y-%m-%d %H:%M"),
            "commit": commit or working_commit(),
            "device": device or cpu_name(),
            **notes,
            "rows": rows,
        }
    )
    temporary = path.with_suffix(".tmp")
    temporary.write_text(json.dumps(entries, indent=1) + "\n")
    os.replace(temporary, path)
    return path


def working_commit() -> str:
    """The commit of the working tree, with "+" where files of the package differ from it."""
    try:
        found = _git("rev-parse", "--short=10", "HEAD")
        changed = _git("status", "--porcelain", "--", "src", "benchmarks", ":!benchmarks/results")
    except (OSError, subprocess.SubprocessError):
        return "unknown"
    return found + ("+" if changed else "")


def cpu_name() -> str:
    """The processor's name and how many cores this process may use."""
    return f"{cpu().name}, {len(os.sched_getaffinity(0))} cores"


def table(rows: list[dict[str, Any]]) -> str:
    """The rows as text, a column per key of the first."""
    if not rows:
        return "no results"
    names = list(rows[0])
    cells = [names, *([_text(row.get(n, "")) for n in names] for row in rows)]
    widths = [max(len(line[k]) for line in cells) for k in range(len(names))]
    lines = ["  ".join(c.ljust(w) if k == 0 else c.rjust(w) for k, (c, w) in
                       enumerate(zip(line, widths, strict=True))) for line in cells]  # fmt: skip
    return "\n".join([lines[0], "-" * len(lines[0]), *lines[1:]])


def _text(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"
    return f"{value:,}" if isinstance(value, int) else str(value)


def _git(*arguments: str) -> str:
    return subprocess.run(
        ["git", *arguments], cwd=HERE, capture_output=True, text=True, check=True, timeout=20
    ).stdout.strip()
