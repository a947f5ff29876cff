"""The front door: load a network, tune it, compile it; one operator likewise.

    import tilewright as tw

    net = tw.load("resnet18.onnx")
    tw.tune(net, target="cuda", minutes=2, log="r18.jsonl")
    run = tw.compile(net, target="cuda", log="r18.jsonl")
    y = run(x)

In: models.  Out: a `Network`, a log and a `Tuned`, a `Compiled`; the command is written on these.
`tw.open`, which needs no compiler, is in `runtime/network/compiled.py`.
Read next: `models/networks.py`, `network/tune_network.py`, `network/build.py`.
"""

from __future__ import annotations

import io
import os
import sys
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from math import prod
from pathlib import Path
from textwrap import fill
from typing import TYPE_CHECKING, Any

import numpy as np

from tilewright.base import context
from tilewright.base.doors import check_arguments, door
from tilewright.base.errors import (
    ModelError,
    RecordError,
    SpaceError,
    TilewrightError,
    named,
)
from tilewright.base.terminal import say
from tilewright.base.text import shortened
from tilewright.farm.address import Devices, parsed
from tilewright.graph.expr import (
    Array,
    Constant,
    Function,
    IRModule,
    TensorType,
    TupleType,
    post_order,
)
from tilewright.graph.traversal import op_name
from tilewright.measure.database import Database
from tilewright.measure.sources import check_history
from tilewright.models import networks, scripts
from tilewright.network.build import State, build
from tilewright.network.conversion import converted, in_type
from tilewright.network.evidence import sources_of
from tilewright.network.extract import Groupings
from tilewright.network.helpers import Helpers
from tilewright.network.narrow import asking, cost_of
from tilewright.network.single import build_task
from tilewright.network.tune import Measuring as Measuring
from tilewright.network.tune import as_described as as_described
from tilewright.network.tune import begun as begun
from tilewright.network.tune_network import RULES, chosen_tasks, network_tasks, tune_network
from tilewright.network.tuned import Tuned as Tuned
from tilewright.runtime.device import cuda, local_target
from tilewright.runtime.network.compiled import Compiled
from tilewright.runtime.network.plan import TensorSpec
from tilewright.schedule.task import Task, create, task_of_dag
from tilewright.search.progress import Progress
from tilewright.search.propose.cost_model import begin_import
from tilewright.search.propose.named import tuner_name
from tilewright.search.report import Options, Report
from tilewright.search.rules.derive import with_rules
from tilewright.targets.precision import HALVES, PRECISIONS
from tilewright.targets.target import Target, TargetLike
from tilewright.te.dag import ComputeDAG
from tilewright.te.tensor import Tensor

if TYPE_CHECKING:
    from tilewright.models.networks import Model

DTYPES = ("float32", *HALVES)  # of contractions
MINUTES = 5.0  # of a search that is told no budget

