"""Options that several commands share, and what their values mean.

In: what was typed.  Out: targets, shapes, files, devices of a farm; `click`'s own error for what is
none.  Read next: `app.py`, `tune.py`, `deploy.py`.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping, Sequence
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from tilewright.base.errors import TilewrightError

if TYPE_CHECKING:
    from tilewright.targets.target import Target

_SHAPE = re.compile(r"\S.*?:(?:\[[^]]*\]|[0-9,]+)(?= |$)")
_DIGITS = 18  # of a number; no extent has more
_MOST, _MOST_TIME = 10**9, 10**6  # a number; seconds, minutes or ms, some waited for at once
MODEL_HELP = (
    "MODEL is FILE.onnx, FILE.pt2 of torch.export, SCRIPT.py:FUNCTION, whose code runs and returns "
    "a model or a computation, or a network's name: resnet-18, mobilenet, ..."
)


class TargetType(click.ParamType):  # type: ignore[type-arg]  # generic in newer versions of click
    name = "target"

    def convert(self, value: Any, param: Any, ctx: Any) -> Target:
        from tilewright.targets.target import Target

        try:
            return Target(value)
        except TilewrightError as error:
            self.fail(f"{error.reason}.  {error.command or error.way_out}", param, ctx)


class TargetOption(click.Option):
    """Its help lists the kinds, which are looked up when somebody asks for it."""

    def get_help_record(self, ctx: click.Context) -> tuple[str, str] | None:
        from tilewright.targets.kind import kinds

        names = ", ".join(k.name for k in kinds())
        self.help = f"{names}, perhaps with options: 'cuda -arch=sm_90'."
        return super().get_help_record(ctx)


class PrecisionType(click.Choice):  # type: ignore[type-arg]
    """One of `targets.precision`, which is imported when the option is read or shown."""

    def __init__(self) -> None:
        super().__init__(())

    @property
    def choices(self) -> tuple[str, ...]:
        from tilewright.targets.precision import HALVES, PRECISIONS

        return (*PRECISIONS, *HALVES)

    @choices.setter
    def choices(self, none: object) -> None:
        """Of a `Choice` they are given."""


class File(click.Path):
    """A file; exists: which must be there.  A dash is none: logs and libraries are no streams."""

    def __init__(self, exists: bool = False) -> None:
        super().__init__(exists=exists, dir_okay=False, path_type=Path)

    def convert(self, value: Any, param: Any, ctx: Any) -> Any:
        if value == "-":
            self.fail("a dash is no file here.  Name one; ./- is a file called so.", param, ctx)
        return super().convert(value, param, ctx)


def check_positive(ctx: click.Context, param: click.Parameter, value: float | None) -> Any:
    """More than zero, and what clocks and counters of the system hold."""
    if value is None:
        return None
    most = _MOST_TIME if isinstance(value, float) else _MOST
    told = f"{value:g}" if isinstance(value, float) else str(value)  # an int may be no float
    if not value > 0:
        raise click.BadParameter(f"{told} is not more than zero", ctx=ctx, param=param)
    if value > most:
        raise click.BadParameter(f"{told} is more than {most:,}", ctx=ctx, param=param)
    return value


def check_log(ctx: click.Context, param: click.Parameter, value: Any) -> Any:
    """One file, or several, that must be there."""
    for path in value if isinstance(value, tuple) else [value]:
        if path is not None and not path.exists():
            raise click.BadParameter(
                f"there is no file {str(path)!r}; `tilewright tune` writes one", ctx=ctx,
                param=param,
            )  # fmt: skip
    return value


target_option = click.option(
    "--target", cls=TargetOption, type=TargetType(), default="llvm", show_default=True,
)  # fmt: skip

precision_option = click.option(
    "--precision", type=PrecisionType(),
    help="In what products of float32 may be computed; the target's option of that name says the "
    "same, of float16 and bfloat16 --dtype.  [default: float32]",
)  # fmt: skip


def farm_options(command: Any) -> Any:
    """--farm and --key, given as one value `farm`."""
    place = click.option(
        "--farm", metavar="HOST:PORT",
        help="Tracker whose devices are used, instead of this machine's; see `tilewright farm`.",
    )  # fmt: skip
    key = click.option("--key", help="Which devices of --farm.")
    return place(key(command))


def typed_path(path: str | Path) -> str:
    """The same path, which is no option."""
    return f"./{path}" if str(path).startswith("-") else str(path)


def typed_target(target: Target) -> str:
    """What --target takes for it: beside its options the host, and blanks in quotes."""
    words = [str(target.kind), *(f"-{name}={value}" for name, value in target.options)]
    host = [] if target.host is None else [f"-host={typed_target(target.host)}"]
    return shlex.join([*words, *host])


def typed_shapes(shapes: Mapping[str, Any]) -> list[str]:
    """What --shape takes for them, option and value in turn."""
    words: list[str] = []
    for name, given in shapes.items():
        numbers = [given] if isinstance(given, int) else given
        listed = ",".join(map(str, numbers))
        words += "--shape", f"{name}:[{listed}]" if isinstance(given, tuple) else f"{name}:{listed}"
    return words


def devices_of(place: str | None, key: str | None, builders: str | None = None) -> Any:
    """Where the options lead; None: to this machine.  Raises DeviceError for no address."""
    from tilewright.farm.address import Devices, parsed

    if (place is None) != (key is None):
        raise click.UsageError("--farm and --key belong together")
    if place is None or key is None:
        if builders is not None:
            raise click.UsageError("--builders are those of --farm, which is not given")
        return None
    return Devices(key, *parsed(place), builders)


def _weights(ctx: click.Context, param: click.Parameter, value: str | None) -> str | None:
    if value is None:
        return None
    from tilewright.graph.narrow import NarrowWeights

    try:
        NarrowWeights.parsed(value)
    except TilewrightError as error:
        raise click.BadParameter(f"{error.reason}.  {error.way_out}", ctx, param) from None
    return value


weights_option = click.option(
    "--weights", callback=_weights, metavar="int8|int4|float8[:GROUP][:head=KIND]",
    help="What the weights of dense layers become; what that costs is measured and told.  "
    "[default: as MODEL has them]",
)  # fmt: skip


dtype_option = click.option(
    "--dtype", type=click.Choice(["float32", "float16", "bfloat16"]), default="float32",
    show_default=True, help="Element type of contractions and what follows; sums stay float32.",
)  # fmt: skip


def _sizes(ctx: click.Context, param: click.Parameter, value: str) -> tuple[int, ...]:
    parts = [part.strip() for part in value.split(",")] if value else []
    sizes = tuple(int(part) for part in parts if _is_number(part))
    if len({*sizes} - {0}) < len(parts):
        raise click.BadParameter(f"{value!r} is no list such as 1,8,32", ctx=ctx, param=param)
    return sizes


batch_option = click.option(
    "--batch", default="", callback=_sizes, metavar="N,N,...",
    help="Batch sizes, the first extent of each input.  [default: that of MODEL]",
)  # fmt: skip


def _shapes(ctx: click.Context, param: click.Parameter, value: Sequence[str]) -> dict[str, Any]:
    """`data:[1,3,224,224]`, several of them, or `batch:8` for an extent that has a name, or
    `seq:64,128` for several sizes of it."""
    found: dict[str, Any] = {}
    for text in (shape for given in value for shape in _apart(given)):
        name, _, extents = text.rpartition(":")  # names of inputs may have colons
        inner = extents.removeprefix("[").removesuffix("]")
        parts = [part.strip() for part in inner.split(",")] if inner else []
        is_list = extents == f"[{inner}]"
        if extents.strip("[]") == inner and extents not in (inner, f"[{inner}]"):
            raise click.BadParameter(
                f"{text!r} lacks a bracket: data:[1,3,224,224] has two", ctx=ctx, param=param
            )
        if not name or not all(map(_is_number, parts)) or not (is_list or parts):
            raise click.BadParameter(
                f"{text!r} is no shape such as data:[1,3,224,224]", ctx=ctx, param=param
            )
        if name in found:
            raise click.BadParameter(f"{name!r} is given twice", ctx=ctx, param=param)
        numbers = [int(p) for p in parts]
        found[name] = tuple(numbers) if is_list else numbers if len(numbers) > 1 else numbers[0]
    return found


def _apart(text: str) -> list[str]:
    """Several shapes in one value, `a:[1] b:2`; names of inputs may have blanks."""
    found = _SHAPE.findall(text)
    return found if not _SHAPE.sub("", text).strip() else [text]


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) <= _DIGITS


shape_option = click.option(
    "--shape", multiple=True, callback=_shapes, metavar="NAME:[N,N,...]",
    help="Shape of an input, or NAME:N for an extent that has a name, NAME:N,N,... "
    "for several sizes of it; for each that the model leaves open.",
)  # fmt: skip


layout_option = click.option(
    "--desired-layout", "layout", metavar="LAYOUT",
    help="Of convolutions, such as NHWC or NCHW16c; what stands between them follows.  [default: "
    "as MODEL has them]",
)  # fmt: skip


def network_options(command: Any) -> Any:
    """MODEL, and what it is built for: --target, --dtype, --batch, --shape, --desired-layout,
    --weights, and --precision, which becomes part of the target."""

    @wraps(command)
    def in_precision(*, target: Target, precision: str | None, dtype: str, **given: Any) -> Any:
        from tilewright.targets.precision import HALVES

        if precision in HALVES:
            if dtype not in ("float32", precision):
                raise click.BadParameter(
                    f"--dtype is {dtype}.  Leave one of the two out.", param_hint="--precision"
                )
            dtype = str(precision)
        elif precision is not None:
            try:
                target = target.with_precision(precision)
            except TilewrightError as error:
                way_out = error.way_out.replace(" -precision", " --precision")
                raise click.BadParameter(
                    f"{error.reason}.  {way_out}", param_hint="--precision"
                ) from None
        return command(target=target, dtype=dtype, **given)

    made = in_precision
    for option in (
        weights_option, layout_option, shape_option, batch_option, dtype_option, precision_option,
        target_option,
    ):  # fmt: skip
        made = option(made)
    return click.argument("model")(made)


log_option = click.option(
    "--log", type=File(), callback=check_log,
    help="Log of `tune`.  [default: MODEL.TARGET.jsonl where it exists]",
)  # fmt: skip


def default_log(model: str, target: Target, dtype: str = "float32") -> Path:
    """Where `tune` and `bench` look when no --log is given."""
    from tilewright import front

    return front.default_log(model, target, dtype)
