"""The options of the innermost `transform.PassContext` as a value, for builds; `relay.build` and
`relay.optimize` with them, as TVM has them.

In: a context, in TVM's words.  Out: `PassOptions`, in ours.
Read next: `graph/pass_options.py`, `network/build.py`, `../transform.py`.
"""

from __future__ import annotations

import difflib
import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar, cast

from tilewright.base.errors import ModelError
from tilewright.graph import passes as compiler_passes
from tilewright.graph.expr import Function, IRModule
from tilewright.graph.open import OpenModule
from tilewright.graph.pass_options import Instrument, PassInfo, PassOptions
from tilewright.graph.passes import PASSES, Pass
from tilewright.network import build as compiler
from tilewright.runtime.network.library import Library
from tilewright.targets.target import Target, TargetLike
from tilewright_tvm.relay.backend import Executor, Runtime
from tilewright_tvm.relay.transform.fusion import unfused
from tilewright_tvm.transform import PassContext

F = TypeVar("F", bound=Callable[..., Any])
_DEVICES = {1: "cpu", 2: "cuda", 4: "opencl"}
_FIRST = ("mod", "target")  # arguments of `build` that have always been the first

# Of TVM's passes those that a build runs, by what `PassContext(disabled_pass=)` calls them,
_RUN = {
    "CanonicalizeOps": ("canonicalize",),
    "FlattenAtrousConv": ("flatten_atrous",),
    "FoldConstant": ("fold_constants",),
    "FoldScaleAxis": ("fold_shift", "fold_scale_after", "fold_scale_before"),
    "BackwardFoldScaleAxis": ("fold_scale_after",),
    "ForwardFoldScaleAxis": ("fold_scale_before",),
    "SimplifyExpr": ("drop_empty", "eliminate_dead_code"),
    "DeadCodeElimination": ("eliminate_dead_code",),
    "FuseOps": ("fuse",),
    # those that it runs where `PassContext(required_pass=)` asks for them,
    "EliminateCommonSubexpr": ("eliminate_common",),
    "CombineParallelBatchMatmul": ("combine_parallel_batch_matmul",),
    "CombineParallelConv2D": ("combine_parallel_conv2d",),
    "CombineParallelDense": ("combine_parallel_dense",),
}
# those without which there are no kernels,
_NEEDED = {"Inline": "inline_calls", "SimplifyInference": "simplify_inference"}
# and those that it has not, so that they are disabled as it is.
_NEVER = (
    "AlterOpLayout", "AnnotateSpans", "AnnotateTarget", "AutoSchedulerLayoutRewrite",
    "ConvertLayout", "DefuseOps", "DynamicToStatic", "EtaExpand",
    "FastMath", "FirstOrderGradient", "LambdaLift", "LazyGradientInit", "Legalize", "ManifestAlloc",
    "ManifestLifetimes", "MemoryPlan", "MetaScheduleLayoutRewrite", "PartialEvaluate",
    "PartitionGraph", "PlanDevices",
    "SimplifyFCTranspose", "SplitArgs", "ToANormalForm", "ToMixedPrecision", "qnn.Legalize",
    "tir.CommonSubexprElimTIR", "tir.HoistIfThenElse", "tir.LoopPartition",
)  # fmt: skip
_TITLES = {own[0]: name for name, own in _RUN.items() if len(own) == 1}
_TITLES |= {own: name for name, own in _NEEDED.items()}


def pass_options() -> PassOptions:
    """Give the options of the innermost `PassContext`.

    Raises ModelError for a name of no pass, or of one that there is not.
    """
    inside = PassContext.current()
    disabled = tuple(inside.disabled_pass or ())
    return PassOptions(
        inside.opt_level,
        tuple(own for name in inside.required_pass or () for own in _named(name, "required_pass")),
        tuple(own for name in disabled for own in _named(name, "disabled_pass")),
        "AlterOpLayout" not in disabled,
        tuple(_Titled(each) for each in inside.instruments or ()),
    )


def _named(name: str, option: str) -> Sequence[str]:
    if name in _RUN:
        return _RUN[name]
    if name in (_NEVER if option == "disabled_pass" else _NEEDED):
        return ()  # it is so anyway
    place = f"PassContext({option}=[{name!r}])"
    if name in _NEEDED:
        raise ModelError(place, "no kernel can be made without it", "Leave it out.")
    near = difflib.get_close_matches(name, _RUN, 3) or list(_RUN)
    reason = "relay.build has no such pass" if name in _NEVER else "there is no such pass"
    raise ModelError(place, reason, f"Use {', '.join(near)}.")


