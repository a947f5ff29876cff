"""Emulated ARM boards: which operators are right there, and the vector instructions of their code.

Every case of every operator is compiled here for each board and run there by the runtime alone; the
results are compared with numpy's.  Times under emulation would mean nothing and are not taken.

    python tests/boards/emulated.py FOLDER
    EMULATED_BOARDS=FOLDER PYTHONPATH=src:tests python benchmarks/bench_boards.py [--code]
"""

from __future__ import annotations

import argparse
import re
import sys
import tempfile
from pathlib import Path
from typing import Any

import results_file

from boards.corpus import corpus, wrong
from boards.emulated import BOARDS, FOLDER, Board, made
from graph.cases import CASES
from tilewright.driver import llvm
from tilewright.driver.archive import write_runtime
from tilewright.runtime.network.library import Library
from tilewright.targets.target import Target
from tilewright_tvm import relay

VECTOR = re.compile(r"\bv\d+\.\d*[bhsd]\b|\bq\d+\b|\{d\d+")
MULTIPLY_ADD = re.compile(r"\s(fmla|vmla|vfma)")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--code", action="store_true", help="only print the loop of a product")
    given = parser.parse_args()
    folder = made()
    if folder is None and not given.code:
        sys.exit(f"Set {FOLDER} to the folder that tests/boards/emulated.py made.")
    if given.code:
        for board in BOARDS:
            print(f"{board.target}\n{loop_of_a_product(board)}\n")
        return
    with tempfile.TemporaryDirectory() as work:
        rows = [measured(board, folder, Path(work)) for board in BOARDS]
    print(results_file.table(rows))
    results_file.append("boards", rows)


def measured(board: Board, folder: Path, work: Path) -> dict[str, Any]:
    archive = work / "tilewright-runtime.pyz"
    size = write_runtime(archive)
    given = corpus(CASES, board.target)
    bad = wrong(given, board, folder, archive, work)
    for each in bad:
        print(f"{board.name}: {each}")
    failed = {case.op for case in CASES if any(b.startswith(f"{case.id}:") for b in bad)}
    operators = {case.op for case in CASES}
    kernels = [instructions(text) for text in assemblies(given.library, board)]
    return {
        "board": board.name,
        "operators": len(operators),
        "right": len(operators - failed),
        "cases": len(CASES),
        "cases_right": len(CASES) - len(bad),
        "kernels": len(kernels),
        "with_vectors": sum(any(map(VECTOR.search, lines)) for lines in kernels),
        "instructions": sum(map(len, kernels)),
        "of_vectors": sum(bool(VECTOR.search(line)) for lines in kernels for line in lines),
        "runtime_kb": round(size / 1000),
    }


def assemblies(library: Library, board: Board) -> list[str]:
    return [llvm.assembly(k.source, Target(board.target)) for k in library.kernels]


def instructions(text: str) -> list[str]:
    """The lines of an assembly text that are instructions."""
    return [line for line in text.splitlines() if re.match(r"\t[a-z]", line)]


def loop_of_a_product(board: Board) -> str:
    """The innermost loop of dense and relu: the run of lines between two labels with most
    multiply-adds."""
    x, w = relay.var("x", shape=(64, 128)), relay.var("w", shape=(64, 128))
    body = relay.nn.relu(relay.nn.dense(x, w))
    library = relay.build(relay.Function([x, w], body), board.target)
    blocks = [part for text in assemblies(library, board) for part in re.split(r"\n(?=\.L)", text)]
    return max(blocks, key=lambda block: len(MULTIPLY_ADD.findall(block))).strip()


if __name__ == "__main__":
    main()
