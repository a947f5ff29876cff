"""The backend of `torch.compile`: `torch.compile(model, backend="tilewright")`, for inference.

In: graphs of PyTorch's and, at their first call, their arguments.  Out: a function that calls a
compiled network on the tensors' own memory.  What cannot be compiled runs as it did, with one
warning.  Needs PyTorch.  Read next: `export.py`, `../../../runtime/network/caller.py`, `store.py`.
"""

from __future__ import annotations

import ctypes
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from operator import attrgetter, itemgetter
from pathlib import Path
from typing import Any

from tilewright.base.concurrency import lock
from tilewright.base.errors import ModelError, TilewrightError
from tilewright.relay.compile.build import build
from tilewright.relay.compile.tune import tune
from tilewright.relay.exchange.torch import store
from tilewright.relay.exchange.torch.export import as_numpy, dtype_name, read, torch_module
from tilewright.relay.exchange.torch.importer import import_program
from tilewright.relay.exchange.torch.program import Program
from tilewright.relay.graph.expr import Array, IRModule
from tilewright.runtime.device import device
from tilewright.runtime.drivers import ALIGNMENT
from tilewright.runtime.network.caller import Caller
from tilewright.runtime.network.library import Library
from tilewright.targets.target import Target, TargetLike

PLACE = 'torch.compile(backend="tilewright")'
_KINDS = {"cpu": "llvm", "cuda": "cuda"}
_MOST_VARIANTS = 32  # shapes of one graph


class TilewrightWarning(UserWarning):
    """Something runs in PyTorch, not in Tilewright."""


@dataclass(frozen=True)
class Options:
    """What `torch.compile(options=)` may hold.

    log:          path of a log of tuning results; `tune_minutes` adds to it
    tune_minutes: to tune each new graph for, before it is built
    target:       default: the device of the inputs
    frozen:       weights never change after the first call, so calls need not look
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
        self.static = [
            k for k, node in enumerate(n for n in gm.graph.nodes if n.op == "placeholder")
            if "_dynamo_static_input_type" in (node.meta.get("tensor_dict") or {})
        ]  # fmt: skip
        self.dynamic = any(n.op == "placeholder" and n.type is torch.SymInt for n in gm.graph.nodes)
        self._variants: dict[Any, Callable[..., Any]] = {}
        self._only: Callable[..., Any] | None = None
        self._turn = lock()

    def __call__(self, *args: Any) -> Any:
        if self._only is not None:
            return self._only(*args)
        key = self._key(args) if self.dynamic else ()
        run = self._variants.get(key)
        if run is None:
            with self._turn:
                run = self._variants.get(key) or self._made(key, args)
        return run(*args)

    def _key(self, args: Sequence[Any]) -> Any:
        return tuple(a.shape if isinstance(a, self.torch.Tensor) else a for a in args)

    def _made(self, key: Any, args: Sequence[Any]) -> Callable[..., Any]:
        run: Callable[..., Any]
        if len(self._variants) >= _MOST_VARIANTS:
            _warn(f"a graph that was met with {_MOST_VARIANTS} shapes runs in PyTorch for others")
            return self.gm.forward  # type: ignore[no-any-return]
        try:
            run = _compiled(self.torch, self.gm, self.static, args, self.options)
        except TilewrightError as error:
            _warn(f"a graph runs in PyTorch: {error}")
            run = self.gm.forward
        self._variants[key] = run
        if not self.dynamic:
            self._only = run
        return run


# -- building --------------------------------------------------------------------------------------


def _compiled(
    torch: Any, gm: Any, static: Sequence[int], args: Sequence[Any], options: Options
) -> Callable[..., Any]:
    """The graph as a function of its arguments.  Raises TilewrightError where it cannot be made."""
    tensors = [a for a in args if isinstance(a, torch.Tensor)]
    devices = {a.device for a in tensors}
    if len(devices) != 1 or (where := next(iter(devices))).type not in _KINDS:
        raise ModelError(PLACE, f"its inputs are on {', '.join(map(str, devices)) or 'no device'}",
                         "Inputs must be on one CPU or CUDA device.")  # fmt: skip
    chosen = options.target or _KINDS[where.type]
    target = chosen if isinstance(chosen, Target) else Target(chosen)
    if target.kind != _KINDS[where.type]:
        raise ModelError(PLACE, f"the target is {target.kind}, the inputs are on {where}",
                         "Leave target out, or move the inputs.")  # fmt: skip
    dynamic = [k for k, a in enumerate(args) if isinstance(a, torch.Tensor) and k not in static]
    library, outputs = _library(torch, gm, args, dynamic, target, options)
    dev = device(target, where.index or 0)
    caller = Caller(library.load_on(dev))
    run = _function(torch, caller, dynamic, outputs, where)
    if options.frozen or not static:
        return run
    return _watched(torch, gm, run, static, args, options)


def _library(
    torch: Any, gm: Any, args: Sequence[Any], dynamic: Sequence[int], target: Target,
    options: Options,
) -> tuple[Library, list[Any]]:  # fmt: skip
    """The compiled graph, from disk where it was kept there, and what it returns: positions of the
    library's outputs, or values."""
    key = store.key(torch, gm, args, dynamic, target, options.log) if options.cache else None
    if key is not None and not options.tune_minutes and (found := store.load(key)) is not None:
        return found
    mod, params, outputs = _network(torch, gm, args, dynamic)
    if options.log is not None and options.tune_minutes:
        tune(mod, params, target, Path(options.log), 60 * options.tune_minutes)
        key = store.key(torch, gm, args, dynamic, target, options.log) if key else None
    log = options.log if options.log is not None and Path(options.log).is_file() else None
    library = build(mod, target, params, log, verify=options.verify)
    if key is not None:
        store.keep(key, library, outputs)
    return library, outputs


