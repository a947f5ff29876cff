"""Cases of operators as one library for a board, and what it computes there.

In: cases, a target.  Out: a file, its inputs, what numpy says of them; verdicts on what a board
gave.  Read next: `test_boards.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from boards.emulated import Board
from graph.case import Case, function, random_inputs
from tilewright.graph.expr import Expr, Function
from tilewright.graph.traversal import substitute
from tilewright.runtime.network.library import Library
from tilewright_tvm import relay

# Runs on the board: library, inputs -> outputs.
RUN = """
import sys
import numpy as np
import tilewright
from tilewright_tvm.contrib import graph_executor
lib = tilewright.runtime.load_module(sys.argv[1])
module = graph_executor.GraphModule(lib["default"](tilewright.cpu()))
module.run(**np.load(sys.argv[2]))
found = [module.get_output(k).numpy() for k in range(module.get_num_outputs())]
np.savez(sys.argv[3], *found)
"""


@dataclass(frozen=True)
class Corpus:
    """expected: of each case; inputs: of all, by the names that the library has for them"""

    cases: tuple[Case, ...]
    library: Library
    inputs: dict[str, np.ndarray]
    expected: tuple[np.ndarray, ...]


def corpus(cases: Sequence[Case], target: str) -> Corpus:
    """All cases side by side in one network, which is built for the target."""
    inputs, expected, bodies, params = {}, [], [], []
    for k, case in enumerate(cases):
        f = function(case.build())
        values = random_inputs(f)
        expected.append(relay.evaluate(f, values))
        renamed: dict[Expr, Expr] = {
            p: relay.var(f"c{k}_{p.name_hint}", shape=p.shape, dtype=p.dtype) for p in f.params
        }
        inputs |= {renamed[p].name_hint: values[p.name_hint] for p in f.params}
        params += renamed.values()
        bodies.append(substitute(f.body, renamed))
    library = relay.build(Function(params, relay.Tuple(bodies)), target)
    return Corpus(tuple(cases), library, inputs, tuple(expected))


def wrong(given: Corpus, board: Board, boards: Path, archive: Path, work: Path) -> list[str]:
    """The cases whose results the board does not get right, with how far they are off."""
    given.library.export_library(work / "net.so")
    np.savez(work / "inputs.npz", **given.inputs)
    script, out = work / "run.py", work / "outputs.npz"
    script.write_text(RUN)
    done = board.run(boards, [script, work / "net.so", work / "inputs.npz", out], [archive])
    assert done.returncode == 0, done.stderr
    found = np.load(out)
    bad = []
    for k, (case, expected) in enumerate(zip(given.cases, given.expected, strict=True)):
        value = found[f"arr_{k}"]
        if value.shape != expected.shape or value.dtype != expected.dtype:
            bad.append(f"{case.id}: {value.dtype}{value.shape}")
        elif not np.allclose(value, expected, rtol=2e-5, atol=1e-5, equal_nan=True):
            bad.append(f"{case.id}: off by {np.abs(value - expected).max()}")
    return bad
