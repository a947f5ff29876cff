"""Networks as graphs: build or import one, simplify and fuse it, evaluate or export it.

In: operators under TVM's names, or an ONNX file.  Out: an `IRModule` and its parameters, a
compiled `Library`.
Read next: `expr.py`, `op/__init__.py` (the operator table), `passes/__init__.py`,
`compile/build.py`, `exchange/onnx/importer.py`.
"""

from typing import Any as _Any  # relay.Any is a name of TVM

from tilewright.base.doors import open_doors
from tilewright.base.elsewhere import find
from tilewright.base.errors import ModelError
from tilewright.relay import (
    adt,
    analysis,
    annotation,
    backend,
    build_module,
    data_dep_optimization,
    dataflow_pattern,
    expr,
    expr_functor,
    frontend,
    image,
    loops,
    nn,
    op,
    parser,
    prelude,
    qnn,
    random,
    scope_builder,
    testing,
    transform,
    ty,
    vision,
    vm,
)
from tilewright.relay.adt import (
    Clause,
    Constructor,
    Match,
    Pattern,
    PatternConstructor,
    PatternTuple,
    PatternVar,
    PatternWildcard,
    TypeData,
)
from tilewright.relay.compile.build import build
from tilewright.relay.compile.executor import create_executor
from tilewright.relay.dynamic import *  # noqa: F403
from tilewright.relay.dynamic import __all__ as _dynamic
from tilewright.relay.exchange.onnx.export import to_onnx
from tilewright.relay.expr import TupleWrapper
from tilewright.relay.graph.data_types import GlobalTypeVar, RefType, TypeCall, TypeKind, TypeVar
from tilewright.relay.graph.evaluate import evaluate
from tilewright.relay.graph.expr import (
    Call,
    Constant,
    Expr,
    Function,
    FuncType,
    GlobalVar,
    IncompleteType,
    IRModule,
    TensorType,
    Tuple,
    TupleGetItem,
    TupleType,
    Var,
    free_vars,
)
from tilewright.relay.graph.extents import Any
from tilewright.relay.graph.functional import RefCreate, RefRead, RefWrite
from tilewright.relay.graph.functor import ExprFunctor, ExprMutator, ExprVisitor
from tilewright.relay.graph.later import remembered as _remembered
from tilewright.relay.graph.leaves import const, var
from tilewright.relay.graph.scope import Let, ScopeBuilder, bind
from tilewright.relay.graph.types import scalar_type
from tilewright.relay.indexing import *  # noqa: F403
from tilewright.relay.indexing import __all__ as _indexing
from tilewright.relay.layout import layout_transform
from tilewright.relay.linear import einsum
from tilewright.relay.parser import fromtext, parse, parse_expr
from tilewright.relay.passes import PASSES, bind_params, optimize
from tilewright.relay.passes.extents import with_sizes
from tilewright.relay.reductions import *  # noqa: F403
from tilewright.relay.reductions import __all__ as _reductions
from tilewright.relay.selection import *  # noqa: F403
from tilewright.relay.selection import __all__ as _selection
from tilewright.relay.shapes import *  # noqa: F403
from tilewright.relay.shapes import __all__ as _shapes
from tilewright.relay.signal import dft, sliding_window, stft
from tilewright.relay.tensor import *  # noqa: F403
from tilewright.relay.tensor import __all__ as _operators
from tilewright.runtime.network.library import Library, load
from tilewright.runtime.network.param_dict import load_param_dict, save_param_dict

__all__ = [
    "adt", "analysis", "annotation", "Any", "backend", "bind", "bind_params", "build",
    "build_module", "Call", "Clause", "const", "Constant", "Constructor",
    "create_executor", "data_dep_optimization", "dataflow_pattern", "dft", "einsum", "evaluate",
    "Expr", "expr", "expr_functor", "ExprFunctor", "ExprMutator", "ExprVisitor", "free_vars",
    "fromtext", "frontend", "Function", "FuncType", "GlobalTypeVar", "GlobalVar", "image",
    "IncompleteType", "IRModule", "layout_transform", "Let", "Library", "load", "load_param_dict",
    "loops", "Match", "nn", "op", "optimize", "parse", "parse_expr", "parser", "PASSES", "Pattern",
    "PatternConstructor", "PatternTuple", "PatternVar", "PatternWildcard", "prelude", "qnn",
    "random", "RefCreate", "RefRead", "RefType", "RefWrite", "save_param_dict", "scalar_type",
    "scope_builder", "ScopeBuilder", "sliding_window", "stft", "TensorType", "testing", "to_onnx",
    "transform", "Tuple", "TupleGetItem", "TupleType", "TupleWrapper", "ty", "TypeCall", "TypeData",
    "TypeKind", "TypeVar", "Var", "var", "vision", "vm", "with_sizes", *_dynamic, *_indexing,
    *_operators, *_reductions, *_selection, *_shapes,
]  # fmt: skip

OPERATORS = (  # what text may call, too
    "layout_transform", "einsum", "dft", "sliding_window", "stft",
    *_dynamic, *_indexing, *_operators, *_reductions, *_selection, *_shapes,
)  # fmt: skip
open_doors(globals(), OPERATORS, ModelError, _remembered)
# A shape may hold more than ints, and the class checks it itself.
open_doors(globals(), set(__all__) - {"TensorType", *OPERATORS}, ModelError)

# Names of TVM that are not there: what to use instead.
_ELSEWHERE = {
    "collage": "relay.build chooses by measured records; there are no other compilers to ask.",
    "reinterpret": "The bits of one type are not read as another; relay.cast converts values.",
    "quantize": "Import a model that is quantised already, with QuantizeLinear in ONNX.",
}


def __getattr__(name: str) -> _Any:
    return find(__name__, name, _ELSEWHERE)