def _network(
    torch: Any, gm: Any, args: Sequence[Any], dynamic: Sequence[int]
) -> tuple[IRModule, dict[str, Array], list[Any]]:
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            ep = torch.export.export(gm, tuple(args), strict=False)
        except Exception as error:
            reason = (str(error).strip().splitlines() or [type(error).__name__])[0]
            raise ModelError(PLACE, f"torch.export refuses it: {reason[:300]}") from error
    program = read(ep, PLACE)
    names = iter(program.inputs)
    given = {k: next(names) for k, a in enumerate(args) if isinstance(a, torch.Tensor)}
    weights = {name: as_numpy(args[k]) for k, (name, _) in given.items() if k not in dynamic}
    positions: list[Any] = []
    computed: list[Any] = []
    for value in program.outputs:
        is_value = value is None or isinstance(value, (bool, int, float))
        positions.append(("value", value) if is_value else ("output", len(computed)))
        computed += [] if is_value else [value]
    program = Program(
        tuple(given[k] for k in dynamic), {**program.weights, **weights}, program.steps,
        tuple(computed),
    )  # fmt: skip
    return *import_program(program, PLACE), positions


# -- calling ---------------------------------------------------------------------------------------


def _function(
    torch: Any, caller: Caller, dynamic: Sequence[int], outputs: Sequence[Any], where: Any
) -> Callable[..., Any]:
    """The call, with everything that can be known before it bound already."""
    empty, turn, run_on = torch.empty, caller.turn, caller.run_on
    stream = _stream(torch, where)
    memcpy = _copy_function(caller, stream)
    puts = list(zip(dynamic, caller.inputs, caller.staging, strict=True))
    results = [(o.put, o.spec.shape, getattr(torch, o.spec.dtype), o) for o in caller.outputs]
    plain = [kind for kind, _ in outputs] == ["output"] * len(results) and all(
        o.put is not None for o in caller.outputs
    )

    def run(*args: Any) -> Any:
        with turn:
            kept = []
            for k, put, stage in puts:
                tensor = args[k]
                if not tensor.is_contiguous():
                    tensor = tensor.contiguous()
                    kept.append(tensor)
                pointer = tensor.data_ptr()
                if pointer % ALIGNMENT:
                    memcpy(stage.pointer, pointer, stage.nbytes)
                    pointer = stage.pointer
                put(pointer)
            made: list[Any] = []
            for place, shape, kind, output in results:
                if output.same is not None:
                    made.append(made[output.same].view(shape))
                    continue
                tensor = empty(shape, dtype=kind, device=where)
                made.append(tensor)
                if place is not None:
                    place(tensor.data_ptr())
            run_on(stream())
            if plain:
                return made
            for tensor, (place, _, _, output) in zip(made, results, strict=True):
                if place is None and output.same is None:
                    memcpy(tensor.data_ptr(), output.memory.pointer, tensor.nbytes)
            return [made[v] if kind == "output" else v for kind, v in outputs]

    return run


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
    torch: Any, gm: Any, run: Callable[..., Any], static: Sequence[int], args: Sequence[Any],
    options: Options,
) -> Callable[..., Any]:  # fmt: skip
    """`run`, built again when a weight is not what it was: another tensor, or written to."""
    pick: Any = itemgetter(*static) if len(static) > 1 else lambda a: (a[static[0]],)
    address = torch.Tensor.data_ptr
    version: Any = attrgetter("_version")
    if any(t.is_inference() for t in pick(args)):  # which count no writes
        version = address
    known = [list(map(address, pick(args))), list(map(version, pick(args)))]
    current = [run]

    def call(*given: Any) -> Any:
        weights = pick(given)
        if list(map(version, weights)) != known[1] or list(map(address, weights)) != known[0]:
            _warn("weights have changed, so the graph is compiled again")
            known[:] = [list(map(address, weights)), list(map(version, weights))]
            unwatched = replace(options, frozen=True)
            current[0] = _compiled(torch, gm, static, given, unwatched)
        return current[0](*given)

    return call


__all__ = ["Options", "TilewrightWarning", "backend", "dtype_name", "register"]
