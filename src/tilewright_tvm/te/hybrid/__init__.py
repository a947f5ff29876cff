"""Hybrid scripts: a Python function in a subset of Python, that is a stage, and runs on numpy.

In: `@te.hybrid.script` above a function of tensors.  Out: called with tensors of `te`, what it
returns are the tensors of a `te.extern` of its statements; called with arrays of numpy, Python
computes it (`runtime.py` says what its words mean there).
Read next: `parser.py`, which makes the statements.
"""

import ast
import builtins
import functools
import inspect
import types
from collections.abc import Callable
from importlib import import_module
from typing import Any

from tilewright.base.doors import door
from tilewright.base.errors import ExpressionError, absent
from tilewright.ir.expr import Expr
from tilewright.te.tensor import Tensor
from tilewright_tvm.te.hybrid import runtime
from tilewright_tvm.te.hybrid.parser import staged
from tilewright_tvm.te.hybrid.source import Source, parsed

__all__ = ["from_text", "script"]


@door(ExpressionError, "te.hybrid.script")
def script(pyfunc: Callable[..., Any]) -> Callable[..., Any]:
    """Decorates a function that says with loops and stores what its tensors hold.

    Its words: `output_tensor(shape, dtype)` for what it returns, which holds zeros at first;
    `allocate(shape, dtype, scope)`, of undefined content; loops over `range`, `parallel`,
    `vectorize`, `unroll`, `const_range` (written out, its variable is a number) and
    `bind("threadIdx.x", n)`; `if`, `while`, `assert` (which only Python checks), numbers of its own
    (`s = 0.0`), functions such as `exp`, casts such as `float32(x)`, calls of other scripts.
    Arguments: tensors, lists of tensors or numbers, numbers, `te.var`.
    Gives a tensor, or a list of them.  Raises ExpressionError, which names the line, for what is
    not among these words and for a store to an input.
    """
    return _called(pyfunc, Source.of(pyfunc))


def from_text(text: str, place: str) -> Callable[..., Any]:
    """The script that a text defines last: a function, which needs no decorator.

    Raises ExpressionError where there is none.
    """
    found = [part for part in parsed(text, place).body if isinstance(part, ast.FunctionDef)]
    if not found:
        raise ExpressionError(place, "it defines no function", "Write one with def.")
    tree = found[-1]
    tree.decorator_list = []
    names: dict[str, Any] = {}
    exec(compile(ast.Module([tree], []), place, "exec"), names)
    return _called(names[tree.name], Source(tree.name, tree, vars(builtins)))


def _called(pyfunc: Callable[..., Any], source: Source) -> Callable[..., Any]:
    @functools.wraps(pyfunc)
    def called(*args: Any, **kwargs: Any) -> Any:
        bound = inspect.signature(pyfunc).bind(*args, **kwargs)
        bound.apply_defaults()
        if bound.arguments and not any(map(_is_symbolic, bound.arguments.values())):
            return _in_python(pyfunc)(*bound.args, **bound.kwargs)
        made = staged(source, dict(bound.arguments))
        return made[0] if len(made) == 1 else made

    vars(called)["hybrid_source"] = source
    return called


def _is_symbolic(value: Any) -> bool:
    if isinstance(value, (list, tuple)):
        return any(map(_is_symbolic, value))
    return isinstance(value, (Tensor, Expr))


def _in_python(pyfunc: Callable[..., Any]) -> Callable[..., Any]:
    """The function as it is, where the words of scripts are Python's."""
    names = {**pyfunc.__globals__, **runtime.HYBRID_GLOBALS}
    return types.FunctionType(
        pyfunc.__code__, names, pyfunc.__name__, pyfunc.__defaults__, pyfunc.__closure__
    )


_LATER = {  # their home is in a later room
    "HybridModule": "tilewright_tvm.te.hybrid.module",
    "build": "tilewright_tvm.te.hybrid.module",
}


def __getattr__(name: str) -> Any:
    if name in _LATER:
        return getattr(import_module(_LATER[name]), name)
    raise absent("te.hybrid", name, {})
