"""A network in PyTorch, operator by operator, to time the same graph there.

In: a module of plain calls and its parameters.  Out: a traced, frozen function.  Only loaded where
PyTorch is installed.  Read next: `engines.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from tilewright.base.errors import ModelError
from tilewright.graph.expr import (
    Array,
    Call,
    Constant,
    Expr,
    Function,
    IRModule,
    Tuple,
    TupleGetItem,
    Var,
    as_array,
    post_order,
)
from tilewright.graph.op.conv import CONVOLUTIONS, TRANSPOSED
from tilewright.graph.op.reduction import reduced_axes
from tilewright.graph.op.window import IMAGE, RANKS, channels_first, image_rank, moves, out_layout
from tilewright.graph.traversal import op_name
from tilewright.topi.elementwise import limits

Rule = Callable[[Sequence[Any], Any, Any], Any]  # tensors, attributes, result type -> tensor


@contextmanager
def runner(
    mod: IRModule,
    params: Mapping[str, Any] | None,
    inputs: Mapping[str, Array],
    on_cuda: bool,
    threads: int,
) -> Iterator[Callable[[], None]]:
    """A function that runs the network once and waits for it.

    Raises ModelError naming the operators that have no rule here.
    """
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        with torch.inference_mode():
            if on_cuda:
                yield _captured(mod, params, inputs)
            else:
                module, given = traced(mod, params, inputs, "cpu")
                yield lambda: module(*given)
    finally:
        torch.set_num_threads(before)


def traced(
    mod: IRModule, params: Mapping[str, Any] | None, inputs: Mapping[str, Array], where: str
) -> tuple[Any, list[Any]]:
    """The frozen module and its arguments, the inputs in the order of main's parameters."""
    import warnings

    import torch

    network = _network(mod["main"], params or {}, where)
    given = _tensors(mod, params, inputs, where)
    with warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("ignore")  # tracing is deprecated, and warns of Python numbers
        module = torch.jit.freeze(torch.jit.trace(network, given).eval())
        for _ in range(3):  # the first calls still optimise
            module(*given)
    return module, given


@contextmanager
def compiled(
    mod: IRModule, params: Mapping[str, Any] | None, inputs: Mapping[str, Array],
    where: str = "cuda", **options: Any,
) -> Iterator[Callable[[], Any]]:  # fmt: skip
    """A function that runs the network once by `torch.compile`, and waits for it.

    options: of torch.compile, such as `mode="reduce-overhead"`, which makes a CUDA graph
    """
    import torch

    _without_tf32()
    given = _tensors(mod, params, inputs, where)
    module = _network(mod["main"], params or {}, where).eval()
    with torch.no_grad():  # a graph first: Dynamo would read this walk over our expressions, too
        exported = torch.export.export(module, tuple(given), strict=False)
    network = torch.compile(exported.module(), **options)

    def run() -> Any:
        results = network(*given)
        if where == "cuda":
            torch.cuda.synchronize()
        return results

    with torch.inference_mode():
        for _ in range(3):  # it compiles, records, and replays
            run()
        yield run


def _without_tf32() -> None:
    import torch

    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
    torch.backends.cudnn.benchmark = True


def _tensors(
    mod: IRModule, params: Mapping[str, Any] | None, inputs: Mapping[str, Array], where: str
) -> list[Any]:
    """The inputs, in the order of main's parameters."""
    import torch

    return [
        torch.from_numpy(np.array(inputs[p.name_hint])).to(where)
        for p in mod["main"].params
        if p.name_hint not in (params or {})
    ]


def _captured(
    mod: IRModule, params: Mapping[str, Any] | None, inputs: Mapping[str, Array]
) -> Callable[[], None]:
    import torch

    _without_tf32()
    module, given = traced(mod, params, inputs, "cuda")
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        module(*given)
    stream.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=stream):
        module(*given)

    def run() -> None:
        graph.replay()
        torch.cuda.synchronize()

    return run