# -- networks --------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Network:
    """A network that was loaded, for one set of input shapes or several; printable.

    name:    what it was loaded from
    modules: its graph for each set of input shapes
    params:  its weights by name; all other parameters of the graphs are inputs
    layout:  of its convolutions, where one was asked for
    dtype:   of its contractions, as it was asked for
    weights: of dense layers, as they were asked for; "": as they are
    states:  inputs that stay on the device between calls, by name
    bounds:  the least and the greatest number of an input, by name, where it has such
    """

    door_words = ("a network", "tilewright.load gives one.")

    name: str
    modules: tuple[IRModule, ...]
    params: Mapping[str, Array]
    layout: str | None = None
    dtype: str = "float32"
    states: Mapping[str, State] = field(default_factory=dict)
    weights: str = ""
    bounds: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    _narrow: dict[str, Network] = field(default_factory=dict, init=False, repr=False, compare=False)
    _packed: Groupings = field(default_factory=Groupings, init=False, repr=False, compare=False)

    @property
    def groupings(self) -> Groupings:
        """What searches and builds of it work out once: with other weights kept as long as it, so
        that they are packed once; else new, since it would be the weights once more."""
        return self._packed if self.weights else Groupings()

    @property
    def inputs(self) -> tuple[TensorSpec, ...]:
        """Name, shape and element type of each input; of the first of several sets of shapes."""
        main = self.modules[0]["main"]
        free = (p for p in main.params if p.name_hint not in {*self.params, *self.states})
        return tuple(TensorSpec(p.name_hint, p.shape, str(p.dtype)) for p in free)

    @property
    def outputs(self) -> tuple[TensorSpec, ...]:
        """Name, shape and element type of each output, likewise."""
        kinds = _tensors(self.modules[0]["main"].body.checked_type)
        kept = {state.output for state in self.states.values()}
        numbered = [(k, t) for k, t in enumerate(kinds) if k not in kept]
        return tuple(TensorSpec(f"output{k}", t.shape, str(t.dtype)) for k, t in numbered)

    @property
    def operators(self) -> Counter[str]:
        """How often each operator occurs, by its name."""
        names = map(op_name, post_order(self.modules[0]["main"].body))
        return Counter(filter(None, names))

    def each(self) -> list[Network]:
        """Give the network for each set of input shapes; names tell several apart."""
        if len(self.modules) == 1:
            return [self]
        alone = [replace(self, modules=(mod,)) for mod in self.modules]
        return [replace(net, name=f"{net.name}, {net._shapes()}") for net in alone]

    def _shapes(self) -> str:
        return " ".join(f"{s.name}:[{','.join(map(str, s.shape))}]" for s in self.inputs)

    def in_type(self, dtype: str) -> Network:
        """Give the same with its contractions, and what follows them, in another element type.
        States and, where there are some, results keep theirs."""
        keep = bool(self.states)  # those that come out are those that go in
        mods = (in_type(asking(mod, ""), self.params, dtype, keep) for mod in self.modules)
        asked = tuple(asking(mod, self.weights) for mod in mods)
        return replace(self, modules=asked, params={}, dtype=dtype)

    def with_weights(self, weights: str) -> Network:
        """Give the same with the weights of dense layers as int8, int4 or float8, in groups along
        the depth that have a scale: KIND[:GROUP][:head=KIND], such as "int4:64:head=none"; the head
        is the last layer.  Raises ModelError."""
        if weights not in self._narrow:
            mods = tuple(asking(mod, weights) for mod in self.modules)
            self._narrow[weights] = replace(self, modules=mods, weights=weights)
        return self._narrow[weights]

    def __str__(self) -> str:
        held = [self.params.values(), (n.data for m in self.modules[:1] for n in _constants(m))]
        arrays = [a if hasattr(a, "shape") else np.asarray(a) for part in held for a in part]
        numbers, mib = sum(prod(a.shape) for a in arrays), sum(a.nbytes for a in arrays) / (1 << 20)
        more = len(self.modules) - 1
        operators = [f"{name} {n}" for name, n in self.operators.most_common()]
        rows = [
            ("network", self.name + (f", and for {more} more sets of shapes" if more else "")),
            *(("input", str(spec)) for spec in self.inputs),
            *(("output", str(spec)) for spec in self.outputs),
            ("parameters", f"{numbers:,} ({mib:.1f} MiB)"),
            *([("weights", f"{self.weights}, of dense layers")] if self.weights else []),
            ("operators", ", ".join(operators)),
        ]
        indent = " " * 12
        return "\n".join(
            fill(
                f"{what:<12}{shortened(told)}", 90, subsequent_indent=indent, break_long_words=False
            )
            for what, told in rows
        )


def _constants(mod: IRModule) -> list[Constant]:
    return [node for node in post_order(mod["main"].body) if isinstance(node, Constant)]


def _tensors(kind: Any) -> list[TensorType]:
    if isinstance(kind, TupleType):
        return [t for field in kind.fields for t in _tensors(field)]
    return [kind]


