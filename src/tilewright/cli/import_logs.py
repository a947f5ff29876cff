"""`tilewright records import`: logs that TVM wrote become records to start from.

In: a log of AutoTVM or of the auto-scheduler, and what says which computations its lines are of.
Out: lines in a log of ours, a table.  Read next: `measure/importing.py`.
"""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from tilewright.base.errors import RecordError
from tilewright.cli.options import File, TargetType

if TYPE_CHECKING:
    from tilewright.measure.formats import Workloads
    from tilewright.targets.target import Target

_FILE = File(exists=True)


@click.command("import", short_help="Read a log that TVM wrote.")
@click.argument("old", metavar="OLD", type=_FILE)
@click.option(
    "--log", type=File(), required=True,
    help="File the records are added to.",
)  # fmt: skip
@click.option(
    "--workloads", type=_FILE,
    help="Python file with the workload functions and AutoTVM templates that OLD names.",
)  # fmt: skip
@click.option("--model", help="Network whose tasks OLD's hashed keys may be, by their shapes.")
@click.option(
    "--target", type=TargetType(),
    help="What the records are filed under, as `tune` names it; only lines of its kind are used.  "
    "[default: what each line names]",
)  # fmt: skip
def import_logs(
    old: Path, log: Path, workloads: Path | None, model: str | None, target: Target | None
) -> None:
    """Read a log that TVM wrote: AutoTVM 0.2, or the auto-scheduler's v0.6.

    The records hold schedules and what they cost in TVM.  None counts as best until it is measured
    here.
    """
    from tilewright.cli import tables
    from tilewright.measure.database import Database
    from tilewright.measure.importing import import_lines, log_lines, programs

    if log.exists() and log.samefile(old):
        raise click.BadParameter("it is OLD itself; name another file", param_hint="--log")
    known = _known(workloads, model, target)
    with Database(log) as database:
        report = import_lines(log_lines(old), database, known, target)
    tables.print_import(report)
    if any("workload" in reason or "template" in reason for reason in report.unusable):
        needs = {"names of functions and templates need --workloads FILE": workloads,
                 "hashed keys need --model NETWORK": model}  # fmt: skip
        missing = [text for text, given in needs.items() if given is None]
        if missing:
            click.echo(f"To use more lines: {'; '.join(missing)}.")
    if not report.imported and not report.known:
        raise RecordError(
            f"log {str(old)!r}", "no line of it became a record",
            f"Give a log of {programs()}.",
        )  # fmt: skip


def _known(workloads: Path | None, model: str | None, target: Any) -> Workloads:
    from tilewright.measure.formats import Workloads

    functions = {} if workloads is None else _functions(workloads)
    if model is None:
        return Workloads(functions)
    from tilewright import front
    from tilewright.network.extract import fused_tasks

    net = front.load(model)
    tasks = fused_tasks(net.modules[0], net.params, target or "llvm", include_simple=True,
                        every_implementation=True)  # fmt: skip
    return Workloads(functions, tasks=tasks)


def _functions(path: Path) -> dict[str, Any]:
    """The functions of a Python file, which registers its templates when it runs."""
    spec = importlib.util.spec_from_file_location(path.stem, path)
    if spec is None or spec.loader is None:
        raise RecordError(
            f"--workloads {path}", "it is no Python file", "Name a file ending in .py."
        )
    module = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except (Exception, SystemExit) as error:  # the file is the user's
        raise RecordError(
            f"--workloads {path}", f"it cannot be imported ({type(error).__name__}: {error})",
            "It should only define functions; put tuning under `if __name__ == \"__main__\":`.",
        ) from error  # fmt: skip
    return {name: value for name, value in vars(module).items() if callable(value)}
