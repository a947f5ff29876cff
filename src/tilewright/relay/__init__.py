"""Networks as graphs: build or import one, simplify and fuse it, evaluate or export it.

In: operators under TVM's names, or an ONNX file.  Out: an `IRModule` and its parameters, a
compiled `Library`.
Read next: `expr.py`, `op/__init__.py` (the operator table), `passes/__init__.py`,
`compile/build.py`, `exchange/onnx/importer.py`.
"""

from typing import Any as _Any  # relay.Any is a name of TVM

from tilewright.base.doors import open_doors
from tilewright.base.errors import ModelError, absent
from tilewright.relay import analysis, frontend, image, nn, op, qnn, testing, transform, vision
from tilewright.relay.compile.build import build
from tilewright.relay.exchange.onnx.export import to_onnx
from tilewright.relay.graph.evaluate import evaluate
from tilewright.relay.graph.expr import (
    Call,
    Constant,
    Expr,
    Function,
    IRModule,
    TensorType,
    Tuple,
    TupleGetItem,
    TupleType,
    Var,
    const,
    free_vars,
    var,
)
from tilewright.relay.graph.extents import Any
from tilewright.relay.indexing import *  # noqa: F403
from tilewright.relay.indexing import __all__ as _indexing
from tilewright.relay.linear import einsum
from tilewright.relay.passes import PASSES, bind_params, optimize
from tilewright.relay.passes.extents import with_sizes
from tilewright.relay.reductions import *  # noqa: F403
from tilewright.relay.reductions import __all__ as _reductions
from tilewright.relay.tensor import *  # noqa: F403
from tilewright.relay.tensor import __all__ as _operators
from tilewright.runtime.network.library import Library, load

__all__ = [
    "analysis", "Any", "bind_params", "build", "Call", "const", "Constant", "einsum", "evaluate",
    "Expr", "free_vars", "frontend", "Function", "image", "IRModule", "Library", "load", "nn",
    "op", "optimize", "PASSES", "qnn", "TensorType", "testing", "to_onnx", "transform", "Tuple",
    "TupleGetItem", "TupleType", "Var", "var", "vision", "with_sizes", *_indexing, *_operators,
    *_reductions,
]  # fmt: skip

open_doors(globals(), __all__, ModelError)

# Names of TVM that are not there: what to use instead.
_ELSEWHERE = {
    "backend": "Use relay.build; its report names the schedule of each kernel.",
    "create_executor": "Use relay.build and contrib.graph_executor, or relay.evaluate.",
    "quantize": "Import a model that is quantised already, with QuantizeLinear in ONNX.",
    "vm": "Use relay.build and contrib.graph_executor; relay.Any for open extents.",
}


def __getattr__(name: str) -> _Any:
    raise absent("relay", name, _ELSEWHERE)