@door(ModelError, "load", strict=True)
def load(
    model: Model,
    inputs: Any = None,
    *,
    params: Mapping[str, Any] | None = None,
    shape: Mapping[str, Any] | None = None,
    batch: Sequence[int] = (),
    dtype: str = "float32",
    layout: str | None = None,
) -> Network:
    """Load a network, to be tuned and compiled.

    model:  path of an .onnx file; bytes of one, or an onnx.ModelProto; a torch.nn.Module, an
            ExportedProgram of torch.export, a path of what torch.export.save wrote (PyTorch
            unpickles parts of such files: trust who made it), buffers that it writes to are states;
            "script.py:function", whose code runs and returns one of these, with inputs or weights
            behind it where they belong to it; the name of a test network ("resnet-18", with random
            weights); an IRModule or a Function of a graph; the folder of a decoder, config.json and
            safetensors, or a decoder's size ("llama-1b"), whose caches are states
    inputs: of a torch.nn.Module: examples, or shapes, which stand for float32: a tensor, an array,
            a tuple of them, or by the names of the arguments a mapping: inputs=(1, 3, 224, 224)
    params: of an IRModule: its weights by name; the other parameters are inputs
    shape:  of inputs of an ONNX model by name, for what it leaves open: {"data": (1, 3, 224, 224)};
            of an extent that has a name the number, {"seq": 64}, or a list: for each of them
    batch:  sizes, each the first extent of all inputs; none: as the model has it
    dtype:  of contractions and what follows: "float32", "float16" or "bfloat16"; sums stay float32
    layout: of convolutions, such as "NHWC"; default: as the model has them
    Raises ModelError for a file that is missing, damaged or of another kind, for open shapes, and
    once for all operators that cannot be imported.
    """
    if isinstance(model, str) and scripts.parts_of(model) is not None:
        model = scripts.made(model)
    if isinstance(model, scripts.Made):
        name, made, inputs = model.name, model, model.inputs if inputs is None else inputs
        model, params = made.model, made.params if params is None else params
        if made.is_computation:
            raise ModelError(
                name, "it is one computation, not a network", "tilewright.task makes a task of it."
            )
    else:
        name = os.fspath(model) if isinstance(model, str | os.PathLike) else networks.name_of(model)
    if params is not None and not isinstance(model, IRModule | Function):
        raise ModelError(f"load({name}, params=)", "the model has its weights", "Leave params out.")
    if not isinstance(dtype, str) or dtype not in DTYPES:
        raise ModelError(
            f"load(dtype={dtype!r:.80})", "there is no such choice", f"Use {', '.join(DTYPES)}."
        )
    if len({*batch} - {0}) < len(batch) or min(batch, default=1) < 1:
        raise ModelError(
            f"load(batch={tuple(batch)})", "they are not different whole numbers of at least 1",
            "Example: batch=(1, 8).",
        )  # fmt: skip
    if isinstance(model, str | os.PathLike) and networks.is_decoder(name):
        found = networks.load_decoder(name, batch, shape, inputs, dtype, layout)
        return Network(
            name, found.modules, found.params, None, dtype, states=found.states,
            bounds=found.bounds,
        )  # fmt: skip
    own = dict(params or {})
    read = (f"from_onnx({name!r})", f"network {name!r}", f"load({type(model).__name__})",
            f"load({name!r})")  # fmt: skip
    calls = ("from_onnx", "from_exported_program", "batch_sizes", "layout", *read)
    with networks.of_model(name), named(name, *calls):
        try:
            mods, weights = networks.load_sizes(model, batch, shape, inputs, tuple(own))
        except networks.Keeps as error:
            mods, left, states, bounds = networks.load_step(error, batch, dtype, layout)
            return Network(name, tuple(mods), left, layout, dtype, states, bounds=bounds)
        changed, left = converted(mods, {**weights, **own}, dtype, layout)
    return Network(name, tuple(changed), left, layout, dtype)


# -- tuning ----------------------------------------------------------------------------------------


