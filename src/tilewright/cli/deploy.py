"""`tilewright compile` and `tilewright run`: a network as one file, and what the file computes.

In: a network and a log; a file and inputs.  Out: the file; outputs, times, a profile.
`run` needs the runtime only.  Read next: `../front.py`, `../runtime/network/compiled.py`.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from tilewright.base.errors import ModelError, RecordError, named
from tilewright.base.terminal import say
from tilewright.cli.models import loaded
from tilewright.cli.options import (
    MODEL_HELP,
    File,
    check_positive,
    default_log,
    log_option,
    network_options,
)

if TYPE_CHECKING:
    from tilewright.targets.target import Target

NUMBER = 1  # runs of a repeat


def check_output(file: Path) -> None:
    """Raises ModelError for what `compile` must not write, before it builds for minutes."""
    from tilewright.base import output
    from tilewright.runtime.own_files import LIBRARY

    place = f"compile -o {file}"
    if file.suffix not in (".so", ".tar"):
        raise ModelError(place, "its name says no kind of library", "End it in .so or .tar.")
    output.check(file, LIBRARY, place, ModelError)


def check_header(file: Path, target: Target) -> None:
    """Raises ModelError for what has no functions for C, before it is built for minutes."""
    from tilewright.driver import c_interface

    place = f"compile -o {file} --header"
    if file.suffix != ".so":
        raise ModelError(place, "an archive has no functions for C", "End its name in .so.")
    c_interface.check_target(target, place)


@click.command(
    "compile", epilog=MODEL_HELP, short_help="Write MODEL as one file, which needs no compiler."
)
@network_options
@log_option
@click.option(
    "-o", "--output", type=File(),
    help="File that `tilewright run` and tilewright.open read: .so or .tar.  [default: "
    "MODEL.TARGET.tar]",
)  # fmt: skip
@click.option(
    "--header", is_flag=True,
    help="Also write tilewright.h beside the file, an .so, for programs in C and C++.",
)  # fmt: skip
def compile_command(
    model: str, target: Target, dtype: str, batch: tuple[int, ...], shape: dict[str, Any],
    layout: str | None, weights: str | None, log: Path | None, output: Path | None, header: bool,
) -> None:  # fmt: skip
    """Build MODEL with the best that is known, and write one file that runs without the compiler.

    With several batch sizes, the file holds kernels for each of them.  The device need not be here:
    TARGET may be that of a board.
    """
    from tilewright import front
    from tilewright.models import networks
    from tilewright.schedule.task import Task

    networks.check(model)
    path = log or default_log(model, target, dtype)
    made = output or default_log(model, target, dtype).with_suffix(".so" if header else ".tar")
    check_output(made)
    if header:
        check_header(made, target)
    net = loaded(
        model, target, batch=batch, shape=shape, dtype=dtype, layout=layout, weights=weights
    )
    schedules = None
    if not path.exists():
        click.echo(f"There is no log {path}: the kernels are untuned.", err=True)
    else:
        try:
            schedules = front.schedules_of(path, target)
        except RecordError as error:
            if log is not None:
                raise
            click.echo(f"{error.in_command()}  The kernels are untuned.", err=True)
    alone = isinstance(net, Task)
    compiled = front.compile(net, None if alone else target, schedules)
    library = compiled.library
    with named(f"-o {made}", f"save({str(made)!r})"):
        compiled.save(made)
    if header:
        from tilewright.driver import c_interface

        c_interface.write_header(made.with_name(c_interface.HEADER.name))
    say(library.report.summary())
    cost = library.report.accuracy
    for note in (*([] if cost is None else [cost]), *library.report.notes):
        say(f"note: {note}")
    say(f"Done.  The library is in {made}: {library!r}")


@click.command("run", short_help="Run what `compile` wrote: outputs, times, a profile.")
@click.argument("file", type=File(exists=True))
@click.option(
    "--inputs", type=File(exists=True),
    help="File of numpy.savez with the inputs by name; those that are not in it are filled.",
)  # fmt: skip
@click.option(
    "--fill", type=click.Choice(["random", "zeros", "ones"]), default="random", show_default=True,
    help="What inputs are that no file gives; integers are zeros, unless they are ones.",
)  # fmt: skip
@click.option(
    "--outputs", type=File(),
    help="File to write the outputs to, as numpy.savez does: output_0, output_1, ...",
)  # fmt: skip
@click.option("--repeat", type=int, callback=check_positive, help="Time it so often.")
@click.option(
    "--number", type=int, default=NUMBER, callback=check_positive, show_default=True,
    help="Runs back to back in each repeat.",
)  # fmt: skip
@click.option("--profile", is_flag=True, help="Time every kernel alone, too.")
def run(
    file: Path, inputs: Path | None, fill: str, outputs: Path | None, repeat: int | None,
    number: int, profile: bool,
) -> None:  # fmt: skip
    """Run the network that `compile` wrote to FILE, on the device it was built for."""
    from tilewright.runtime.network import archives
    from tilewright.runtime.network.compiled import open as open_network

    if outputs is not None:
        archives.check_output(outputs, f"--outputs {outputs}")
    with named(str(file), f"open({str(file)!r})"):
        network = open_network(file)
    given = {} if inputs is None else archives.read_arrays(inputs, f"--inputs {inputs}")
    wanted = archives.complete(given, network.inputs, fill, f"--inputs {inputs}")
    computed = network(wanted)
    found = computed if isinstance(computed, tuple) else (computed,)
    for k, value in enumerate(found):
        say(f"output_{k}: {value.dtype}{list(value.shape)}")
    if outputs is not None:
        by_name = {f"output_{k}": value for k, value in enumerate(found)}
        archives.write_arrays(outputs, by_name, f"--outputs {outputs}")
    if repeat is not None:
        say(str(network.benchmark(wanted, repeat=repeat, number=number)))
    if profile:
        say(str(network.profile(wanted, number=number)))
