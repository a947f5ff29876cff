"""The backend of `torch.compile`: `torch.compile(model, backend="tilewright")`, for inference.

In: graphs of PyTorch's and, at their first call, their arguments.  Out: a function that calls a
compiled network on the tensors' own memory.  What cannot be compiled runs as it did, with one
warning.  Needs PyTorch.  Read next: `export.py`, `../../../runtime/network/caller.py`, `store.py`,
`weights.py`.
"""

from __future__ import annotations

import ctypes
import math
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from operator import itemgetter
from pathlib import Path
from typing import Any

from tilewright.base.concurrency import lock
from tilewright.base.errors import ModelError, TilewrightError
from tilewright.measure.database import Database
from tilewright.relay.compile.build import build
from tilewright.relay.compile.tune import as_described, tasks_of, tune, with_layouts
from tilewright.relay.exchange.torch import store
from tilewright.relay.exchange.torch.aliases import shared
from tilewright.relay.exchange.torch.eager import Eager
from tilewright.relay.exchange.torch.export import (
    as_numpy,
    decomposed,
    read,
    torch_module,
    written,
)
from tilewright.relay.exchange.torch.importer import Blocked, import_program
from tilewright.relay.exchange.torch.parts import Part, parts_of, without_values
from tilewright.relay.exchange.torch.program import Program
from tilewright.relay.exchange.torch.weights import (
    bind,
    cast_inside,
    is_number,
    is_static,
    lifted,
    unchanged,
)
from tilewright.relay.graph.expr import IRModule
from tilewright.runtime.device import device
from tilewright.runtime.drivers import ALIGNMENT
from tilewright.runtime.network.caller import Caller
from tilewright.runtime.network.library import Library
from tilewright.search import report
from tilewright.targets.target import Target, TargetLike

PLACE = 'torch.compile(backend="tilewright")'
Run = Callable[[Sequence[Any]], Any]  # of the arguments of a graph
_KINDS = {"cpu": "llvm", "cuda": "cuda"}
_MOST_VARIANTS = 32  # shapes of one graph
_MOST_PARTS = 8  # that a graph is cut into by operators that PyTorch runs


class TilewrightWarning(UserWarning):
    """Something runs in PyTorch, not in Tilewright."""


@dataclass(frozen=True)
class Options:
    """What `torch.compile(options=)` may hold.

    log:          path of a log of tuning results; `tune_minutes` adds to it
    tune_minutes: to tune each new graph for, before it is built
    target:       default: the device of the inputs
    frozen:       weights are never written to after the first call, so calls need not look
    cache:        keep compiled graphs on disk
    verify:       as in relay.build
    """

    log: str | None = None
    tune_minutes: float = 0.0
    target: TargetLike | None = None
    frozen: bool = False
    cache: bool = True
    verify: bool = True

    @classmethod
    def of(cls, given: Mapping[str, Any] | None) -> Options:
        known = cls.__dataclass_fields__
        if unknown := sorted(set(given or {}) - set(known)):
            raise ModelError(
                PLACE, f"there is no option {unknown[0]!r}", f"There are {', '.join(known)}."
            )
        made = cls(**(given or {}))
        if made.tune_minutes and made.log is None:
            raise ModelError(PLACE, "tune_minutes needs a log", 'Add "log": "model.jsonl".')
        return made


def backend(
    gm: Any, example_inputs: Sequence[Any], options: Mapping[str, Any] | None = None, **_: Any
) -> Callable[..., Any]:
    """What `torch.compile` calls for each graph.  It is built when it first runs.

    options: see `Options`.  A graph that is to be differentiated stays PyTorch's.
    """
    torch = torch_module(PLACE)
    chosen = Options.of(options)
    _tell_breaks(torch)
    needs_grad = [t for t in example_inputs if isinstance(t, torch.Tensor) and t.requires_grad]
    if torch.is_grad_enabled() and needs_grad:
        _warn(
            f"a graph that gradients may be asked of runs in PyTorch ({len(needs_grad)} of its "
            "inputs require them); write `with torch.no_grad():` around the calls"
        )
        return gm.forward  # type: ignore[no-any-return]
    bind(torch, gm, example_inputs)
    return _Graph(torch, gm, chosen)


