"""Imports files under limits of memory, for `test_hostile_files.py`.

In: lines, each a path as JSON.  Out: a line for each: what came of it, its text, the processor's
seconds that it took.
"""

from __future__ import annotations

import json
import resource
import sys
import time
from pathlib import Path

from tilewright.base.errors import ModelError
from tilewright_tvm import relay

ROOM = 1 << 30  # bytes more than the process has when it begins


def outcome(path: str) -> list[object]:
    """ "imported", or the kind of its error and the text."""
    try:
        relay.frontend.from_onnx(path)
    except ModelError as error:
        return ["refused", str(error)]
    except Exception as error:
        return [type(error).__name__, str(error)]
    return ["imported", ""]


def main() -> None:
    relay.testing.get_network("mlp")
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    room = pages * resource.getpagesize() + ROOM
    resource.setrlimit(resource.RLIMIT_AS, (room, room))
    for line in sys.stdin:
        began = time.process_time()
        found = outcome(json.loads(line))
        print(json.dumps([*found, time.process_time() - began]), flush=True)


if __name__ == "__main__":
    main()