@door(ModelError, "tune")
def tune(
    what: Network | Task | Sequence[Task],
    target: TargetLike | None = None,
    *,
    minutes: float | None = None,
    trials: int | None = None,
    log: str | os.PathLike[str] | None = None,
    tuner: str = "xgb",
    history: Sequence[str | os.PathLike[str]] = (),
    early_stopping: int | None = None,
    seed: int = 0,
    measuring: Measuring | None = None,
    farm: tuple[str, str] | Devices | None = None,
    progress: bool = True,
    precision: str | None = None,
    weights: str | None = None,
) -> Tuned:
    """Search for fast kernels, and write every result to a log, which `compile` builds from.

    what:    a network; or a task, or several
    target:  such as "cuda", "llvm", "opencl", with options: "llvm -mcpu=skylake"; default: of
             `with Target(...):`, else a GPU with CUDA where there is one, else this processor; a
             task has its own
    minutes, trials: the budget, whichever ends first, of both together; default: five minutes.
             What comes before a search and after it counts, where it is short; see
             docs/searching.md
    log:     the file that results are added to; one that is there already is gone on with, so a
             search may be stopped at any moment, by Ctrl-C too.  Default: NAME.TARGET.jsonl in the
             current folder, as of the command
    tuner:   how candidates are chosen: "xgb", by a model that learns; "ga", "random", "gridsearch",
             "droplet"; "auto-scheduler": of a network also kernels that no template fits
    history: logs of other networks or devices to start from
    early_stopping: a task ends after so many candidates without a faster one
    seed:    of the search
    measuring: how candidates are built and timed: a `tilewright.front.Measuring`
    farm:    (HOST:PORT of a tracker, key of its devices), to use those instead of this machine's
    progress: show a table on a terminal, else lines
    precision: in what products of float32 may be computed, a name of `targets/precision.py`, as the
             target's option `-precision=` says it; default: as the target has it.  Of a network
             also "float16" or "bfloat16": the same as `load(dtype=)`
    weights: of dense layers of a network, see `Network.with_weights`; default: as it has them
    Raises ModelError for a network without a kernel to tune, SearchError where every trial failed,
    DeviceError or TargetError without the device, RecordError for a log that cannot be written.
    """
    if minutes is None and trials is None:
        minutes = MINUTES
    seconds = None if minutes is None else minutes * 60
    limits = (("minutes", minutes), ("trials", trials), ("early_stopping", early_stopping))
    for name, value in limits:
        if value is not None and not value > 0:
            raise ModelError(f"tune({name}={value})", "it is not more than zero", "Leave it out.")
    devices = Devices(farm[1], *parsed(farm[0])) if isinstance(farm, tuple) else farm
    stream = None if progress else io.StringIO()
    chosen = helpers = None
    shown = "network" if isinstance(what, Network) else "best" if isinstance(what, Task) else "sum"
    with ExitStack() as stack:
        display = stack.enter_context(Progress(trials, seconds, stream, what=shown))
        if isinstance(what, Network):
            what, precision = _as_asked(what, precision, weights)
            chosen = _target(target, precision)
            helpers = stack.enter_context(begun(chosen, devices, measuring))
            begin_import()  # while the device is opened
            chosen = as_described(chosen, devices, helpers)
        else:
            _refuse("tune", target=target, precision=precision, weights=weights)
        path = Path(log) if log is not None else _log_of(what, chosen)
        database = stack.enter_context(Database(path, on_error=warn))
        before = len(database.networks)
        try:
            report = search(
                what, chosen, database, trials=trials, seconds=seconds, tuner=tuner, seed=seed,
                early_stopping=early_stopping, history=[Path(h) for h in history],
                measuring=measuring, farm=devices, helpers=helpers, progress=display,
            )  # fmt: skip
        except KeyboardInterrupt:
            display.note(f"Stopped.  {len(database)} results are in {path}; the same call goes on.")
            raise
        return Tuned(path, report, tuple(database.networks[before:]))


