"""Passes under TVM's names: `relay.transform.FoldConstant()(mod)`, `Sequential([...])(mod)`.

In: options.  Out: objects that map a module to a module.  `relay.build` runs its own passes by
itself; these are for looking at what one of them does, and for what only some networks want.
Read next: `transform.py`, `graph/passes/__init__.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

from tilewright.base import context
from tilewright.base.doors import open_doors
from tilewright.base.dtype import FLOAT32
from tilewright.base.errors import ModelError
from tilewright.driver.build import resolve_target
from tilewright.graph.expr import Expr, Function, IRModule, Var
from tilewright.graph.pass_options import PassInfo
from tilewright.graph.passes import Pass as Change
from tilewright.graph.passes import (
    canonicalize,
    defuse,
    eliminate_common,
    eliminate_dead_code,
    flatten_atrous,
    separate,
    simplify_inference,
)
from tilewright.graph.passes.batch import with_batch
from tilewright.graph.passes.constants import compute_constants
from tilewright.graph.passes.inline import inline_calls
from tilewright.graph.passes.layouts import convert_layout, prefer_layouts
from tilewright.graph.passes.mixed_precision import to_mixed_precision
from tilewright.graph.traversal import each_function
from tilewright.targets.target import TargetLike
from tilewright_tvm.elsewhere import find
from tilewright_tvm.relay.functional import definitions
from tilewright_tvm.relay.functional.calls import used_functions
from tilewright_tvm.relay.functional.eta import eta_expand
from tilewright_tvm.relay.functional.lift import lambda_lift
from tilewright_tvm.relay.functional.nodes import GeneralFunction
from tilewright_tvm.relay.functional.typed import typed_program
from tilewright_tvm.relay.functional.untyped import typed
from tilewright_tvm.relay.gradients.backward import gradient
from tilewright_tvm.relay.op_attributes import has_attribute
from tilewright_tvm.relay.patterns.matching import DFPattern
from tilewright_tvm.relay.patterns.of_expression import pattern_of
from tilewright_tvm.relay.patterns.partition import partition
from tilewright_tvm.relay.transform.expressions import numbers_for_tensors, simplify_expressions
from tilewright_tvm.relay.transform.fusion import LONGEST, fuse_operators
from tilewright_tvm.relay.transform.inlined import inline_marked
from tilewright_tvm.relay.transform.legalize import alter_layouts, canonicalize_casts, legalize
from tilewright_tvm.relay.transform.padding import fold_explicit_padding
from tilewright_tvm.relay.transform.parallel import (
    combine_parallel_batch_matmul,
    combine_parallel_conv2d,
    combine_parallel_dense,
)
from tilewright_tvm.relay.transform.retyped import recast
from tilewright_tvm.relay.transform.scale_axis import fold_backward, fold_forward
from tilewright_tvm.transform import (
    FunctionPass,
    ModulePass,
    Pass,
    PassContext,
    PrintIR,
    Sequential,
    function_pass,
    module_pass,
)

__all__ = [
    "AlterOpLayout", "AnnotateSpans", "BackwardFoldScaleAxis", "CanonicalizeCast",
    "CanonicalizeOps", "ChangeBatch", "CombineParallelBatchMatmul", "CombineParallelConv2D",
    "CombineParallelDense", "ConvertLayout", "DeadCodeElimination", "DefuseOps", "DynamicToStatic",
    "EliminateCommonSubexpr", "EtaExpand", "FakeQuantizationToInteger", "FirstOrderGradient",
    "FlattenAtrousConv", "FoldConstant", "FoldExplicitPadding", "FoldScaleAxis",
    "ForwardFoldScaleAxis", "FunctionPass", "FuseOps", "InferType", "InferTypeLocal", "Inline",
    "LambdaLift", "LazyGradientInit", "Legalize", "MergeComposite", "ModulePass", "PartialEvaluate",
    "PrintIR", "RemoveUnusedFunctions", "Sequential", "SimplifyExpr", "SimplifyInference",
    "ToMixedPrecision", "function_pass", "gradient", "module_pass", "recast",
]  # fmt: skip


@dataclass(frozen=True)
class RelayPass(Pass):
    """A pass of this file: `CHANGES` in order, at `OPT_LEVEL` of TVM."""

    OPT_LEVEL: ClassVar[int] = 0
    CHANGES: ClassVar[tuple[Change, ...]] = ()
    FUNCTIONAL: ClassVar[bool] = False  # whether it is for functional functions, too

    @property
    def info(self) -> PassInfo:
        return PassInfo(type(self).__name__, self.OPT_LEVEL)

    def change(self, mod: IRModule) -> IRModule:
        for change in self.CHANGES:
            mod = change(mod)
        return mod

    def _changed(self, mod: IRModule) -> IRModule:
        """Functions that are more than operators stay as they are, where the pass is not for
        them."""
        kept = {n: f for n, f in mod.functions.items() if isinstance(f, GeneralFunction)}
        if self.FUNCTIONAL or not kept:
            return super()._changed(mod)
        ordinary = {n: f for n, f in mod.functions.items() if n not in kept}
        made = super()._changed(mod.with_functions(ordinary))
        return mod.with_functions({**made.functions, **kept})


class InferType(RelayPass):
    """Variables without a type get the one that their operators tell, parameters of functions that
    of what callers give; other types are known as soon as a graph is built.  Functional functions
    are checked by unification.

    Raises ModelError that names the variables that have none.
    """

    FUNCTIONAL = True

    def change(self, mod: IRModule) -> IRModule:
        return each_function(
            mod, lambda f: typed_program(f) if isinstance(f, GeneralFunction) else typed(f)
        )


class AnnotateSpans(RelayPass):
    """Where things are in a source text is not kept, errors name operators and arguments instead:
    this gives the module back."""

    FUNCTIONAL = True


def InferTypeLocal(expr: Expr) -> Any:
    """The type of an expression, as `expr.checked_type`.

    Raises ModelError where its parts do not fit together, or do not tell it.
    """
    return expr.checked_type


class SimplifyInference(RelayPass):
    """Batch norms become scales and shifts; dropout disappears."""

    CHANGES = (simplify_inference,)


class CanonicalizeOps(RelayPass):
    """One spelling of everything: bias_add is an addition, a constant comes second, ..."""

    OPT_LEVEL, CHANGES = 3, (canonicalize,)


class FoldConstant(RelayPass):
    """What depends on constants only is computed now."""

    OPT_LEVEL, CHANGES = 2, (compute_constants,)


class FoldScaleAxis(RelayPass):
    """Scales of channels move into weights, from behind and from in front; what then depends on
    constants only is computed."""

    OPT_LEVEL = 3
    CHANGES = (fold_backward, fold_forward, compute_constants)


class ForwardFoldScaleAxis(RelayPass):
    """Scales in front of convolutions and dense layers move into their weights."""

    OPT_LEVEL, CHANGES = 3, (fold_forward,)


class BackwardFoldScaleAxis(RelayPass):
    """Scales behind convolutions and dense layers move into their weights."""

    OPT_LEVEL, CHANGES = 3, (fold_backward,)


class FoldExplicitPadding(RelayPass):
    """Padding in front of convolutions and poolings becomes theirs."""

    CHANGES = (fold_explicit_padding,)


@dataclass(frozen=True)
class FakeQuantizationToInteger(RelayPass):
    """What stands between `qnn.dequantize` and `qnn.quantize` is computed on integers, where all
    its operators have a rule for that.

    hard_fail: raise ModelError where one has none
    use_qat, optional_qnn_ops: accepted; what is quantised is found by its operators
    """

    hard_fail: bool = False
    use_qat: bool = False
    optional_qnn_ops: Sequence[str] | None = None

    def change(self, mod: IRModule) -> IRModule:
        from tilewright_tvm.relay.qnn.integers import to_integers

        return to_integers(mod, self.hard_fail)


@dataclass(frozen=True)
class MergeComposite(RelayPass):
    """Parts that match patterns become functions with the attribute "Composite".

    pattern_table: (name, pattern) or (name, pattern, check) for each, the first ones first; check:
        of a part, whether it is taken.  An expression is a pattern, too: its variables are
        anything, its operators have any attributes
    """

    pattern_table: Sequence[tuple[Any, ...]]

    def change(self, mod: IRModule) -> IRModule:
        for name, pattern, *check in self.pattern_table:
            if isinstance(pattern, Expr):
                pattern = pattern_of(pattern)
            if not isinstance(pattern, DFPattern):
                raise ModelError(
                    f"MergeComposite({name!r})", f"a {type(pattern).__name__} is no pattern",
                    "Make it with relay.dataflow_pattern: is_op(...)(wildcard(), ...).",
                )  # fmt: skip
            mod = each_function(mod, _composite(str(name), pattern, *check))
        return mod


def _composite(
    name: str, pattern: DFPattern, check: Callable[[Expr], bool] = lambda part: True
) -> Callable[[Function], Function]:
    def change(function: Function) -> Function:
        made = partition(pattern, function, {"Composite": name}, check)
        assert isinstance(made, Function)
        return made

    return change


class CanonicalizeCast(RelayPass):
    """A cast to a wider type that several values read becomes one for each of them."""

    OPT_LEVEL, CHANGES = 3, (canonicalize_casts,)


class DynamicToStatic(RelayPass):
    """Shapes are numbers as soon as a graph is made of numbers: this gives the module back."""

    OPT_LEVEL = 3


class FlattenAtrousConv(RelayPass):
    """Convolutions between blocks in the batch and blocks in space become dilated ones."""

    OPT_LEVEL, CHANGES = 3, (flatten_atrous,)


class FirstOrderGradient(RelayPass):
    """Each function becomes the one that `gradient` makes of it."""

    def change(self, mod: IRModule) -> IRModule:
        return each_function(mod, gradient)


class Inline(RelayPass):
    """Each call of a function with the attribute "Inline" becomes what the function computes.  A
    build does so with all functions."""

    OPT_LEVEL, CHANGES = 1, (inline_marked,)


@dataclass(frozen=True)
class Legalize(RelayPass):
    """Calls become what functions make of them that were registered with
    `relay.op.register_legalize`.

    legalize_map_attr_name: the attribute of operators that holds these functions
    """

    OPT_LEVEL = 1
    legalize_map_attr_name: str = "FTVMLegalize"

    def change(self, mod: IRModule) -> IRModule:
        return legalize(mod, self.legalize_map_attr_name)


class LazyGradientInit(RelayPass):
    """Tensors of zeros and ones, which gradients begin with, become numbers or disappear."""

    OPT_LEVEL, CHANGES = 1, (numbers_for_tensors,)


class LambdaLift(RelayPass):
    """Functions inside others become functions of the module, called lifted_0, lifted_1, ...; what
    they read of the function around them becomes parameters of a function that gives them."""

    FUNCTIONAL = True
    CHANGES = (lambda_lift,)


@dataclass(frozen=True)
class EtaExpand(RelayPass):
    """Constructors, and names of functions, that are values become functions that call them.

    expand_constructor, expand_global_var: which of the two
    """

    FUNCTIONAL = True
    OPT_LEVEL = 1
    expand_constructor: bool = False
    expand_global_var: bool = False

    def change(self, mod: IRModule) -> IRModule:
        return eta_expand(mod, self.expand_constructor, self.expand_global_var)


class SimplifyExpr(RelayPass):
    """Operators that do nothing disappear, chains of casts, limits, moves and constants join."""

    CHANGES = (simplify_expressions,)


@dataclass(frozen=True)
class DeadCodeElimination(RelayPass):
    """Operators that do nothing disappear, with what only they read.

    inline_once: has no more to do: `relay.Let` puts a value where it is read in any case
    """

    inline_once: bool = False
    OPT_LEVEL, CHANGES = 1, (eliminate_dead_code,)


class DefuseOps(RelayPass):
    """`FuseOps` undone: fused functions become their operators."""

    OPT_LEVEL, CHANGES = 3, (defuse,)


class PartialEvaluate(RelayPass):
    """What is known is evaluated: calls of functions become what these compute, and what depends on
    constants only its value."""

    OPT_LEVEL, CHANGES = 1, (inline_calls, compute_constants)


@dataclass(frozen=True)
class RemoveUnusedFunctions(RelayPass):
    """A module of the functions `entry_functions`, and those that they call by name."""

    FUNCTIONAL = True
    entry_functions: Sequence[str] = ("main",)

    def change(self, mod: IRModule) -> IRModule:
        used = used_functions(mod, self.entry_functions)
        return mod.with_functions({n: f for n, f in mod.functions.items() if n in used})


@dataclass(frozen=True)
class EliminateCommonSubexpr(RelayPass):
    """What is computed twice from the same values is computed once.

    fskip: of a call, whether it stays by itself
    """

    OPT_LEVEL = 3
    fskip: Callable[[Expr], bool] | None = None

    def change(self, mod: IRModule) -> IRModule:
        return eliminate_common(mod, self.fskip)


@dataclass(frozen=True)
class FuseOps(RelayPass):
    """Groups of operators that TVM makes one kernel of are functions of their own, with the
    attribute `Primitive`.  `relay.build` makes its own groups of what is in them.

    fuse_opt_level: below 2 each operator is a group; -1: that of the current PassContext
    """

    fuse_opt_level: int = -1

    def change(self, mod: IRModule) -> IRModule:
        level = self.fuse_opt_level
        level = PassContext.current().opt_level if level < 0 else level
        if level < 2:
            return separate(mod)
        longest = (PassContext.current().config or {}).get("relay.FuseOps.max_depth", LONGEST)
        return fuse_operators(mod, int(longest))


@dataclass(frozen=True)
class ChangeBatch(RelayPass):
    """Main for another batch size.

    data: the inputs that have a batch -> the axis that it runs along, which is the first
    Raises ModelError for another axis, or where the network fixes its batch size.
    """

    data: Mapping[Var, int] = field(default_factory=dict)
    batch_size: int = 16

    def change(self, mod: IRModule) -> IRModule:
        main, place = mod["main"], f"ChangeBatch(batch_size={self.batch_size})"
        names = {v.name_hint for v in self.data}
        if not names or any(self.data.values()) or any(v not in main.params for v in self.data):
            raise ModelError(
                place, "data is no dict of inputs of main with the axis of their batch, which is 0",
                'Example: ChangeBatch({mod["main"].params[0]: 0}, batch_size=8).',
            )  # fmt: skip
        bound = [p.name_hint for p in main.params if p.name_hint not in names]
        return definitions.IRModule(
            {**mod.functions, "main": with_batch(main, self.batch_size, bound)}
        )


@dataclass(frozen=True)
class CombineParallelConv2D(RelayPass):
    """Convolutions of one value become one; at least `min_num_branches` of them."""

    OPT_LEVEL = 4
    min_num_branches: int = 3

    def change(self, mod: IRModule) -> IRModule:
        return combine_parallel_conv2d(mod, self.min_num_branches)


@dataclass(frozen=True)
class CombineParallelDense(RelayPass):
    """Dense layers of one value become one; at least `min_num_branches` of them.

    to_batch: those of equal size become a batch_matmul; else any become one wide dense layer
    """

    OPT_LEVEL = 4
    min_num_branches: int = 3
    to_batch: bool = True

    def change(self, mod: IRModule) -> IRModule:
        return combine_parallel_dense(mod, self.min_num_branches, self.to_batch)


@dataclass(frozen=True)
class CombineParallelBatchMatmul(RelayPass):
    """Products of one batch become one; at least `min_num_branches` of them."""

    OPT_LEVEL = 4
    min_num_branches: int = 3

    def change(self, mod: IRModule) -> IRModule:
        return combine_parallel_batch_matmul(mod, self.min_num_branches)


@dataclass(frozen=True)
class ConvertLayout(RelayPass):
    """Operators get the layouts that they are given, and others follow where they can.

    desired_layouts: {"nn.conv2d": ["NHWC", "default"]}: of the data and of the kernel; in blocks of
        channels ["NCHW8c", "default"], where channels that fill no whole blocks stay as they are,
        and convolutions in groups that are not depthwise.  Of a pooling ["NHWC"]
    Raises ModelError for a layout that an operator cannot have.
    """

    OPT_LEVEL = 3
    desired_layouts: Mapping[str, Sequence[str]]

    def change(self, mod: IRModule) -> IRModule:
        return convert_layout(mod, self.desired_layouts)


@dataclass(frozen=True)
class AlterOpLayout(RelayPass):
    """Convolutions in the layout that kernels of a target prefer: for CPUs in blocks of as many
    channels as a vector holds; for GPUs as they are.  Where functions were registered with
    `relay.op.register_alter_op_layout`, they say instead what calls become.

    target: default: that of the innermost `with target:`; without one layouts stay as they are
    """

    OPT_LEVEL = 3
    target: TargetLike | None = None

    def change(self, mod: IRModule) -> IRModule:
        if has_attribute("FTVMAlterOpLayout"):
            return alter_layouts(mod, "FTVMAlterOpLayout")
        if self.target is None and context.current("target") is None:
            return mod
        target = resolve_target(self.target)
        if target.has_threads:
            return mod
        layout = f"NCHW{target.limits.vector_bytes // FLOAT32.bytes}c"
        return prefer_layouts(mod, lambda node: layout)


@dataclass(frozen=True)
class ToMixedPrecision(RelayPass):
    """Contractions and what follows them in `mixed_precision_type`: "float16" or "bfloat16".

    Sums accumulate in float32; softmax, exponentials and means stay in float32.  The option
    ``relay.ToMixedPrecision.keep_orig_output_dtype`` of a `PassContext` casts results back.
    missing_op_mode: accepted for TVM's spelling; every operator has a rule
    """

    mixed_precision_type: str = "float16"
    missing_op_mode: int = 1

    def change(self, mod: IRModule) -> IRModule:
        options = PassContext.current().config or {}
        keep = bool(options.get("relay.ToMixedPrecision.keep_orig_output_dtype", False))
        return to_mixed_precision(mod, self.mixed_precision_type, keep)


_ELSEWHERE = dict.fromkeys(
    (
        "AnnotateTarget", "MergeCompilerRegions", "PartitionGraph", "ToANormalForm",
        "ToBasicBlockNormalForm", "ToGraphNormalForm",
    ),
    "relay.build runs its passes by itself; relay.optimize applies them, relay.PASSES lists them.",
) | {
    "Defunctionalization": "Leave it out: relay.create_executor evaluates functions as values, "
    "and PartialEvaluate calls those that are known.",
    "FastMath": "Leave it out: exp, tanh and erf are fast and exact to their last digits.",
    **dict.fromkeys(
        ("SplitArgs", "FlattenNestedTuples", "LabelOps", "PlanDevices", "InlineComposites",
         "AutoSchedulerLayoutRewrite", "MetaScheduleLayoutRewrite", "SimplifyFCTranspose",
         "SimplifyExprPostAlterOp", "RemoveStandaloneReshapes", "CapturePostDfsIndexInSpans"),
        "relay.build runs its passes by itself; relay.optimize applies them, relay.PASSES lists "
        "them.",
    ),
    "Conv2dToSparse": "Sparse weights are not there; dense ones are packed.",
    "Conv2dToSparse2": "Sparse weights are not there; dense ones are packed.",
    "CollagePartition": "relay.build chooses by measured records; there are no others to ask.",
    "infer_layout_utils": "Leave it out: every operator follows its inputs' layouts.",
}  # fmt: skip


def __getattr__(name: str) -> Any:
    return find("tilewright_tvm.relay.transform", name, _ELSEWHERE)


open_doors(globals(), ("InferTypeLocal",), ModelError)
_OWN = [n for n, v in dict(globals()).items() if isinstance(v, type) and issubclass(v, RelayPass)]
open_doors(globals(), _OWN, ModelError)
