"""`tilewright records import`: what it reads, prints and refuses."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from graph.small import residual
from tilewright.cli.app import main
from tilewright.measure import Database
from tilewright.models import networks
from tilewright.network.extract import fused_tasks

WORKLOADS = """
from tilewright import autotvm, te

def row_sums(n, m):
    a = te.placeholder((n, m), name="A")
    k = te.reduce_axis((0, m), name="k")
    return [a, te.compute((n,), lambda i: te.sum(a[i, k], axis=k), name="B")]

@autotvm.template("tests/cli/halves")
def halves(n):
    a = te.placeholder((n,), name="A")
    b = te.compute((n,), lambda i: a[i] * 0.5, name="B")
    s = te.create_schedule(b.op)
    cfg = autotvm.get_config()
    cfg.define_split("tile", s[b].op.axis[0], num_outputs=2)
    cfg["tile"].apply(s, b, s[b].op.axis[0])
    return s, [a, b]
"""


def ansor(key: Any, steps: Any) -> str:
    task = [json.dumps(key), "llvm -keys=cpu", [2, 64, 64, 0, 0, 0, 0, 0], "", 1, []]
    return json.dumps({"i": [task, [[], steps]], "r": [[1e-3], 0, 1.0, 1], "v": "v0.6"})


def autotvm(tile: list[int]) -> str:
    line = {
        "input": ["llvm -keys=cpu", "tests/cli/halves", [24], {}],
        "config": {"index": 0, "code_hash": None, "entity": [["tile", "sp", tile]]},
        "result": [[1e-3], 0, 1.0, 2.0], "version": 0.2, "tvm_version": "0.8.0",
    }  # fmt: skip
    return json.dumps(line)


@pytest.fixture
def run(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Callable[..., tuple[Any, str, str]]:
    """Runs a command line where two files are: gives exit code, output, errors, blanks joined."""
    monkeypatch.chdir(tmp_path)
    Path("work.py").write_text(WORKLOADS)
    rows = ["row_sums", 6, 8]
    lines = [
        ansor(rows, [["AN", 1, 0, 3]]), ansor(rows, [["AN", 1, 1, 3]]), ansor(["other"], []),
        autotvm([-1, 4]), autotvm([-1, 8]), autotvm([-1, 5]), "{",
    ]  # fmt: skip
    Path("old.json").write_text("\n".join(lines) + "\n")

    def run(*args: str) -> tuple[Any, str, str]:
        with pytest.raises(SystemExit) as ended:
            main(list(args))
            sys.exit(0)
        said = capsys.readouterr()
        return ended.value.code, " ".join(said.out.split()), " ".join(said.err.split())

    return run


def test_it_imports_what_it_can_and_counts_the_rest(run: Any) -> None:
    command = "records", "import", "old.json", "--log", "new.jsonl", "--workloads", "work.py"
    code, out, _ = run(*command)
    assert code == 0 and out.startswith("7 lines: 3 imported, 4 unusable")
    assert "tests/cli/halves 24 llvm 2" in out and "row_sums 6 8 llvm 1" in out
    for reason in (
        "Ansor step AN: parallel(B.k): a reduction loop cannot run its iterations at once",
        "no workload function 'other'", "the knob has no such entity", "not JSON, or cut off",
    ):  # fmt: skip
        assert re.search(rf"{re.escape(reason)} 1\b", out), out
    database = Database.load("new.jsonl")
    assert [r.origin for r in database] == ["import:ansor-v0.6", *["import:autotvm-0.2"] * 2]
    assert all(database.best(task) is None for task in database.tasks())
    assert run(*command)[1].startswith("7 lines: 0 imported, 3 known already, 4 unusable")
    code, out, _ = run("records", "new.jsonl")
    assert code == 0 and out.startswith("3 records of 2 tasks: 3 measured, 0 failed")


def test_it_tells_what_would_make_lines_usable(run: Any) -> None:
    command = "records", "import", "old.json", "--log", "new.jsonl"
    both = "names of functions and templates need --workloads FILE; hashed keys need --model NETW"
    assert f"To use more lines: {both}" in run(*command)[1]
    assert "To use more lines: hashed keys need" in run(*command, "--workloads", "work.py")[1]
    Path("old.json").write_text("{\n")
    assert "To use more" not in run(*command)[1]


@pytest.mark.slow
def test_hashed_keys_may_be_of_a_network(run: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(networks, "load_sizes", lambda *_: ([residual()[0]], residual()[1]))
    tasks = fused_tasks(*residual(), "llvm", include_simple=True)
    shapes = [[list(t.shape) for t in task.dag.args] for task in tasks]
    one = next(k for k, shape in enumerate(shapes) if shapes.count(shape) == 1)
    Path("old.json").write_text(ansor(["0" * 32, *shapes[one]], []))
    code, out, _ = run("records", "import", "old.json", "--log", "new.jsonl", "--model", "small")
    assert code == 0 and out.startswith("1 lines: 1 imported, 0 unusable")
    assert Database.load("new.jsonl").records[0].task.dag == tasks[one].key


@pytest.mark.parametrize(
    ("args", "code", "words"),
    [
        (["missing.json", "--log", "n"], 2, "'missing.json' does not exist"),
        (["old.json"], 2, "Missing option '--log'"),
        (["old.json", "--log", "./old.json"], 2, "it is OLD itself; name another file"),
        (["old.json", "--log", "n", "--workloads", "no.py"], 2, "'no.py' does not exist"),
        (["old.json", "--log", "n", "--workloads", "old.json"], 1, "it is no Python file"),
        (["old.json", "--log", "n", "--workloads", "bad.py"], 1,
         "bad.py: it cannot be imported (ZeroDivisionError: division by zero)"),
        (["old.json", "--log", "n", "--target", "tpu"], 2, "unknown kind 'tpu'"),
        (["old.json", "--log", "n", "--model", "resnet-19"], 1, "there is no such network"),
    ],
)  # fmt: skip
def test_a_wrong_command_line_is_refused(run: Any, args: list[str], code: int, words: str) -> None:
    Path("bad.py").write_text("1 / 0\n")
    got, _, err = run("records", "import", *args)
    assert got == code and words in err and "Traceback" not in err
    assert not Path("n").exists()


def test_a_file_needs_no_command_and_help_names_both(run: Any) -> None:
    Path("import").write_text("")
    assert run("records", "./import")[1].startswith("0 records of 0 tasks")
    assert run("records")[2].endswith("Error: Missing argument 'FILE'.")
    assert run("records", "--pick-best", "best.jsonl", "./import")[0] == 0
    out = run("records", "--help")[1]
    assert "show" in out and "import" in out
