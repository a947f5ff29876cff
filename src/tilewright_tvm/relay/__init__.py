"""Networks as graphs: build or import one, simplify and fuse it, evaluate or export it.

In: operators under TVM's names, or an ONNX file.  Out: an `IRModule` and its parameters, a
compiled `Library`.
Read next: `expr.py`, `graph/op/__init__.py` (the operator table), `graph/passes/__init__.py`,
`network/build.py`, `models/onnx/importer.py`.
"""

from typing import Any as _Any  # relay.Any is a name of TVM

from tilewright.base.doors import open_doors
from tilewright.base.errors import ModelError
from tilewright.graph.evaluate import evaluate
from tilewright.graph.expr import (
    Constant,
    Expr,
    FuncType,
    GlobalVar,
    IncompleteType,
    TensorType,
    Tuple,
    TupleGetItem,
    TupleType,
    Var,
    free_vars,
)
from tilewright.graph.extension import extend as _extend
from tilewright.graph.extents import Any
from tilewright.graph.functions.indexing import *  # noqa: F403
from tilewright.graph.functions.indexing import __all__ as _indexing
from tilewright.graph.functions.layout import layout_transform
from tilewright.graph.functions.linear import einsum
from tilewright.graph.functions.reductions import *  # noqa: F403
from tilewright.graph.functions.reductions import __all__ as _reductions
from tilewright.graph.functions.selection import searchsorted
from tilewright.graph.functions.tensor import *  # noqa: F403
from tilewright.graph.functions.tensor import __all__ as _operators
from tilewright.graph.leaves import const, var
from tilewright.graph.passes import PASSES, bind_params
from tilewright.graph.passes.extents import with_sizes
from tilewright.graph.types import scalar_type
from tilewright.models.onnx.export import to_onnx
from tilewright.runtime.network.library import Library, load
from tilewright_tvm.elsewhere import find
from tilewright_tvm.param_dict import load_param_dict, save_param_dict
from tilewright_tvm.relay import (
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
from tilewright_tvm.relay import pool_gradients as _pool_gradients  # noqa: F401  # which registers
from tilewright_tvm.relay import rows as _rows  # noqa: F401  # operators, as this does
from tilewright_tvm.relay.adt import (
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
from tilewright_tvm.relay.contextual import build, optimize
from tilewright_tvm.relay.dynamic import *  # noqa: F403
from tilewright_tvm.relay.dynamic import __all__ as _dynamic
from tilewright_tvm.relay.executor import create_executor
from tilewright_tvm.relay.expr import TupleWrapper
from tilewright_tvm.relay.functional.data_types import (
    GlobalTypeVar,
    RefType,
    TypeCall,
    TypeKind,
    TypeVar,
)
from tilewright_tvm.relay.functional.definitions import IRModule
from tilewright_tvm.relay.functional.language import Relay as _Relay
from tilewright_tvm.relay.functional.later import defer as _defer
from tilewright_tvm.relay.functional.nodes import Call, Function, RefCreate, RefRead, RefWrite
from tilewright_tvm.relay.functional.scope import If, Let, ScopeBuilder, bind
from tilewright_tvm.relay.functor import ExprFunctor, ExprMutator, ExprVisitor
from tilewright_tvm.relay.parser import fromtext, parse, parse_expr
from tilewright_tvm.relay.selection import *  # noqa: F403
from tilewright_tvm.relay.selection import __all__ as _selection
from tilewright_tvm.relay.shapes import *  # noqa: F403
from tilewright_tvm.relay.shapes import __all__ as _shapes
from tilewright_tvm.relay.signal import dft, sliding_window, stft
from tilewright_tvm.relay.spans import SourceName, Span
from tilewright_tvm.relay.statistics import *  # noqa: F403
from tilewright_tvm.relay.statistics import __all__ as _statistics

__all__ = [
    "adt", "analysis", "annotation", "Any", "backend", "bind", "bind_params", "build",
    "build_module", "Call", "Clause", "const", "Constant", "Constructor", "create_executor",
    "data_dep_optimization", "dataflow_pattern", "dft", "einsum", "evaluate", "Expr", "expr",
    "expr_functor", "ExprFunctor", "ExprMutator", "ExprVisitor", "free_vars", "fromtext",
    "frontend", "Function", "FuncType", "GlobalTypeVar", "GlobalVar", "If", "image",
    "IncompleteType", "IRModule", "layout_transform", "Let", "Library", "load",
    "load_param_dict", "loops", "Match", "nn", "op", "optimize", "parse", "parse_expr",
    "parser", "PASSES", "Pattern", "PatternConstructor", "PatternTuple", "PatternVar",
    "PatternWildcard", "prelude", "qnn", "random", "RefCreate", "RefRead", "RefType",
    "RefWrite", "save_param_dict", "scalar_type", "scope_builder", "ScopeBuilder",
    "sliding_window", "SourceName", "Span", "stft", "TensorType", "testing", "to_onnx",
    "searchsorted", "transform", "Tuple", "TupleGetItem", "TupleType", "TupleWrapper", "ty",
    "TypeCall", "TypeData", "TypeKind", "TypeVar", "Var", "var", "vision", "vm", "with_sizes",
    *_dynamic, *_indexing, *_operators, *_reductions, *_selection, *_shapes, *_statistics,
]  # fmt: skip

OPERATORS = (  # what text may call, too
    "If", "layout_transform", "einsum", "dft", "searchsorted", "sliding_window", "stft",
    *_dynamic, *_indexing, *_operators, *_reductions, *_selection, *_shapes,
    *_statistics,
)  # fmt: skip
_extend(_Relay())
open_doors(globals(), OPERATORS, ModelError)
_defer(globals(), OPERATORS)
# A shape may hold more than ints, and the class checks it itself.
open_doors(globals(), set(__all__) - {"TensorType", *OPERATORS}, ModelError)

# Names of TVM that are not there: what to use instead.
_ROOMS = {  # of the compiler, which were packages of relay until they had homes of their own
    "compile": "network", "exchange": "models", "graph": "graph", "passes": "graph.passes",
    "peers": "models.peers",
}  # fmt: skip
_ELSEWHERE = {
    **{name: f"It is the package tilewright.{room} now." for name, room in _ROOMS.items()},
    "collage": "relay.build chooses by measured records; there are no other compilers to ask.",
    "reinterpret": "In networks bits are not read as another type; topi.reinterpret does that, "
    "and relay.cast converts values.",
    "quantize": "Import a model that is quantised already, with QuantizeLinear in ONNX.",
}


def __getattr__(name: str) -> _Any:
    return find(__name__, name, _ELSEWHERE)