def register() -> None:
    """Make the backend known by name where the package is not installed with its entry points."""
    torch_module(PLACE)
    from torch._dynamo.backends.registry import list_backends, register_backend

    if "tilewright" not in list_backends(exclude_tags=()):
        register_backend(backend, name="tilewright")


_told: set[str] = set()  # warnings: each is told once


def _warn(text: str) -> None:
    if text not in _told:
        _told.add(text)
        warnings.warn(f"{PLACE}: {text}", TilewrightWarning, stacklevel=2)


def _tell_breaks(torch: Any) -> None:
    """Graph breaks since the last graph: what lies between two graphs runs in PyTorch."""
    import torch._dynamo.utils as found

    reasons = [str(r).splitlines()[0] for r in found.counters["graph_break"]]
    if new := [r for r in reasons if r not in _told]:
        _told.update(new)
        _warn(f"the model is compiled in parts; between them PyTorch runs: {'; '.join(new[:10])}")


class _Graph:
    """One graph of PyTorch's, and its variants by the shapes of its arguments."""

    def __init__(self, torch: Any, gm: Any, options: Options) -> None:
        self.torch, self.gm, self.options = torch, gm, options
        inputs = [n for n in gm.graph.nodes if n.op == "placeholder"]
        self.static = [k for k, node in enumerate(inputs) if is_static(node)]
        self.numbers = [k for k, node in enumerate(inputs) if is_number(node)]
        self.dynamic = bool(self.numbers) or any(node.type is torch.SymInt for node in inputs)
        self._variants: dict[Any, Run] = {}
        self._only: Run | None = None
        self._turn = lock()

    def __call__(self, *args: Any) -> Any:
        if self._only is not None:
            return self._only(args)
        key = self._key(args) if self.dynamic else ()
        run = self._variants.get(key)
        if run is None:
            with self._turn:
                run = self._variants.get(key) or self._made(key, args)
        return run(args)

    def _key(self, args: Sequence[Any]) -> Any:
        tensor = self.torch.Tensor
        shapes = [(a.shape, a.stride()) if isinstance(a, tensor) else a for a in args]
        return (*shapes, *(args[k].item() for k in self.numbers))

    def _made(self, key: Any, args: Sequence[Any]) -> Run:
        if len(self._variants) >= _MOST_VARIANTS:
            _warn(f"a graph that was met with {_MOST_VARIANTS} shapes runs in PyTorch for others")
            return self._in_pytorch
        try:
            run = _compiled(self.torch, self.gm, self.static, self.numbers, args, self.options)
        except TilewrightError as error:
            _warn(f"a graph runs in PyTorch: {error}")
            run = self._in_pytorch
        self._variants[key] = run
        if not self.dynamic:
            self._only = run
        return run

    def _in_pytorch(self, args: Sequence[Any]) -> Any:
        return self.gm.forward(*args)


# -- building --------------------------------------------------------------------------------------


