"""`tilewright.report`: what a log tells, as files.

    tw.report("r18.jsonl", "r18.html", model="resnet18.onnx", against="before.jsonl")

In: a log; where to write.  Out: a `Document`, which a notebook shows, and files: a page, Markdown,
CSV, a trace, by how their names end.  Read next: `collect.py`, `page.py`.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tilewright import front
from tilewright.base.doors import door
from tilewright.base.errors import RecordError
from tilewright.base.output import FileKind, beginning, check, write
from tilewright.reporting import markdown, page, trace
from tilewright.reporting.collect import collect
from tilewright.reporting.model import Report

if TYPE_CHECKING:
    from tilewright.models.networks import Model

PathLike = str | os.PathLike[str]


@dataclass(frozen=True)
class Form:
    """How a report may be written.  made: its bytes; kind: what it may take the place of"""

    made: Callable[[Report], bytes]
    kind: FileKind


_PAGE = Form(
    lambda r: page.page(r).encode(), FileKind("a report", beginning(page.BEGIN.encode()))
)  # fmt: skip
_TRACE = FileKind("a trace of a report", beginning(trace.BEGIN))
FORMS: Mapping[str, Form] = {
    ".html": _PAGE,
    ".htm": _PAGE,
    ".md": Form(
        lambda r: markdown.markdown(r).encode(),
        FileKind("a report in Markdown", beginning(markdown.BEGIN.encode())),
    ),
    ".csv": Form(
        lambda r: markdown.table(r).encode(),
        FileKind("a table of a report", beginning(",".join(markdown.COLUMNS).encode())),
    ),
    ".json": Form(trace.trace, _TRACE),
    ".json.gz": Form(trace.packed, FileKind("a compressed trace", beginning(b"\x1f\x8b"))),
}


def form_of(path: PathLike) -> Form:
    """By how the name of a file ends.  Raises RecordError for a name that ends otherwise."""
    name = os.fspath(path)
    for end, form in FORMS.items():
        if name.lower().endswith(end):
            return form
    raise RecordError(
        f"report {name!r}", "its name does not say in which form it is to be",
        "End it in .html, .md (for pull requests), .csv, .json or .json.gz (for ui.perfetto.dev).",
    )  # fmt: skip


@dataclass(frozen=True)
class Document:
    """A report that can be shown and saved: printed it is Markdown, in a notebook the page."""

    report: Report

    def save(self, path: PathLike) -> int:
        """Write it in the form that the name of the file says; returns how many bytes it has.

        Raises RecordError for another name, for a file of another kind that is there, and for one
        that cannot be written.
        """
        check_output(path)
        form = form_of(path)
        data = form.made(self.report)
        write(path, data, form.kind, f"report {os.fspath(path)!r}", RecordError)
        return len(data)

    def __str__(self) -> str:
        return markdown.markdown(self.report)

    def _repr_html_(self) -> str:
        return page.inner(self.report)


def check_output(path: PathLike) -> None:
    """Raises RecordError for what `Document.save` will not write, before anything takes long."""
    check(path, form_of(path).kind, f"report {os.fspath(path)!r}", RecordError)


@door(RecordError, "report")
def report(
    log: str | os.PathLike[str],
    output: str | os.PathLike[str] | Sequence[str | os.PathLike[str]] = (),
    *,
    model: front.Network | Model | None = None,
    against: str | os.PathLike[str] | None = None,
    tasks: Sequence[int] = (),
    measure: bool = False,
) -> Document:
    """Tell what a log of `tune` holds, as a page with pictures or in other forms.

    output:  file to write, or several: .html, a page that opens anywhere; .md, for pull requests;
             .csv, the table of kernels; .json or .json.gz, a trace for ui.perfetto.dev
    model:   the network that was tuned, or what `load` takes: rows are then the kernels that it is
             built of with this log, by the names of its layers
    against: another log, with which each task is compared
    tasks:   numbers of those to tell of in full, as a report has them; default: those that take
             longest
    measure: how many bytes a second this machine's device moves, and what starting a kernel takes,
             for the roofline, in some seconds; the log must be of that device
    Else nothing is compiled or run, and the same log gives the same bytes.
    Raises RecordError for a log that is missing, is none, or has no record, and for a file that
    cannot be written; ModelError for a model that has nothing in common with the log, DeviceError
    where there is no device to measure.
    """
    files = [output] if isinstance(output, str | os.PathLike) else list(output)
    for path in files:
        form_of(path)
    for path in (log, *([] if against is None else [against])):
        if not Path(path).is_file():
            raise RecordError(
                f"log {os.fspath(path)!r}", "there is no such file", "`tilewright tune` writes one."
            )
    network: Any = model
    if model is not None and not isinstance(model, front.Network):
        network = front.load(model)
    other = None if against is None else Path(against)
    found = Document(collect(Path(log), network, other, tasks=tasks, measure=measure))
    for path in files:
        found.save(path)
    return found