@dataclass(frozen=True)
class _Titled:
    """An instrument that is told of our passes by TVM's names, where there are some."""

    inner: Any

    def should_run(self, mod: IRModule, info: PassInfo) -> bool:
        ask = getattr(self.inner, "should_run", None)
        return ask is None or bool(ask(mod, _titled(info)))

    def run_before_pass(self, mod: IRModule, info: PassInfo) -> None:
        self.inner.run_before_pass(mod, _titled(info))

    def run_after_pass(self, mod: IRModule, info: PassInfo) -> None:
        self.inner.run_after_pass(mod, _titled(info))


def _titled(info: PassInfo) -> PassInfo:
    return replace(info, name=_TITLES.get(info.name, info.name))


def instruments() -> Sequence[Instrument]:
    """Give those of the innermost `PassContext`."""
    return [_Titled(each) for each in PassContext.current().instruments or ()]


def _as_before(function: F) -> F:
    """`function`, also with the host in front of the weights, as TVM had them."""

    @functools.wraps(function)
    def ordered(*args: Any, **options: Any) -> Any:
        if len(args) > len(_FIRST) and isinstance(args[len(_FIRST)], (str, Target)):
            given = zip((*_FIRST, "target_host", "params"), args, strict=False)
            return function(**dict(given), **options)
        return function(*args, **options)

    return cast(F, ordered)


@_as_before
def build(
    mod: IRModule | Function | Sequence[IRModule | Function],
    target: TargetLike | None = None,
    params: Mapping[str, Any] | TargetLike | None = None,
    schedules: Any = None,
    target_host: TargetLike | None = None,
    *,
    verify: bool = True,
    batch_sizes: Sequence[int] | None = None,
    sizes: Sequence[Mapping[str, int]] | None = None,
    partial_batches: bool = False,
    executor: Executor | None = None,
    runtime: Runtime | None = None,
    use_knowledge: bool = True,
    states: Mapping[str, int | compiler.State] | None = None,
    bounds: Mapping[str, tuple[int, int]] | None = None,
) -> Library:
    """Compile a network; arguments and errors that are not here are those of `compile.build`.

    states: inputs that stay on the device from run to run, by name: the number of the result that
            each becomes, if it begins as zeros, else a `State`

    schedules: the path of a log, or several; default: what `with autotvm.apply_history_best(log):`
               entered
    executor, runtime: what scripts for TVM pass on; `relay.backend` refuses those there are not

    A target in the place of `params` is `target_host`, which stood there up to TVM 0.9, with
    `params` behind it.

    `transform.PassContext` counts: with opt_level below 3 nothing is folded into weights, below 2
    nothing is fused; so do passes that it disables or requires by name.
    """
    if isinstance(params, (str, Target)):  # by its name, which says what it is
        raise ModelError("relay.build(params=)", "it is a target", "Give target_host=.")
    kept = {n: compiler.State(s) if isinstance(s, int) else s for n, s in (states or {}).items()}
    return compiler.build(
        _without_groups(mod), _by_device(target), params, schedules, target_host, verify=verify,
        batch_sizes=batch_sizes, sizes=sizes, partial_batches=partial_batches,
        use_knowledge=use_knowledge, pass_options=pass_options(), bounds=bounds,
        states=kept,
    )  # fmt: skip


def _by_device(target: Any) -> Any:
    """Targets by devices, whose numbers TVM used for names."""
    if not isinstance(target, Mapping):
        return target
    by_number: dict[Any, Any] = {getattr(k, "value", k): v for k, v in target.items()}
    return {_DEVICES.get(k, k): v for k, v in by_number.items()}


def _without_groups(mod: Any) -> Any:
    """What `transform.FuseOps` put into functions is operators again: builds have their groups."""
    if isinstance(mod, (list, tuple)):
        return [_without_groups(each) for each in mod]
    if isinstance(mod, Function):
        return _without_groups(IRModule({"main": mod}))["main"]
    has_groups = isinstance(mod, IRModule) and not isinstance(mod, OpenModule)
    return unfused(mod) if has_groups else mod  # one with open extents has no functions yet


def optimize(
    mod: IRModule | Function,
    params: Mapping[str, Any] | None = None,
    passes: Sequence[Pass] = PASSES,
    observe: Callable[[str, IRModule], None] | None = None,
) -> IRModule:
    """Make `params` (arrays by name) constants of `mod`, and apply every pass in order.

    Instruments of the innermost `transform.PassContext` are told of each, by TVM's name for it
    where there is one.
    observe: called with the name of each pass and its result.
    """
    return compiler_passes.optimize(mod, params, passes, observe, instruments())