def search(
    what: Network | Task | Sequence[Task],
    target: Target | None,
    database: Database,
    *,
    trials: int | None,
    seconds: float | None,
    tuner: str = "xgb",
    templates: bool = True,
    tasks: str = "all",
    seed: int = 0,
    early_stopping: int | None = None,
    history: Sequence[Path] = (),
    measuring: Measuring | None = None,
    farm: Devices | None = None,
    helpers: Helpers | None = None,
    progress: Progress,
) -> Report:
    """Search as `tune` does, with an open log, a display, and a target that its device described.

    templates: whether templates compete with the rules of "auto-scheduler"
    tasks:     which of them, see `chosen_tasks`; all: of other layouts, too
    helpers:   what `begun` gives, of the same target
    """
    way = tuner if tuner == RULES else tuner_name(tuner)
    options = Options(
        trials=trials, seconds=seconds, tuner="xgb" if way == RULES else way, seed=seed,
        early_stopping=early_stopping,
    )  # fmt: skip
    for told in database.skipped.told():
        progress.note(f"{database.path}: skipped {told}")
    more: dict[str, Any] = {}
    if isinstance(what, Network):
        assert target is not None
        known = what.groupings
        helpers = None if helpers is None else replace(helpers, groupings=known)
        every = tasks_of(
            what, target, way, templates, options if tasks == "all" else None, known
        )  # fmt: skip
        try:
            found = [every[k] for k in chosen_tasks(tasks, len(every))]
        except ValueError as error:
            raise ModelError("--tasks", str(error), "--tasks list shows them.") from None
        more = {"networks": what.modules, "params": what.params, "history_of": every}
        so_far = f"results in {database.path} ({len(database)} so far)"
        progress.note(f"tuning {what.name} for {target}, {so_far}")
    else:
        found = [what] if isinstance(what, Task) else list(what)
    return tune_network(
        found, database, options, history=history, measuring=measuring, farm=farm,
        helpers=helpers, progress=progress, **more,
    )  # fmt: skip


def tasks_of(
    net: Network, target: Target, tuner: str, templates: bool = True,
    options: Options | None = None, known: Groupings | None = None,
) -> list[Task]:  # fmt: skip
    """Give the tasks of a network; with options, in the layouts that the budget allows to compare
    where the network leaves them open.  known: see `extract.groupings`
    Raises ModelError where there is none."""
    others = options if net.layout is None else None
    mods, place = net.modules, f"tune {net.name!r}"
    return network_tasks(mods, net.params, target, tuner, templates, others, place, known=known)


def warn(error: TilewrightError) -> None:
    """Say on standard error what does not end a search."""
    say(f"warning: {error}", stream=sys.stderr)


def _log_of(what: Network | Task | Sequence[Task], target: Target | None) -> Path:
    if isinstance(what, Network):
        return default_log(what.name, target, what.dtype)
    first = what if isinstance(what, Task) else next(iter(what), None)
    if first is None:
        raise ModelError("tune([])", "there is no task", "task(computation, args) makes one.")
    return default_log(first.name, first.target)


def default_log(name: str, target: Target | None, dtype: str = "float32") -> Path:
    """Where results are when nobody names a file: NAME.TARGET.jsonl in the current folder."""
    path = Path(name.replace(".py:", ".").replace(":", "."))
    stem = path.stem if path.suffix.lower() in (".onnx", ".pt2", ".pt", ".pth") else path.name
    kind = "" if dtype == "float32" else f".{dtype}"
    return Path(f"{stem}.{target.kind if target else ''}{kind}.jsonl")


def _as_asked(
    net: Network, precision: str | None, weights: str | None
) -> tuple[Network, str | None]:
    """The network in the element type, and with the weights, that are asked for; the precision, if
    that is none of an element type."""
    if precision in HALVES:
        net, precision = (net if net.dtype == precision else net.in_type(str(precision))), None
    return (net if weights is None else net.with_weights(weights)), precision


def _refuse(call: str, **given: Any) -> None:
    """Refuse what is of networks only."""
    for word in (word for word, value in given.items() if value is not None):
        has = "its target" if word != "weights" else "its weights"
        raise ModelError(f"{call}({word}=)", f"a task has {has}", f"Leave {word} out.")


def _target(target: TargetLike | None, precision: str | None = None) -> Target:
    """`target`, that of `with target:`, or of what is here; in a precision, if one is asked for."""
    found = target if target is not None else context.current("target")
    if found is None:
        found = "cuda" if cuda().exist else "llvm"
    chosen = Target(found)
    if precision is not None and precision not in PRECISIONS:
        raise ModelError(
            f"precision={precision!r}", "there is no such precision",
            f"Use {', '.join((*PRECISIONS, *HALVES))}; weights= keeps weights in bytes and less.",
        )  # fmt: skip
    return chosen if precision is None else chosen.with_precision(precision)


# -- compiling -------------------------------------------------------------------------------------


