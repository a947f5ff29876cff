"""What the words of hybrid scripts mean where they are stages: loops, memory, functions.

In: a `Run` of `parser.py`, and values.  Out: values; statements in its builder.
Read next: `runtime.py`, what the same words mean in Python.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tilewright.base.dtype import TYPES, DType
from tilewright.ir import expr as E
from tilewright.ir.expr import Expr
from tilewright.ir.stmt import BLOCK_TAGS, THREAD_TAGS, Buffer, Thread
from tilewright.ir.symbols import is_extent, is_symbol
from tilewright.te import functions
from tilewright.te.axis import shape_of
from tilewright_tvm.te.hybrid import runtime
from tilewright_tvm.te.ir_builder import BufferVar

if TYPE_CHECKING:
    from tilewright_tvm.te.hybrid.parser import Run

# How loops run, by what scripts call them.
LOOPS = {
    "range": "serial", "parallel": "parallel", "vectorize": "vectorize", "unroll": "unroll",
    "const_range": "", "bind": "",
}  # fmt: skip


# A loop, by its variable and how often it runs from 0 on; None for what may not happen at all.
Around = tuple[Expr, Any] | None


@dataclass(frozen=True, eq=False)
class Cell:
    """A number that changes while the script runs."""

    memory: BufferVar


@dataclass(frozen=True, eq=False)
class Part:
    """A tensor with its first indices given."""

    memory: BufferVar
    index: tuple[Any, ...]


def known(value: Any) -> Any:
    """A constant expression as the number that it is; others as they are."""
    is_number = isinstance(value, Expr) and value.op == "const"
    return value.attr if is_number and value.dtype in ("bool", "int32", "float32") else value


def whole_number(run: Run, value: Any, what: str, way_out: str) -> int:
    value = known(value)
    if not isinstance(value, int):
        run.fail(f"{what} is {value}, which is not known before it runs", way_out)
    return int(value)


# -- loops -----------------------------------------------------------------------------------------


def loop(run: Run, kind: str, name: str, args: list[Any], body: Callable[[], None]) -> None:
    """`for name in kind(*args): body`"""
    if kind == "bind":
        return _bind(run, name, args, body)
    if not 1 <= len(args) <= 3:
        run.fail(f"{kind} takes an end, or a beginning, an end and a step")
    if kind == "const_range":
        ends = [whole_number(run, a, "an end of const_range", "Use range.") for a in args]
        for value in range(*ends):
            with run.builder.new_scope(), run.inner(**{name: value}):
                body()
        return None
    first, last = (0, args[0]) if len(args) == 1 else args[:2]
    step = whole_number(run, args[2], "a step", "Give a number.") if len(args) == 3 else 1
    if step < 1:
        run.fail(f"a step of {step}", "Count upwards, and use n - 1 - i.")
    first, last = run.kept(run.number(first)), run.kept(run.number(last))
    if step == 1:
        with run.builder.for_range(first, last, name, kind=LOOPS[kind]) as var:
            around = (var, last) if _same(first, 0) else None
            with run.inner(**{name: var}), run.inside(around):
                body()
        return None
    count = (last - first + step - 1) // step
    with (
        run.builder.for_range(0, count, name, kind=LOOPS[kind]) as var,
        run.inner(**{name: first + var * step}),
        run.inside(None),
    ):
        body()
    return None


def _bind(run: Run, name: str, args: list[Any], body: Callable[[], None]) -> None:
    threads = run.threads
    if threads is None:
        run.fail("bind in a script that another script calls", "Call it with tensors of te.")
    tag, extent = args if len(args) == 2 else ("", None)
    if tag not in (*BLOCK_TAGS, *THREAD_TAGS):
        run.fail(f"no blocks or threads are named {tag}",
                 f"Write bind({THREAD_TAGS[0]!r}, n), or {', '.join(BLOCK_TAGS)}.")  # fmt: skip
    extent = known(extent)
    if tag in threads.bound:
        run.fail(f"{tag} is bound inside a loop over {tag}", "Use another index.")
    if not isinstance(extent, int) and not (isinstance(extent, Expr) and is_extent(extent)):
        run.fail(f"the extent {extent} of {tag} is no number", "Give one, and an `if` inside.")
    index = threads.indices.setdefault(tag, Thread(tag, E.var(name), extent))
    if index.extent is not extent and index.extent != extent:
        run.fail(f"{tag} has {index.extent} values in this kernel, not {extent}",
                 "Use one number of them, and an `if` inside.")  # fmt: skip
    threads.bound.append(tag)
    with run.builder.new_scope(), run.inner(**{name: index.var}), run.inside((index.var, extent)):
        body()
    threads.bound.pop()


def covers(around: Sequence[Around], index: Sequence[Any], shape: Sequence[Any]) -> bool:
    """Whether a store at an index inside these loops surely reaches all elements of a shape.

    True only where each index is the variable of a loop over its whole dimension.
    """
    if None in around:
        return False
    extents = dict(a for a in around if a is not None)
    rest = [n for v, n in extents.items() if all(v is not i for i in index)]
    if not all(is_symbol(n) or (isinstance(n, int) and n > 0) for n in map(known, rest)):
        return False  # such a loop may have nothing to do
    return len({id(i) for i in index}) == len(index) and all(
        any(i is v and _same(n, size) for v, n in extents.items())
        for i, size in zip(index, shape, strict=True)
    )


def _same(a: Any, b: Any) -> bool:
    a, b = known(a), known(b)
    return a is b or (isinstance(a, int) and isinstance(b, int) and a == b)


# -- memory ----------------------------------------------------------------------------------------


def allocated(run: Run, shape: Any, dtype: Any, scope: str, name: str) -> BufferVar:
    """Memory from here to the end of the block.  scope: "" for what fits where it is."""
    if run.threads is not None and run.depth:
        scope = scope if scope == "shared" else "local"
    return run.builder.allocate(dtype, shape, name, scope)


def _allocate(
    run: Run, shape: Any, dtype: Any = "float32", scope: str = "global", *, name: str = ""
) -> BufferVar:
    return allocated(run, shape, dtype, "" if scope == "global" else scope, name or "buffer")


def _output_tensor(run: Run, shape: Any, dtype: Any, *, name: str = "") -> BufferVar:
    if run.caller is not None or name not in run.wanted:
        return allocated(run, shape, dtype, "", name or "output")
    place = f"output_tensor {name}"
    dims = shape_of(shape, place)
    size: Any = 1
    for n in dims:
        size = size * n
    made = BufferVar(Buffer(name, DType(dtype, place), size, "global", dims))
    run.outputs.append(made)
    return made


# -- functions -------------------------------------------------------------------------------------


def _function(make: Callable[..., Any]) -> Callable[..., Any]:
    return lambda run, *args: make(*map(run.element, args))


def _cast(dtype: str) -> Callable[..., Any]:
    return lambda run, value: E.cast(dtype, run.element(value))


def _extreme(make: Callable[[Any, Any], Any], plain: Callable[..., Any]) -> Callable[..., Any]:
    def of(run: Run, *args: Any) -> Any:
        values = [run.number(a) for a in args]
        if not any(isinstance(v, Expr) for v in values):
            return plain(values)
        found = values[0]
        for v in values[1:]:
            found = make(found, v)
        return found

    return of


def _length(run: Run, value: Any) -> Any:
    if isinstance(value, BufferVar):
        return known(value.shape[0])
    if isinstance(value, Part):
        return known(value.memory.shape[len(value.index)])
    if not isinstance(value, (list, tuple)):
        run.fail(f"{value!r:.40} has no length")
    return len(value)


def _ceil_div(run: Run, a: Any, b: Any) -> Any:
    return known(runtime.ceil_div(run.number(a), run.number(b)))


def _max_num_threads(run: Run, allow_none: Any = True) -> int:
    return runtime.max_num_threads()


def _likely(run: Run, value: Any) -> Any:
    return value


def _loop_only(run: Run, *args: Any, **named: Any) -> Any:
    run.fail("a loop's word is used outside of `for`", "Write `for i in range(n):`.")


CALLS: dict[str, Callable[..., Any]] = {
    **{name: _function(getattr(functions, name)) for name in (
        "sqrt", "log", "exp", "tanh", "sigmoid", "power", "round", "rsqrt", "popcount", "floor",
        "ceil", "sin", "cos",
    )},
    **{str(name): _cast(str(name)) for name in TYPES},
    **dict.fromkeys(LOOPS, _loop_only),
    "allocate": _allocate,
    "ceil_div": _ceil_div,
    "len": _length,
    "likely": _likely,
    "max": _extreme(E.maximum, max),
    "max_num_threads": _max_num_threads,
    "min": _extreme(E.minimum, min),
    "output_tensor": _output_tensor,
}  # fmt: skip