def _compiled(
    torch: Any, gm: Any, static: Sequence[int], numbers: Sequence[int], args: Sequence[Any],
    options: Options,
) -> Run:  # fmt: skip
    """The graph as a function of its arguments.  Raises TilewrightError where it cannot be made.

    static:  positions of weights
    numbers: positions of floats in a tensor, for which it is compiled as they are
    """
    module, held = lifted(torch, gm, {k: args[k].item() for k in numbers})
    whole = [*args, *held]
    fixed = [*static, *range(len(args), len(whole))]
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
    dynamic = [k for k in tensors if k not in fixed and k not in numbers]
    site = _Site(torch, where, target, options)
    if torch.is_autocast_enabled(where.type):
        cast_inside(torch, module, where.type, torch.get_autocast_dtype(where.type))
    key_of = partial(store.key, torch, gm, args, dynamic, target, options.log)
    key = key_of() if options.cache else None
    found = None if key is None or options.tune_minutes else store.load(key)
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
    watched = [whole[k] for k in kept if k >= len(args)]
    again = partial(_compiled, torch, gm, static, numbers, options=replace(options, frozen=True))
    return _watched(torch, run, [k for k in kept if k < len(args)], watched, args, again,
                    at_first=bool(writes))  # fmt: skip


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

    def built(self, program: Program) -> Library:
        mod, params = import_program(program, PLACE, staged=False)
        if self.options.log is not None and self.options.tune_minutes:
            self._tune(mod, params, Path(self.options.log))
        has_log = self.options.log is not None and Path(self.options.log).is_file()
        log = self.options.log if has_log else None
        return build(mod, self.target, params, log, verify=self.options.verify)

    def _tune(self, mod: IRModule, params: Mapping[str, Any], log: Path) -> None:
        with Database(log) as database:
            target = as_described(self.target)
            tasks = tasks_of([mod], params, target)
            if tasks:
                budget = report.Options(seconds=60 * self.options.tune_minutes)
                every = with_layouts(tasks, [mod], params, target, budget, rules=True)
                tune(every, database, budget).check()

    def loaded(self, library: Library, outputs: Sequence[Any], inputs: Sequence[int]) -> Run:
        """inputs: the position among the arguments of each input of the library."""
        stream = _stream(self.torch, self.where)
        caller = Caller(library.load_on(device(self.target, self.where.index or 0)), stream)
        copy = _copy_function(caller, stream)
        return _function(self.torch, caller, inputs, outputs, self.where, copy)


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
        library = site.built(program)
    except Blocked as error:
        if any(s.args.get("dense") is False for s in program.steps):
            raise  # it reads memory, which parts lay out in another way than PyTorch does
        _warn(f"some operators of a graph run in PyTorch: {error}")
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
    parts = parts_of(program, blocked)
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
        return _given(outputs, [values[name] for name in results], args)

    return run


def _part(site: _Site, part: Part, eager: Eager) -> Callable[[dict[str, Any]], None]:
    """Takes and gives values by name."""
    steps = eager.steps(part.program)
    if not part.compiled:
        return steps
    try:
        library = site.built(part.program)
        kinds = [("output", k) for k in range(len(part.program.outputs))]
        call = site.loaded(library, kinds, range(len(part.program.inputs)))
    except TilewrightError:  # such as: it computes nothing
        return steps
    inputs = [name for name, _ in part.program.inputs]
    outputs = [ref.name for ref in part.program.outputs]

    def run(values: dict[str, Any]) -> None:
        values.update(zip(outputs, call([values[name] for name in inputs]), strict=True))

    return run


# -- calling ---------------------------------------------------------------------------------------


def _function(
    torch: Any, caller: Caller, inputs: Sequence[int], outputs: Sequence[Any], where: Any,
    copy: Callable[[int, int, int], Any],
) -> Run:  # fmt: skip
    """The call, with everything bound that can be known before it."""
    turn, compute = caller.turn, caller.run
    puts = list(zip(inputs, caller.inputs, caller.staging, strict=True))
    makers = [
        (o.put, _maker(torch, o.spec.shape, getattr(torch, o.spec.dtype), where), o)
        for o in caller.outputs
    ]
    plain = [kind for kind, _ in outputs] == ["output"] * len(makers) and all(
        o.put is not None for o in caller.outputs
    )

    def run(args: Sequence[Any]) -> Any:
        with turn:
            kept, given = [], []  # until the kernels are enqueued
            for k, put, stage in puts:
                tensor = args[k]
                if not tensor.is_contiguous():
                    tensor = tensor.contiguous()
                    kept.append(tensor)
                pointer = tensor.data_ptr()
                if pointer % ALIGNMENT:
                    copy(stage.pointer, pointer, stage.nbytes)
                    pointer = stage.pointer
                put(pointer)
                given.append(pointer)
            made: list[Any] = []
            for place, make, _ in makers:
                tensor = make()
                if place is not None:
                    place(tensor.data_ptr())
                made.append(tensor)
            compute()
            if plain:
                return made
            for tensor, (place, _, output) in zip(made, makers, strict=True):
                if place is None:
                    source = output.memory.pointer
                    if output.same is not None:
                        source = made[output.same].data_ptr()
                    elif output.given is not None:
                        source = given[output.given]
                    copy(tensor.data_ptr(), source, tensor.nbytes)
            return _given(outputs, made, args)

    return run


