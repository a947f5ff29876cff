"""The backend of `torch.compile`: `torch.compile(model, backend="tilewright")`, for inference.

In: graphs of PyTorch's and, at their first call, their arguments.  Out: a function that calls a
compiled network on the tensors' own memory.  What cannot be compiled runs as it did, with one
warning.  Needs PyTorch.  Read next: `export.py`, `runtime/network/caller.py`, `store.py`,
`weights.py`.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from tilewright.base.concurrency import lock
from tilewright.base.errors import ModelError, TargetError, TilewrightError
from tilewright.graph.expr import IRModule
from tilewright.graph.narrow import NarrowWeights
from tilewright.measure.database import Database
from tilewright.models.torch import store
from tilewright.models.torch.aliases import results_of, shared
from tilewright.models.torch.counts import as_data
from tilewright.models.torch.eager import Eager
from tilewright.models.torch.export import as_numpy, decomposed, read, torch_module, written
from tilewright.models.torch.importer import Blocked, import_program
from tilewright.models.torch.parts import Part, parts_of, with_complex, without_values
from tilewright.models.torch.program import Program
from tilewright.models.torch.told import (
    PLACE,
    TilewrightWarning,
    follow,
    tell_breaks,
    varying,
    warn,
)
from tilewright.models.torch.watched import Watched
from tilewright.models.torch.weights import bind, cast_inside, is_number, is_static, lifted
from tilewright.network.build import build
from tilewright.network.confirm import Trials, loading
from tilewright.network.conversion import in_type
from tilewright.network.extract import Groupings
from tilewright.network.helpers import Helpers
from tilewright.network.narrow import asking, cost_of
from tilewright.network.places import bounds_of_places
from tilewright.network.tune import as_described, begun, tasks_of, tune, with_layouts
from tilewright.runtime.device import device, local_target
from tilewright.runtime.network.caller import Caller
from tilewright.runtime.network.library import Library
from tilewright.runtime.network.torch_calls import (
    Run,
    current_stream,
    function,
    given_back,
    is_capturing,
)
from tilewright.search import report
from tilewright.targets.precision import FLOAT32, HALVES, PRECISIONS, check_used
from tilewright.targets.target import Target, TargetLike

_KINDS = {"cpu": "llvm", "cuda": "cuda"}
_MOST_VARIANTS = 32  # sizes of one graph
_CALLS_A_BUILD = 64  # of what was compiled, before one size more than `Options.sizes` is
_MOST_PARTS = 8  # that a graph is cut into by operators that PyTorch runs


@dataclass(frozen=True)
class Options:
    """What `torch.compile(options=)` may hold.

    log:          path of a log of tuning results; `tune_minutes` and `trials` add to it
    tune_minutes: to tune each new graph for, before it is built
    trials:       candidates to try for each new graph, before it is built
    target:       default: the device of the inputs
    sizes:        of a graph whose extents or numbers vary, how many are compiled as they come
    frozen:       weights are never written to after the first call, so calls need not look
    cache:        keep compiled graphs on disk
    verify:       as in relay.build
    precision:    in what products of float32 may be computed; default: as the target says, else as
                  torch.set_float32_matmul_precision does: "highest" float32, others tf32 where the
                  device and the schedules for it have that.  "float16" or "bfloat16": contractions
                  of float32, and what follows them, are of that type; inputs and results stay
    weights:      of dense layers: "int8", "int4", "float8", as `Network.with_weights` takes them;
                  what they cost is measured, and told by a warning
    """

    log: str | None = None
    tune_minutes: float = 0.0
    trials: int = 0
    target: TargetLike | None = None
    sizes: int = 3
    frozen: bool = False
    cache: bool = True
    verify: bool = True
    precision: str | None = None
    weights: str | None = None

    @classmethod
    def of(cls, given: Mapping[str, Any] | None) -> Options:
        known = cls.__dataclass_fields__
        given = _without_tvm(given or {})
        if unknown := sorted(set(given) - set(known)):
            raise ModelError(
                PLACE, f"there is no option {unknown[0]!r}", f"There are {', '.join(known)}."
            )
        made = cls(**given)
        target = None if made.target is None else Target(made.target)
        precisions = [*PRECISIONS, *HALVES]
        if made.precision is not None and made.precision not in precisions:
            raise ModelError(
                PLACE, f"there is no precision {made.precision!r}", f"Use {', '.join(precisions)}."
            )
        if target is not None and made.precision in PRECISIONS:
            target.with_precision(made.precision)
        if made.weights is not None:
            NarrowWeights.parsed(made.weights, f"{PLACE}: weights")
        if made.budget is not None and made.log is None:
            what = "tune_minutes" if made.tune_minutes else "trials"
            raise ModelError(PLACE, f"{what} needs a log", 'Add "log": "model.jsonl".')
        return made

    @property
    def budget(self) -> report.Options | None:
        """Of tuning a new graph; None: it is not tuned."""
        if not self.tune_minutes and not self.trials:
            return None
        return report.Options(
            trials=self.trials or None,
            seconds=60 * self.tune_minutes if self.tune_minutes else None,
        )


_SCHEDULERS = ("auto_scheduler", "meta_schedule")
_LEVEL = 3  # of optimisation, as TVM counts them


def _without_tvm(given: Mapping[str, Any]) -> dict[str, Any]:
    """The options of PyTorch's backend "tvm" as ours: `scheduler`, `trials`, `opt_level`.

    Raises ModelError for what has no meaning here.
    """
    made = dict(given)
    if "scheduler" in made:
        scheduler = made.pop("scheduler")
        if scheduler in (None, "default"):  # there `trials` has no effect then
            made.pop("trials", None)
        elif scheduler not in _SCHEDULERS:
            raise ModelError(
                PLACE, f"there is no scheduler {scheduler!r}",
                f"Use one of {', '.join(_SCHEDULERS)}, or None; all that tune are one search.",
            )  # fmt: skip
        elif not made.get("trials") and not made.get("tune_minutes"):
            raise ModelError(
                PLACE, f"scheduler {scheduler!r} without an end", 'Add "trials" or "tune_minutes".'
            )
    if made.pop("opt_level", _LEVEL) != _LEVEL:
        raise ModelError(PLACE, f"graphs are compiled at opt_level {_LEVEL}", "Leave it out.")
    return made


def backend(
    gm: Any, example_inputs: Sequence[Any], options: Mapping[str, Any] | None = None, **_: Any
) -> Callable[..., Any]:
    """What `torch.compile` calls for each graph.  It is built when it first runs.

    options: see `Options`.  A graph that is to be differentiated stays PyTorch's.
    """
    torch = torch_module(PLACE)
    chosen = Options.of(options)
    follow(torch, backend)
    tell_breaks(torch)
    needs_grad = [t for t in example_inputs if isinstance(t, torch.Tensor) and t.requires_grad]
    if torch.is_grad_enabled() and needs_grad:
        warn(
            f"a graph that gradients may be asked of runs in PyTorch ({len(needs_grad)} of its "
            "inputs require them); write `with torch.no_grad():` around the calls"
        )
        return gm.forward  # type: ignore[no-any-return]
    bind(torch, gm, example_inputs)
    if (found := as_data(torch, gm)) is not None:
        gm, counts = found
        return counts.passing(torch, _Graph(torch, gm, chosen))
    return _Graph(torch, gm, chosen)


def register() -> None:
    """Make the backend known by name where the package is not installed with its entry points."""
    _prepare(torch_module(PLACE))
    from torch._dynamo.backends.registry import list_backends, register_backend

    if "tilewright" not in list_backends(exclude_tags=()):
        register_backend(backend, name="tilewright")


def _prepare(torch: Any) -> None:
    """Have Dynamo trace recurrent layers, which it otherwise leaves to PyTorch with everything
    around them, and tell what it leaves."""
    if hasattr(torch._dynamo.config, "allow_rnn"):
        torch._dynamo.config.allow_rnn = True
    follow(torch, backend)


class _Graph:
    """One graph of PyTorch's, and its variants by the shapes of its arguments.

    Extents that differ from call to call, such as those of a cache that grows, must not cost a
    build each: a few are compiled as they come, one more whenever calls have been many.
    """

    def __init__(self, torch: Any, gm: Any, options: Options) -> None:
        self.torch, self.gm, self.options = torch, gm, options
        inputs = [n for n in gm.graph.nodes if n.op == "placeholder"]
        self.names = [n.name for n in inputs]
        self.static = [k for k, node in enumerate(inputs) if is_static(node)]
        self.numbers = [k for k, node in enumerate(inputs) if is_number(node)]
        self.dynamic = bool(self.numbers) or any(node.type is torch.SymInt for node in inputs)
        self._variants: dict[Any, Run] = {}
        self._only: Run | None = None
        self._is_told = False  # that others run in PyTorch
        self._calls = 0  # of variants that were there
        self._turn = lock()

    def __call__(self, *args: Any) -> Any:
        if self._only is not None:
            return self._only(args)
        key = self._key(args) if self.dynamic else ()
        run = self._variants.get(key)
        if run is None:
            with self._turn:
                run = self._variants.get(key) or self._made(key, args)
        else:
            self._calls += 1
        return run(args)

    def _key(self, args: Sequence[Any]) -> Any:
        tensor = self.torch.Tensor
        shapes = [(a.shape, a.stride()) if isinstance(a, tensor) else a for a in args]
        for k in self.numbers:
            shapes[k] = args[k].item()
        return tuple(shapes)

    def _made(self, key: Any, args: Sequence[Any]) -> Run:
        first, more = self.options.sizes, self._calls // _CALLS_A_BUILD
        if len(self._variants) >= max(first, min(first + more, _MOST_VARIANTS), 1):
            if not self._is_told:
                self._is_told = True
                self._tell(key)
            return self._in_pytorch
        if is_capturing(self.torch):
            warn("a graph that is new within torch.cuda.graph is recorded as PyTorch runs it; call "
                 "it once before, with the same shapes")  # fmt: skip
            return self._in_pytorch
        try:
            run = _compiled(self.torch, self.gm, self.static, self.numbers, args, self.options)
        except TilewrightError as error:
            warn(f"a graph runs in PyTorch: {error}")
            run = self._in_pytorch
        self._variants[key] = run
        if not self.dynamic:
            self._only = run
        return run

    def _tell(self, key: Any) -> None:
        several = varying(self.names, [*self._variants, key])
        warn(f"a graph was compiled for {len(self._variants)} sizes and runs in PyTorch for others:"
             f" {several}. Pad to few sizes, use a cache of fixed size, pass numbers that vary in "
             'tensors, or say how many sizes to compile: options={"sizes": 16}')  # fmt: skip

    def _in_pytorch(self, args: Sequence[Any]) -> Any:
        return self.gm.forward(*args)


# -- building --------------------------------------------------------------------------------------


def _compiled(
    torch: Any, gm: Any, static: Sequence[int], numbers: Sequence[int], args: Sequence[Any],
    options: Options, read: frozenset[int] = frozenset(),
) -> Run:  # fmt: skip
    """The graph as a function of its arguments.  Raises TilewrightError where it cannot be made.

    static:  positions of weights
    numbers: positions of floats in a tensor, for which it is compiled as they are
    read:    positions of weights that are read in each call, of those that the graph holds, too
    """
    module, held = lifted(torch, gm, {k: args[k].item() for k in numbers})
    whole = [*args, *held]
    fixed = [k for k in (*static, *range(len(args), len(whole))) if k not in read]
    tensors = {k: a for k, a in enumerate(whole) if isinstance(a, torch.Tensor)}
    devices = {a.device for k, a in tensors.items() if k not in numbers}
    if len(devices) != 1 or (where := next(iter(devices))).type not in _KINDS:
        raise ModelError(PLACE, f"its inputs are on {', '.join(map(str, devices)) or 'no device'}",
                         "Inputs must be on one CPU or CUDA device.")  # fmt: skip
    chosen = options.target or _KINDS[where.type]
    target = chosen if isinstance(chosen, Target) else Target(chosen)
    if target.kind != _KINDS[where.type]:
        raise ModelError(PLACE, f"the target is {target.kind}, the inputs are on {where}",
                         "Leave target out, or move the inputs.")  # fmt: skip
    target = _in_precision(torch, target, options.precision)
    dynamic = [k for k in tensors if k not in fixed and k not in numbers]
    site = _Site(torch, where, target, options)
    if torch.is_autocast_enabled(where.type):
        cast_inside(torch, module, where.type, torch.get_autocast_dtype(where.type))
    asked = options.precision, options.weights
    key_of = partial(store.key, torch, gm, args, dynamic, target, options.log, asked)
    key = key_of() if options.cache else None
    found = None if key is None or options.budget is not None else store.load(key)
    library: Library | None
    if found is not None:
        library, outputs, inputs = found
        run, read_again = site.loaded(library, outputs, inputs), list(inputs)
    else:
        run, library, outputs, read_again = _made_anew(site, module, whole, dynamic)
        if key is not None and library is not None:  # tuning has written to the log
            new = key if options.log is None else key_of()
            store.keep(str(new), library, outputs, read_again)
    writes = [v[0] for kind, v in outputs if kind == "write"]
    if writes:
        run = _apart(torch, gm, run, len(args), writes)
    given = [v[1:] if kind == "write" else (kind, v) for kind, v in outputs]
    viewed = [v if kind == "input" else v[0] for kind, v in given if kind.startswith("input")]
    if max([*read_again, *viewed], default=0) >= len(args):
        run = partial(_with_held, run, held)
    if options.frozen:
        return run
    kept = [k for k in fixed if k not in read_again]

    def again(args: Sequence[Any], read: frozenset[int]) -> Run:
        unwatched = replace(options, frozen=True)
        return _compiled(torch, gm, static, numbers, args, unwatched, read)

    if not kept:
        return run
    return Watched(
        torch, run, args, [k for k in kept if k < len(args)],
        {k: whole[k] for k in kept if k >= len(args)}, again, bool(writes),
        lambda args: gm.forward(*args),
    )  # fmt: skip


def _in_precision(torch: Any, target: Target, asked: str | None) -> Target:
    """The target in the precision that is asked for; raises TargetError where there is none.  What
    PyTorch allows is a permission only: without a use for it nothing changes."""
    if asked in HALVES:
        return target
    if asked is not None:
        return target.with_precision(asked)
    if target.precision != FLOAT32 or not _allows_fewer(torch):
        return target
    try:
        found = target.with_precision("tf32")
        check_used(PLACE, found)
    except TargetError:
        return target
    return found


def _allows_fewer(torch: Any) -> bool:
    """Whether PyTorch lets products of float32 have fewer digits, in either of its two ways to say
    so: asked by the older one it raises where the newer one was used."""
    for place in (torch.backends.cuda.matmul, torch.backends):
        word = getattr(place, "fp32_precision", "none")
        if word != "none":
            return bool(word == "tf32")
    return bool(torch.get_float32_matmul_precision() != "highest")


def _with_held(run: Run, held: Sequence[Any], args: Sequence[Any]) -> Any:
    return run([*args, *held])


def _apart(torch: Any, gm: Any, run: Run, count: int, writes: Sequence[int]) -> Run:
    """`run`, where nothing else lies in the memory that it writes to; else the graph in PyTorch.

    count: of the arguments of the graph; `run` may take more
    """

    def call(args: Sequence[Any]) -> Any:
        places = [
            a.untyped_storage().data_ptr() if isinstance(a, torch.Tensor) and a.numel() else None
            for a in args
        ]
        if any(places.count(places[k]) > 1 for k in writes if places[k] is not None):
            return gm.forward(*args[:count])
        return run(args)

    return call


@dataclass(frozen=True)
class _Site:
    """Where and how graphs are built."""

    torch: Any
    where: Any
    target: Target
    options: Options

    def built(self, program: Program, written: Collection[str] = ()) -> Library:
        """written: inputs that are written to"""
        mod, params = import_program(program, PLACE, staged=False)
        bounds = bounds_of_places(mod["main"], written)
        if self.options.precision in HALVES:
            mod, params = in_type(mod, params, str(self.options.precision), keep_outputs=True), {}
        if self.options.weights is not None:
            mod = asking(mod, self.options.weights)
        known, verify, cost = Groupings(), self.options.verify, None
        if verify:
            cost = cost_of([mod], params, local_target(self.target)[0], known)
        if self.options.log is not None and (budget := self.options.budget) is not None:
            self._tune(mod, params, Path(self.options.log), budget, known)
        has_log = self.options.log is not None and Path(self.options.log).is_file()
        log = self.options.log if has_log else None
        library = build(
            mod, self.target, params, log, verify=verify, bounds=bounds,
            helpers=Helpers(groupings=known),
        )  # fmt: skip
        if cost is not None:
            library.report = replace(library.report, accuracy=cost.measure())
            warn(str(library.report.accuracy))
        return library

    def _tune(
        self, mod: IRModule, params: Mapping[str, Any], log: Path, budget: report.Options,
        known: Groupings,
    ) -> None:  # fmt: skip
        with Database(log) as database, begun(self.target) as started:
            helpers = replace(started, groupings=known)
            target = as_described(self.target, None, helpers)
            tasks = tasks_of([mod], params, target, known=known)
            if tasks:
                every = with_layouts(tasks, [mod], params, target, budget, rules=True, known=known)
                tune(every, database, budget, helpers=helpers).check()
                with loading(target) as load:
                    Trials(mod, params, target, load, helpers=helpers).confirm(database)

    def loaded(self, library: Library, outputs: Sequence[Any], inputs: Sequence[int]) -> Run:
        """inputs: the position among the arguments of each input of the library."""
        stream, where = current_stream(self.torch, self.where), self.where
        caller = Caller(library.load_on(device(self.target, where.index or 0)), stream)
        return function(self.torch, caller, inputs, outputs, where)


def _made_anew(
    site: _Site, gm: Any, args: Sequence[Any], dynamic: Sequence[int]
) -> tuple[Run, Library | None, list[Any], list[int]]:
    """The function, its library if it is one, its outputs as `_function` has them, and which
    arguments it reads anew in each call: those that are `dynamic`, and what it writes to."""
    torch = site.torch
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            # Others of the same memory, without marks that leave extents open.
            plain = [a.detach() if isinstance(a, torch.Tensor) else a for a in args]
            ep = torch.export.export(gm, tuple(plain), strict=False)
        except Exception as error:
            reason = (str(error).strip().splitlines() or [type(error).__name__])[0]
            raise ModelError(PLACE, f"torch.export refuses it: {reason[:300]}") from error
    devices = {t.device for t in results_of(ep) if isinstance(t, torch.Tensor)}
    if away := sorted(map(str, devices - {site.where})):
        raise ModelError(PLACE, f"an output is on {', '.join(away)}, inputs are on {site.where}",
                         f"Make it on {site.where}, or outside.")  # fmt: skip
    views = shared(torch, ep, PLACE)
    ep = decomposed(ep)
    program = read(ep, PLACE, with_writes=True)
    names = iter(program.inputs)
    given = {k: next(names) for k, a in enumerate(args) if isinstance(a, torch.Tensor)}
    positions = {name: k for k, (name, _) in given.items()}
    writes = [positions[name] for name in written(ep)]
    views = {len(writes) + k: v for k, v in views.items()}
    kept = (None if k in views else v for k, v in enumerate(program.outputs))
    program, outputs = without_values(replace(program, outputs=tuple(kept)), positions)
    outputs = [views.get(k, v) for k, v in enumerate(outputs)]
    for k, position in enumerate(writes):
        outputs[k] = ("write", (position, *outputs[k]))
    inputs = sorted({*dynamic, *writes})
    weights = {name: as_numpy(args[k]) for k, (name, _) in given.items() if k not in inputs}
    program = replace(
        program, inputs=tuple(given[k] for k in inputs), weights={**program.weights, **weights}
    )
    if not program.outputs:
        raise ModelError(PLACE, "it computes nothing")
    try:
        library = site.built(program, [given[k][0] for k in writes])
    except Blocked as error:
        if any(s.args.get("dense") is False for s in program.steps):
            raise  # it reads memory, which parts lay out in another way than PyTorch does
        warn(f"some operators of a graph run in PyTorch: {error}")
        fixed = {name: args[k] for k, (name, _) in given.items() if k not in inputs}
        run = _in_parts(site, ep, program, error.steps, outputs, inputs, fixed)
        return run, None, outputs, inputs
    return site.loaded(library, outputs, inputs), library, outputs, inputs


def _in_parts(
    site: _Site, ep: Any, program: Program, blocked: frozenset[str], outputs: Sequence[Any],
    inputs: Sequence[int], fixed: Mapping[str, Any],
) -> Run:  # fmt: skip
    """What can be compiled is, PyTorch runs the rest.

    inputs: positions of the arguments that are the program's; fixed: those that are weights, by
    their names in it
    Raises ModelError where that would be too many pieces.
    """
    parts = parts_of(program, with_complex(program, blocked))
    if sum(part.compiled for part in parts) > _MOST_PARTS:
        raise ModelError(PLACE, f"it would fall into {len(parts)} parts",
                         f"At most {_MOST_PARTS} are compiled.")  # fmt: skip
    eager = Eager(site.torch, ep)
    runs = [_part(site, part, eager) for part in parts]
    results = [ref.name for ref in program.outputs]
    names = [name for name, _ in program.inputs]
    constants = {**eager.constants, **fixed}

    def run(args: Sequence[Any]) -> Any:
        values = {**constants, **{name: args[k] for name, k in zip(names, inputs, strict=True)}}
        for part, step in zip(parts, runs, strict=True):
            step(values)
            for name in part.dead:
                values.pop(name, None)
        return given_back(outputs, [values[name] for name in results], args)

    return run


def _part(site: _Site, part: Part, eager: Eager) -> Callable[[dict[str, Any]], None]:
    """Takes and gives values by name."""
    steps = eager.steps(part.program)
    if not part.compiled or not part.program.outputs:
        return steps
    try:
        library = site.built(part.program)
        kinds = [("output", k) for k in range(len(part.program.outputs))]
        call = site.loaded(library, kinds, range(len(part.program.inputs)))
    except TilewrightError as error:
        warn(f"a part of a graph runs in PyTorch: {error}")
        return steps
    inputs = [name for name, _ in part.program.inputs]
    outputs = [ref.name for ref in part.program.outputs]

    def run(values: dict[str, Any]) -> None:
        values.update(zip(outputs, call([values[name] for name in inputs]), strict=True))

    return run


if "torch" in sys.modules:  # Dynamo loads this where it needs the backend
    _prepare(sys.modules["torch"])


__all__ = ["Options", "TilewrightWarning", "backend", "register"]