@door(ModelError, "compile")
def compile(
    what: Network | Task,
    target: TargetLike | None = None,
    log: Any = None,
    *,
    verify: bool = True,
    partial_batches: bool = False,
    knowledge: bool = True,
    precision: str | None = None,
    weights: str | None = None,
) -> Compiled:
    """Compile a network, or one computation, to a function of its inputs, with the best kernels
    that are known.

    what:    a network, or a task
    target:  see `tune`; where its device is not here, the result can be saved and opened there
    log:     file that `tune` wrote, or several, ours or AutoTVM's; or a `Database`.  Default: of
             `with apply_history_best(log):`, else untuned
    verify:  compare every kernel once with a reference, where the device is here
    partial_batches: run batches between two sizes in the network for the greater one
    knowledge: where the log has nothing, use what is known of devices of this class
    precision, weights: see `tune`; what narrow weights cost is measured, and in `report.accuracy`
    Raises RecordError for a log that is missing or has nothing for this target, ModelError for a
    network that cannot be compiled, TargetError for an unknown target or without its compiler.
    """
    if isinstance(what, Network):
        what, precision = _as_asked(what, precision, weights)
    else:
        _refuse("compile", target=target, precision=precision, weights=weights)
    chosen = what.target if isinstance(what, Task) else _target(target, precision)
    schedules = schedules_of(log, chosen) if isinstance(log, str | os.PathLike) else log
    given = {type(one).__name__ for one in (log if isinstance(log, list | tuple) else [log])}
    with (
        named("compile(log=)", *(f"relay.build(schedules={kind})" for kind in given)),
        named("compile(partial_batches=True)", "relay.build(partial_batches=True)"),
        named("compile" if isinstance(what, Task) else what.name, "relay.build"),
    ):
        if isinstance(what, Task):
            return Compiled(build_task(what, schedules, verify=verify, use_knowledge=knowledge))
        known, cost = what.groupings, None
        if verify:
            cost = cost_of(what.modules, what.params, local_target(chosen)[0], known)
        library = build(
            list(what.modules), chosen, what.params, schedules, verify=verify,
            partial_batches=partial_batches, use_knowledge=knowledge, states=what.states,
            bounds=what.bounds, helpers=Helpers(groupings=known),
        )  # fmt: skip
        if cost is not None:
            library.report = replace(library.report, accuracy=cost.measure())
    return Compiled(library)


def schedules_of(log: str | os.PathLike[str], target: Target, what: str = "a kernel") -> Any:
    """What a log, ours or AutoTVM's, has for kernels of `target`.

    Raises RecordError for one that is missing, or has something, but nothing for this target.
    """
    if not os.path.exists(log):
        raise RecordError(f"log {os.fspath(log)!r}", "there is no such file", "tune writes one.")
    (source,) = sources_of(log)
    if isinstance(source, Database):
        here, _ = local_target(target)
        known = {t.target for t in source.tasks()}
        check_history(source, log, here if str(here) in known else target, what)
    return source


# -- one operator ----------------------------------------------------------------------------------


@door(SpaceError, "task")
def task(
    computation: Callable[..., Sequence[Tensor]] | Sequence[Tensor] | str,
    args: Sequence[Any] = (),
    target: TargetLike | None = None,
) -> Task:
    """Make a task of one computation, to be tuned on one target.

    computation: a function that declares tensors and returns the list of its inputs and outputs;
                 such a list; or the name of a template, which schedules what it declares: see
                 `template`
    args:        of the function or the template
    target:      see `tune`
    Every template that fits the computation competes with what rules derive; of a template by its
    name, only its own candidates are tried.
    Raises SpaceError for a function that returns something else, and for an unknown template.
    """
    chosen, _ = local_target(_target(target))
    if isinstance(computation, str):
        return create(computation, args, chosen)
    tensors, name = computation, ""
    if callable(computation):
        name = getattr(computation, "__name__", "computation")
        check_arguments(computation, args, f"task({name})", SpaceError)
        tensors = computation(*args)
    if not (
        isinstance(tensors, list | tuple)
        and tensors
        and all(isinstance(t, Tensor) for t in tensors)
    ):
        raise SpaceError(
            f"task({name})", f"it is given as a {type(tensors).__name__}, not as tensors",
            "Return the list of its input and output tensors: [data, kernel, out]; of a template, "
            "give the name.",
        )  # fmt: skip
    return with_rules(task_of_dag(ComputeDAG(tensors), chosen, name, args))