def _network(main: Function, params: Mapping[str, Any], where: str) -> Any:
    import torch

    rules = _rules()
    nodes = post_order(main.body)
    names = {op_name(n) for n in nodes if isinstance(n, Call)}
    if missing := sorted(names - set(rules)):
        raise ModelError(
            "PyTorch",
            f"there is no rule for {', '.join(missing)}",
            "Compare with onnxruntime instead.",
        )
    open_inputs = [p for p in main.params if p.name_hint not in params]

    class Network(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.fixed: dict[Expr, str] = {}
            for k, n in enumerate(n for n in nodes if isinstance(n, (Var, Constant))):
                if n in open_inputs:
                    continue
                value = n.data if isinstance(n, Constant) else params[n.name_hint]
                self.register_buffer(f"weight{k}", torch.tensor(as_array(value), device=where))
                self.fixed[n] = f"weight{k}"

        def forward(self, *given: Any) -> Any:
            values: dict[Expr, Any] = dict(zip(open_inputs, given, strict=True))
            for node in nodes:
                if node not in values:
                    values[node] = self.value(node, values)
            return values[main.body]

        def value(self, node: Expr, values: dict[Expr, Any]) -> Any:
            if node in self.fixed:
                return getattr(self, self.fixed[node])
            if isinstance(node, Tuple):
                return tuple(values[f] for f in node.fields)
            if isinstance(node, TupleGetItem):
                return values[node.tuple_value][node.index]
            assert isinstance(node, Call)
            args = [values[a] for a in node.args]
            return rules[op_name(node)](args, node.attrs, node.checked_type)

    return Network()


def _rules() -> dict[str, Rule]:
    """PyTorch's word for each operator; those that networks of the tests do not need are absent."""
    import torch
    from torch.nn import functional as F

    unary = {
        name: getattr(torch, name)
        for name in ("exp", "log", "sqrt", "rsqrt", "tanh", "sigmoid", "erf", "abs", "sin", "cos")
    } | {"negative": torch.neg, "nn.relu": torch.relu}
    binary = {
        "add": torch.add, "subtract": torch.sub, "multiply": torch.mul, "divide": torch.div,
        "maximum": torch.maximum, "minimum": torch.minimum, "power": torch.pow,
        "equal": torch.eq, "not_equal": torch.ne, "less": torch.lt, "less_equal": torch.le,
        "greater": torch.gt, "greater_equal": torch.ge,
    }  # fmt: skip
    rules: dict[str, Rule] = {
        **{name: _plain(function, 1) for name, function in unary.items()},
        **{name: _plain(function, 2) for name, function in binary.items()},
        "where": _plain(torch.where, 3),
        **dict.fromkeys(
            ("reshape", "nn.batch_flatten", "expand_dims", "squeeze"),
            lambda t, a, r: t[0].reshape(r.shape),
        ),
        **dict.fromkeys(("copy", "nn.dropout", "annotation.checkpoint"), lambda t, a, r: t[0]),
        "cast": lambda t, a, r: t[0].to(getattr(torch, str(a.dtype))),
        "clip": lambda t, a, r: torch.clamp(t[0], *limits(r.dtype, a.a_min, a.a_max)),
        "transpose": lambda t, a, r: t[0].permute(*a.axes),
        "concatenate": lambda t, a, r: torch.cat(t[0], a.axis),
        "strided_slice": _slice,
        "take": _take,
        "gather": lambda t, a, r: t[0].gather(a.axis, t[1].long() % t[0].shape[a.axis]),
        "mean": lambda t, a, r: t[0].mean(_axes(t[0], a), keepdim=a.keepdims),
        "sum": lambda t, a, r: t[0].sum(_axes(t[0], a), keepdim=a.keepdims),
        "nn.dense": lambda t, a, r: F.linear(t[0], t[1]),
        "nn.batch_matmul": lambda t, a, r: torch.matmul(
            t[0].mT if a.transpose_a else t[0], t[1].mT if a.transpose_b else t[1]
        ),
        "nn.bias_add": lambda t, a, r: t[0] + _along(t[1], a.axis, t[0].dim()),
        "nn.standardize": _standardize,
        "nn.softmax": lambda t, a, r: F.softmax(t[0], a.axis),
        "nn.log_softmax": lambda t, a, r: F.log_softmax(t[0], a.axis),
        "nn.leaky_relu": lambda t, a, r: F.leaky_relu(t[0], a.alpha),
        "nn.pad": lambda t, a, r: F.pad(
            t[0], [w for sides in reversed(a.pad_width) for w in sides], value=a.pad_value
        ),
        "nn.batch_norm": _batch_norm,
        **dict.fromkeys(CONVOLUTIONS, _conv),
        **dict.fromkeys(TRANSPOSED, _conv_transpose),
    }
    for rank in RANKS:
        rules |= {
            f"nn.max_pool{rank}d": _pool(_max_pool),
            f"nn.avg_pool{rank}d": _pool(_avg_pool),
            f"nn.adaptive_avg_pool{rank}d": _adaptive("avg"),
            f"nn.adaptive_max_pool{rank}d": _adaptive("max"),
            f"nn.global_avg_pool{rank}d": lambda t, a, r: t[0].mean(_image(a.layout), keepdim=True),
            f"nn.global_max_pool{rank}d": lambda t, a, r: t[0].amax(_image(a.layout), keepdim=True),
        }
    return rules


def _plain(function: Any, count: int) -> Rule:
    return lambda t, a, r: function(*t[:count])


def _axes(tensor: Any, attrs: Any) -> tuple[int, ...]:
    return reduced_axes(attrs.axis, attrs.exclude, tensor.dim())


def _slice(t: Sequence[Any], a: Any, result: Any) -> Any:
    data = t[0]
    for axis, (begin, extent, step) in enumerate(zip(a.begin, a.extents, a.strides, strict=True)):
        last = begin + step * (extent - 1)
        first, end = min(begin, last), max(begin, last) + 1
        data = data.narrow(axis, first, end - first)
        data = data[(slice(None),) * axis + (slice(None, None, abs(step)),)]
        data = data.flip(axis) if step < 0 else data
    return data


def _take(t: Sequence[Any], a: Any, result: Any) -> Any:
    data, indices = t
    extent, axis = data.shape[a.axis], a.axis % data.dim()
    at = indices.long() % extent if a.mode == "wrap" else indices.long().clamp(0, extent - 1)
    if a.batch_dims:
        raise ModelError("PyTorch", "no rule for take with batch_dims", "Use gather.")
    return data.index_select(axis, at.reshape(-1)).reshape(result.shape)


def _along(vector: Any, axis: int, rank: int) -> Any:
    shape = [1] * rank
    shape[axis] = -1
    return vector.reshape(shape)


def _image(layout: str) -> tuple[int, ...]:
    letters = filter(str.isalpha, layout)
    return tuple(k for k, letter in enumerate(letters) if letter not in "NCc")


def _ordered(tensor: Any, source: str, wanted: str) -> Any:
    apart, split, order = moves(source, wanted, tensor.shape)
    return tensor.permute(*apart).reshape(split).permute(*order)


def _sides(tensor: Any, padding: Sequence[int], value: float) -> tuple[Any, tuple[int, ...]]:
    """The padding that operators take, and the tensor with the rest of it."""
    rank = len(padding) // 2
    before, after = tuple(padding[:rank]), tuple(padding[rank:])
    if before == after:
        return tensor, before
    sides = [n for pair in zip(reversed(before), reversed(after), strict=True) for n in pair]
    return _functional("pad")(tensor, sides, value=value), (0,) * rank


def _functional(name: str) -> Any:
    from torch.nn import functional

    return getattr(functional, name)


def _batch_norm(t: Sequence[Any], a: Any, result: Any) -> Any:
    data, gamma, beta, mean, variance = t
    if a.axis % data.dim() != 1:
        data = data.movedim(a.axis, 1)
    made = _functional("batch_norm")(
        data, mean, variance, gamma if a.scale else None, beta if a.center else None,
        eps=a.epsilon,
    )  # fmt: skip
    return (made if a.axis % data.dim() == 1 else made.movedim(1, a.axis)), mean, variance


def _standardize(t: Sequence[Any], a: Any, result: Any) -> Any:
    x, rank = t[0], t[0].dim()
    axes = sorted(k % rank for k in a.axis)
    if axes == list(range(axes[0], rank)):
        norm = _functional("layer_norm" if a.center else "rms_norm")
        return norm(x, x.shape[axes[0] :], eps=a.epsilon)
    x = x - x.mean(axes, keepdim=True) if a.center else x
    return x / ((x * x).mean(axes, keepdim=True) + a.epsilon).sqrt()


def _conv(t: Sequence[Any], a: Any, result: Any) -> Any:
    rank = len(a.strides)
    order = channels_first(rank)
    data, around = _sides(_ordered(t[0], a.data_layout, order), a.padding, 0.0)
    weight = _ordered(t[1], a.kernel_layout, f"OI{IMAGE[rank]}")
    made = _functional(f"conv{rank}d")(data, weight, None, a.strides, around, a.dilation, a.groups)
    return _ordered(made, order, out_layout(a))


def _conv_transpose(t: Sequence[Any], a: Any, result: Any) -> Any:
    rank = len(a.strides)
    order, before, after = channels_first(rank), a.padding[:rank], a.padding[rank:]
    data = _ordered(t[0], a.data_layout, order)
    weight = _ordered(t[1], a.kernel_layout, f"IO{IMAGE[rank]}")
    made = _functional(f"conv_transpose{rank}d")(
        data, weight, None, a.strides, 0, a.output_padding, a.groups, a.dilation
    )
    for axis, (front, behind) in enumerate(zip(before, after, strict=True), 2):
        made = made.narrow(axis, front, made.shape[axis] - front - behind)
    return _ordered(made, order, a.data_layout)


def _pool(pool: Callable[[Any, Any], Any]) -> Rule:
    """`pool`, a function of images and attributes, of images of any layout."""

    def rule(t: Sequence[Any], a: Any, result: Any) -> Any:
        order = channels_first(image_rank(a.layout))
        return _ordered(pool(_ordered(t[0], a.layout, order), a), order, a.layout)

    return rule


def _max_pool(data: Any, a: Any) -> Any:
    data, around = _sides(data, a.padding, float("-inf"))
    function = _functional(f"max_pool{len(a.strides)}d")
    return function(data, a.pool_size, a.strides, around, a.dilation, a.ceil_mode)


def _avg_pool(data: Any, a: Any) -> Any:
    data, around = _sides(data, a.padding, 0.0)
    whole = a.count_include_pad or not any(a.padding)
    if set(a.dilation) != {1} or (not whole and not any(around)):
        raise ModelError(
            "PyTorch",
            "there is no rule for this average pooling",
            "Compare with onnxruntime instead.",
        )
    function = _functional(f"avg_pool{len(a.strides)}d")
    return function(data, a.pool_size, a.strides, around, a.ceil_mode, count_include_pad=whole)


def _adaptive(kind: str) -> Rule:
    return _pool(
        lambda data, a: _functional(f"adaptive_{kind}_pool{len(a.output_size)}d")(
            data, tuple(a.output_size)
        )
    )
