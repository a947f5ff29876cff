"""Gates: the small products that make factors for the channels of an image join what uses them.

In: a module of fused functions.  Out: an equal one with fewer kernels.  Read next: `results.py`,
`topi/templates/gpu_gates.py`, which schedules them.

Squeeze and excite multiplies an image by one factor for each channel, made of the means of the
channels by two products of a row and a matrix.  Each is a kernel of a microsecond or two, of which
most is its launch.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod

from tilewright.graph.expr import Call, Expr, Function, IRModule, TensorType, Var
from tilewright.graph.op import TABLE, Pattern
from tilewright.graph.passes.dead_code import is_view
from tilewright.graph.passes.fuse import JOINS
from tilewright.graph.passes.results import call_of, is_one_kernel, steps_of
from tilewright.graph.traversal import each_function, is_call, op_name, rewrite, users, with_body

MOST_PRODUCTS = 2
LARGEST_MATRIX = 1 << 17  # elements; a block of threads reads the columns of its own channels
LARGEST_FIRST = 1 << 14  # of a product before the last, which every block computes as a whole


def join_gates(mod: IRModule) -> IRModule:
    """Let products of a row and a small matrix join the elementwise kernel that alone reads what
    they make, one number for each element of its last axis.

    rewrite: h = relu(dense(m, a)); g = sigmoid(dense(h, b)); y = x * reshape(g, (1, 1, 1, C))
       ->    y = dense_relu_dense_sigmoid_multiply(m, a, b, x)
    """
    return each_function(mod, lambda f: with_body(f, _gated(f.body)))


def _gated(body: Expr) -> Expr:
    readers = users(body)
    new: dict[Expr, Expr] = {}

    def visit(old: Expr, node: Expr) -> Expr:
        own = _gate(old, readers)
        new[old] = call_of(own, [own[-1]], new) if own else node
        return new[old]

    return rewrite(body, visit)


def _gate(node: Expr, readers: Mapping[Expr, Sequence[Expr]]) -> list[Call]:
    """The calls that become one kernel, views among them, `node` last; none where it is no gate."""
    steps = steps_of(node)
    if not steps or not all(TABLE[op_name(s)].pattern in JOINS for s in steps):
        return []
    assert isinstance(node, Call)
    shape = node.shape
    if not shape or any(s.shape != shape for s in steps):
        return []
    for arg in node.args:
        factor: list[Call] = []
        value = arg
        while is_view(value) and len(readers[value]) == 1:
            assert isinstance(value, Call)
            factor.insert(0, value)
            value = value.args[0]
        products = _products(value, readers)
        along = isinstance(arg.checked_type, TensorType) and arg.shape == _last_alone(shape)
        if products and along and arg.shape != shape and len(readers[arg]) == 1:
            own = [*products, *factor, node]
            if is_one_kernel(own):
                return own
    return []


def _last_alone(shape: tuple[int, ...]) -> tuple[int, ...]:
    return (*(1 for _ in shape[:-1]), shape[-1])


def _products(value: Expr, readers: Mapping[Expr, Sequence[Expr]]) -> list[Call]:
    """Up to `MOST_PRODUCTS` products of a row and a matrix, each read by the next alone."""
    found: list[Call] = []
    while len(found) < MOST_PRODUCTS and len(readers.get(value, ())) == 1:
        data = _row_of(value, LARGEST_FIRST if found else LARGEST_MATRIX)
        if data is None:
            break
        assert isinstance(value, Call)
        found.insert(0, value)
        value = data
    return found


def _row_of(call: Expr, most: int) -> Expr | None:
    """The row that a group multiplies by a matrix of at most so many elements; None where it does
    something else."""
    steps = steps_of(call)
    products = [s for s in steps if TABLE[op_name(s)].pattern >= Pattern.INJECTIVE]
    if len(products) != 1 or not is_call(products[0], "nn.dense"):
        return None
    assert isinstance(call, Call) and isinstance(call.op, Function)
    data, weight = products[0].args
    row = prod(call.shape) == call.shape[-1] == products[0].shape[-1]
    if not row or not isinstance(data, Var) or weight.tensor_type.size > most:
        return None
    if sum(s.args.count(data) for s in steps) > 1:
        return None
    return call.args[call.op.params.index(data)]