def _given(outputs: Sequence[Any], made: Sequence[Any], args: Sequence[Any]) -> list[Any]:
    """What a graph returns, after it has written to its arguments.

    made: what was computed
    """

    def value(kind: str, item: Any) -> Any:
        return made[item] if kind == "output" else args[item] if kind == "input" else item

    given = [(kind, item) for kind, item in outputs if kind != "write"]
    found = [value(kind, item) for kind, item in given]
    written = [(item[0], value(*item[1:])) for kind, item in outputs if kind == "write"]
    for position, tensor in written:
        args[position].copy_(tensor)
    for k, (kind, item) in enumerate(given):
        if kind.endswith("_view"):
            which, shape, strides, offset = item
            base = args[which] if kind == "input_view" else found[which]
            found[k] = base.as_strided(shape, strides, base.storage_offset() + offset)
    return found


def _maker(torch: Any, shape: tuple[int, ...], kind: Any, where: Any) -> Callable[[], Any]:
    """Makes a new tensor.  PyTorch has a function for its own compilers that takes a third of the
    time of `torch.empty`, on CPUs."""
    quick = getattr(torch._C._dynamo.guards, "_empty_strided_cpu", None)
    if quick is None or where.type != "cpu":
        return partial(torch.empty, shape, dtype=kind, device=where)
    strides = tuple(math.prod(shape[k + 1 :]) for k in range(len(shape)))
    return partial(quick, shape, strides, kind)


def _stream(torch: Any, where: Any) -> Callable[[], int]:
    """The handle of the caller's current stream; a CPU has none."""
    if where.type != "cuda":
        return int
    return partial(torch._C._cuda_getCurrentRawStream, where.index or 0)


def _copy_function(caller: Caller, stream: Callable[[], int]) -> Callable[[int, int, int], Any]:
    """Copies bytes between addresses: target, source, how many."""
    driver = caller.device.driver
    if not hasattr(driver, "copy_between"):
        return ctypes.memmove
    between = driver.copy_between
    return lambda target, source, nbytes: between(target, source, nbytes, stream())


def _watched(
    torch: Any, run: Run, static: Sequence[int], own: Sequence[Any], args: Sequence[Any],
    again: Callable[[Sequence[Any]], Run], at_first: bool,
) -> Run:  # fmt: skip
    """`run`, built again when a weight is not what it was: another tensor, or written to.

    static, own: positions of weights among the arguments, and those that are none
    That is asked after a run, so that a GPU computes meanwhile; in the rare case it runs again.
    at_first: ask before, as a run cannot be repeated
    """
    held_on = tuple(own)
    quick = itemgetter(*static) if len(static) > 1 else None

    def weights(given: Sequence[Any]) -> tuple[Any, ...]:
        picked = quick(given) if quick else tuple(given[k] for k in static)
        return picked + held_on if held_on else picked

    if not weights(args):
        return run
    same, current = unchanged(torch, weights(args)), run

    def call(given: Sequence[Any]) -> Any:
        nonlocal same, current
        made = None if at_first else current(given)
        if same(held := weights(given)):
            return current(given) if at_first else made
        _warn("weights have changed, so the graph is compiled again")
        same = unchanged(torch, held)
        current = again(given)
        return current(given)

    return call


__all__ = ["Options", "TilewrightWarning", "backend", "register"]
