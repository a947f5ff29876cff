"""Every public function with arguments that are right, and the wrong values tried in their place.

In: nothing.  Out: `doors()`, by name, each with a function and arguments that it accepts, and
`values()`, objects of every kind that users have at hand.
"""

from __future__ import annotations

import functools
import inspect
import io
import operator
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

import tilewright
from tilewright import auto_scheduler, autotvm, nd, relay, te, topi
from tilewright.contrib import graph_executor

Arguments = Mapping[str, Any]


@dataclass(frozen=True)
class Door:
    """call: what users call; good: by name, arguments that it accepts, in their order."""

    name: str
    call: Callable[..., Any]
    good: Callable[[], Arguments]

    def arguments(self) -> dict[str, Any]:
        return dict(self.good())

    @property
    def names(self) -> list[str]:
        """Of the arguments that may be wrong."""
        return [name for name in self.arguments() if name not in ("self", *CALLED)]

    def spoiled(self, name: str, value: Any) -> dict[str, Any]:
        """Its arguments with `value` in the place of one, or of one among `*args` or `**kwargs`."""
        arguments = self.arguments()
        kind = inspect.signature(self.call).parameters[name].kind
        if kind is inspect.Parameter.VAR_POSITIONAL:
            value = [*list(arguments[name])[1:], value]
        elif kind is inspect.Parameter.VAR_KEYWORD:
            value = dict.fromkeys(arguments[name], value)
        return arguments | {name: value}

    def __call__(self, arguments: Arguments) -> Any:
        """Bound by name where Python allows it, so that no TypeError comes of the call itself."""
        positional: list[Any] = []
        named: dict[str, Any] = {}
        for p in inspect.signature(self.call).parameters.values():
            if p.name not in arguments:
                continue
            value = arguments[p.name]
            if p.kind is p.VAR_POSITIONAL:
                positional.extend(value)
            elif p.kind is p.VAR_KEYWORD:
                named |= value
            elif p.kind is p.KEYWORD_ONLY:
                named[p.name] = value
            else:
                positional.append(value)
        return self.call(*positional, **named)


def matmul() -> list[Any]:
    a, b = te.placeholder((4, 6), name="A"), te.placeholder((6, 8), name="B")
    r = te.reduce_axis((0, 6), "r")
    return [a, b, te.compute((4, 8), lambda i, j: te.sum(a[i, r] * b[r, j], axis=r), name="C")]


def image(*shape: int, dtype: str = "float32") -> te.Tensor:
    return te.placeholder(shape or (1, 4, 8, 8), dtype, name="data")


def network() -> relay.IRModule:
    x, w = relay.var("x", shape=(1, 4)), relay.var("w", shape=(3, 4))
    return relay.IRModule.from_expr(relay.nn.relu(relay.nn.dense(x, w)))


def vector(*shape: int, dtype: str = "float32") -> relay.Var:
    return relay.var("v", shape=shape or (1, 4, 8, 8), dtype=dtype)


@functools.cache
def task() -> Any:
    return autotvm.task.create("drills.doors", (4, 8, 6), "llvm")


@functools.cache
def search_task() -> Any:
    return auto_scheduler.SearchTask(func=workload, args=(4, 8, 6), target="llvm")


@autotvm.template("drills.doors")
def template(n: int, m: int, k: int) -> Any:
    a, b, c = matmul()
    s = te.create_schedule(c.op)
    cfg = autotvm.get_config()
    cfg.define_split("tile", s[c].op.axis[0], num_outputs=2)
    cfg["tile"].apply(s, c, s[c].op.axis[0])
    return s, [a, b, c]


@auto_scheduler.register_workload("drills.doors")
def workload(n: int, m: int, k: int) -> list[Any]:
    return matmul()


@functools.cache
def library() -> Any:
    return relay.build(network(), target="llvm", verify=False)


@functools.cache
def kernel() -> Any:
    s = te.create_schedule(matmul()[-1].op)
    return tilewright.build(s, target="llvm")


def values() -> list[Any]:
    """Of every kind: plain values first, then what the rooms make."""
    a, b, c = matmul()
    s = te.create_schedule(c.op)
    return [
        None, "x", "", "float32", "llvm", "no such thing", -1, 0, 3, 2.5, float("nan"), True,
        1 << 70, [], [2, 3], (1,), [None], ["a"], [[1], [2, 3]], {}, {"a": 1}, {1, 2}, b"x",
        np.zeros((2, 3), "float32"), np.array(["a"]), np.int64(3), np.float32(2), object(), Door,
        ..., 1j, slice(3), lambda *_: None, io.StringIO(), iter([1]), Exception("x"),
        a, c, c.op, s, s[c], c.op.axis[0], a[0, 0], te.var("n"), te.thread_axis("threadIdx.x"),
        te.ComputeDAG([a, b, c]), vector(), relay.var("untyped"), relay.const(1.0), network(),
        network()["main"], relay.Tuple([vector()]), relay.TensorType((2, 3)), nd.array([1.0]),
        tilewright.cpu(), tilewright.Target("llvm"), task(), search_task(), relay.nn, kernel(),
        autotvm.ConfigSpace(), autotvm.LocalRunner(),
    ]  # fmt: skip


# What a parameter of this name takes wherever a room or `SPECIAL` does not say otherwise.
SHARED: dict[str, Any] = {
    "a_max": 1.0, "a_min": 0.0, "acc_dtype": None, "alpha": 0.1, "args": (4, 8, 6), "axes": None,
    "axis": 1, "builder": "local", "dilation": 1, "dtype": "float32", "fill_value": 1.0,
    "filename": "log.json", "groups": 1, "index": 0, "kernel_size": (3, 3), "layout": "NCHW",
    "log_file": "log.json", "mod": network, "name": "drills.doors", "num_newaxis": 1,
    "output_size": 1, "padding": 1, "params": None, "pool_type": "max", "prefix": "",
    "runner": "local", "shape": (2, 3), "stride": 1, "strides": 1, "target": "llvm",
    "task": task, "tasks": lambda: [search_task()], "tensors": matmul, "total": 10, "value": 1.0,
}  # fmt: skip
_SCALARS = ("x", "y", "a", "b", "expr")
_FLOATS = ("x", "data", "a", "lhs", "rhs", "y", "array", "ary", "expr")
ROOMS: dict[str, dict[str, Any]] = {
    "te": {
        **dict.fromkeys(_SCALARS, lambda: te.var("n", "float32")),
        "axis": lambda: te.reduce_axis(4),
    },
    "topi": dict.fromkeys(_FLOATS, image),
    "relay": dict.fromkeys(_FLOATS, vector),
}
# What they are given they call, and pass its errors on.
CALLED = ("observe", "change")
# Made by other functions, never by users.
SKIPPED = {
    "te.Combiner", "te.ComputeOp", "te.Expr", "te.PlaceholderOp", "te.Tensor", "te.IterVar",
    "relay.Expr", "relay.PASSES", "nd.NDArray",
    "relay.testing", "topi.testing", "relay.op", "relay.Library", "relay.nn.pair", "relay.nn.sides",
    "autotvm.ConfigEntity", "autotvm.MeasureInput", "autotvm.MeasureResult", "autotvm.task.Task",
    "autotvm.task.ConfigEntity", "auto_scheduler.MeasureInput", "auto_scheduler.MeasureResult",
    "auto_scheduler.PythonBasedMeasureCallback", "auto_scheduler.LocalRPCMeasureContext",
}  # fmt: skip


def workload_again() -> Any:
    return workload


def _function() -> Any:
    return len


_SPECIAL = {
    "te.comm_reducer": {
        "fcombine": lambda: operator.add, "fidentity": lambda: functools.partial(te.const, 0),
    },
    "te.compute": {"fcompute": lambda: (lambda i, j: i + j)},
    "te.if_then_else te.select": {"condition": lambda: te.var("n") < 1},
    "te.all te.any": {"conditions": lambda: [te.var("n") < 1]},
    "te.reduce_axis": {"dom": (0, 4)},
    "te.thread_axis": {"tag": "threadIdx.x"},
    "topi.broadcast_to relay.broadcast_to": {"shape": (2, 4, 8, 8)},
    "topi.concatenate": {"a_tuple": lambda: [image(), image()]},
    "topi.stack": {"tensors": lambda: [image(), image()]},
    "topi.layout_transform": {"src_layout": "NCHW", "dst_layout": "NCHW4c"},
    "topi.logical_and topi.logical_or topi.logical_not topi.where": dict.fromkeys(
        ("lhs", "rhs", "x", "y"), lambda: image(4, dtype="bool")
    ),
    "topi.where": {"condition": lambda: image(4, dtype="bool")},
    "relay.where": {"condition": lambda: vector(4, dtype="bool"), "x": 1.0, "y": 2.0},
    "topi.matmul topi.nn.matmul": {"a": lambda: image(4, 4), "b": lambda: image(4, 4)},
    "topi.nn.batch_matmul": dict.fromkeys(("tensor_a", "tensor_b"), lambda: image(2, 4, 4)),
    "relay.nn.batch_matmul": dict.fromkeys(("tensor_a", "tensor_b"), lambda: vector(2, 4, 4)),
    "topi.nn.batch_norm topi.nn.bias_add": dict.fromkeys(
        ("gamma", "beta", "moving_mean", "moving_var", "bias"), lambda: image(4)
    ),
    "topi.nn.scale_shift_nchw topi.nn.scale_shift_nhwc": dict.fromkeys(
        ("scale", "shift"), lambda: image(4)
    ),
    "topi.nn.scale_shift_nhwc": {"data": lambda: image(1, 4, 4, 4)},
    "relay.nn.batch_norm relay.nn.bias_add": dict.fromkeys(
        ("gamma", "beta", "moving_mean", "moving_var", "bias"), lambda: vector(4)
    ),
    "topi.nn.conv2d topi.nn.conv2d_nchw": {"kernel": lambda: image(4, 4, 3, 3)},
    "topi.nn.conv2d_nhwc": {"data": lambda: image(1, 8, 8, 4), "kernel": lambda: image(3, 3, 4, 4)},
    "topi.nn.conv2d_NCHWc": {
        "data": lambda: image(1, 1, 8, 8, 4), "kernel": lambda: image(1, 1, 3, 3, 4, 4),
    },
    "topi.nn.depthwise_conv2d_nchw": {"kernel": lambda: image(4, 1, 3, 3)},
    "topi.nn.depthwise_conv2d_nhwc": {
        "data": lambda: image(1, 8, 8, 4), "kernel": lambda: image(3, 3, 4, 1),
    },
    "topi.nn.depthwise_conv2d_NCHWc": {
        "data": lambda: image(1, 1, 8, 8, 4), "kernel": lambda: image(1, 1, 3, 3, 1, 4),
    },
    "topi.nn.group_conv2d_nchw": {"kernel": lambda: image(4, 2, 3, 3), "groups": 2},
    "topi.nn.group_conv2d_nhwc": {
        "data": lambda: image(1, 8, 8, 4), "kernel": lambda: image(3, 3, 2, 4), "groups": 2,
    },
    "topi.nn.dense": {"data": lambda: image(2, 4), "weight": lambda: image(3, 4)},
    "topi.nn.get_pad_tuple": {"kernel": (3, 3)},
    "topi.nn.pad": {"pad_before": (0, 0, 1, 1)},
    "topi.nn.pool2d": {"kernel": 2},
    "topi.nn.upsampling": {"scale_h": 2, "scale_w": 2},
    "topi.reshape relay.reshape": {"newshape": (4, 64)},
    "topi.split": {"indices_or_sections": 2},
    "topi.squeeze relay.squeeze": {"axis": 0},
    "topi.strided_slice": {"begin": (0, 0, 0, 0), "end": (1, 2, 3, 4)},
    "relay.Call": {"op": lambda: network()["main"], "args": lambda: [vector(1, 4), vector(3, 4)]},
    "relay.Constant": {"data": lambda: np.zeros(3, "float32")},
    "relay.Function": {"params": lambda: [], "body": lambda: relay.const(1.0)},
    "relay.IRModule": {"functions": lambda: {"main": network()["main"]}},
    "relay.Tuple": {"fields": lambda: [vector()]},
    "relay.TupleGetItem": {"tuple_value": lambda: relay.Tuple([vector()])},
    "relay.TupleType": {"fields": lambda: (relay.TensorType((2, 3)),)},
    "relay.Var relay.var": {"name_hint": "x"},
    "relay.analysis.post_order": {"root": lambda: network()["main"]},
    "relay.bind_params": {"params": dict},
    "relay.concatenate": {"data": lambda: [vector(), vector()]},
    "relay.evaluate": {"graph": lambda: relay.const(1.0)},
    "relay.to_onnx": {"path": "model.onnx"},
    "relay.optimize": {"params": dict},
    "relay.frontend.from_onnx": {"model": "model.onnx"},
    "relay.load": {"path": "library.so"},
    "relay.nn.conv2d": {"weight": lambda: vector(4, 4, 3, 3)},
    "relay.nn.dense": {"data": lambda: vector(2, 4), "weight": lambda: vector(3, 4)},
    "relay.nn.pad": {"pad_width": ((0, 0), (0, 0), (1, 1), (1, 1))},
    "nd.array": {"source": lambda: np.zeros((2, 3))},
    "nd.from_dlpack": {"tensor": lambda: np.zeros((2, 3))},
    "autotvm.ApplyHistoryBest autotvm.apply_history_best auto_scheduler.ApplyHistoryBest": {
        "records": "log.json"
    },
    "autotvm.callback.log_to_file": {"file_out": "out.json"},
    "autotvm.record.pick_best": {"source": "log.json", "target": "best.json"},
    "autotvm.task.extract_from_program auto_scheduler.extract_tasks relay.build": {
        "target": "llvm"
    },
    "autotvm.task.create": {"args": (4, 8, 6)},
    "auto_scheduler.ComputeDAG": {"compute": matmul},
    "auto_scheduler.PreloadCustomSketchRule": dict.fromkeys(
        ("meet_condition_func", "apply_func"), _function
    ),
    "auto_scheduler.SearchTask": {"func": workload_again, "args": (4, 8, 6), "target": "llvm"},
    "auto_scheduler.TuningOptions": {"num_measure_trials": 2},
    "auto_scheduler.distill_record_file": {"in_file": "log.json", "out_file": "best.json"},
    "auto_scheduler.make_workload_key": {"func": workload_again},
    "auto_scheduler.register_workload": {
        "func_name": "drills.other", "f": workload_again, "override": True,
    },
    "auto_scheduler.register_workload_tensors": {"workload_key": "drills.key"},
    "auto_scheduler.save_records": {"inputs": list, "results": list},
    "auto_scheduler.workload_key_to_tensors": {"workload_key": '["drills.doors", 4, 8, 6]'},
    "lower build": {"schedule": lambda: te.create_schedule(matmul()[-1].op), "target": "llvm"},
    "Target target.create": {"text": "llvm -num-cores=2"},
    "device": {"kind": "cpu"},
    "te.create_schedule": {"ops": lambda: matmul()[-1].op},
    "PassContext": {"opt_level": 3},
    "IRModule.from_expr": {"expr": lambda: network()["main"]},
    "GraphModule": {"module": lambda: library()["default"](tilewright.cpu())},
}  # fmt: skip
SPECIAL: dict[str, dict[str, Any]] = {}
for _names, _values in _SPECIAL.items():
    for _name in _names.split():
        SPECIAL[_name] = SPECIAL.get(_name, {}) | _values


def _made(value: Any) -> Any:
    """A fresh object where a function or a class makes it."""
    return value() if callable(value) else value


def _good(name: str, call: Callable[..., Any]) -> Arguments:
    """Arguments for all parameters without a default, and those with one that the tables know."""
    known = SHARED | ROOMS.get(name.partition(".")[0], {}) | SPECIAL.get(name, {})
    found = {}
    for p in inspect.signature(call).parameters.values():
        if p.name in SPECIAL.get(name, {}):
            found[p.name] = _made(SPECIAL[name][p.name])
        elif p.default is not p.empty:
            found[p.name] = p.default
        elif p.name in known:
            found[p.name] = _made(known[p.name])
        else:
            raise LookupError(f"{name}: nothing is known that {p.name} takes")
    return found


# What users call on objects: how to make one, and per method its right arguments.
def _fresh() -> tuple[Any, Any, Any]:
    c = matmul()[-1]
    return te.create_schedule(c.op), c, c.op.axis[0]


def _stage_methods() -> dict[str, Callable[[Any, Any, Any], Arguments]]:
    axis = {name: (lambda s, c, i: {"axis": i}) for name in ("vectorize", "unroll", "parallel")}
    return {
        "split": lambda s, c, i: {"parent": i, "factor": 2, "nparts": None},
        "tile": lambda s, c, i: {"x": i, "y": c.op.axis[1], "x_factor": 2, "y_factor": 2},
        "fuse": lambda s, c, i: {"axes": (i, c.op.axis[1])},
        "reorder": lambda s, c, i: {"axes": (i, c.op.axis[1])},
        "bind": lambda s, c, i: {"axis": i, "thread": te.thread_axis("threadIdx.x")},
        "pragma": lambda s, c, i: {"axis": i, "key": "unroll_explicit", "value": 1},
        "compute_at": lambda s, c, i: {"parent": s[c], "axis": i},
        "set_scope": lambda s, c, i: {"scope": "global"},
        "storage_align": lambda s, c, i: {"axis": i, "factor": 8, "offset": 1},
        **axis,
    }


def _schedule_methods() -> dict[str, Callable[[Any, Any, Any], Arguments]]:
    return {
        "__getitem__": lambda s, c, i: {"key": c},
        "cache_read": lambda s, c, i: {
            "tensor": c.op.input_tensors[0], "scope": "local", "readers": [c], "dtype": "",
        },
        "cache_write": lambda s, c, i: {"tensor": c, "scope": "local"},
        "rfactor": lambda s, c, i: {"tensor": c, "axis": c.op.reduce_axis[0], "factor_axis": 0},
        "pack": lambda s, c, i: {
            "tensor": c.op.input_tensors[0], "blocks": (2, 1), "order": (0, 1, 2),
        },
    }  # fmt: skip


def methods() -> list[Door]:
    """Methods; `self` is one of the arguments, and stays right."""
    found = []
    for of_stage, table in ((True, _stage_methods()), (False, _schedule_methods())):
        for name, arguments in table.items():

            def good(of_stage: bool = of_stage, arguments: Any = arguments) -> Arguments:
                s, c, i = _fresh()
                return {"self": s[c] if of_stage else s, **arguments(s, c, i)}

            s, c, _ = _fresh()
            owner = type(s[c] if of_stage else s)
            found.append(Door(f"{owner.__name__}.{name}", getattr(owner, name), good))
    array = nd.array(np.zeros((2, 3), "float32"))
    module, space = _module(), autotvm.ConfigSpace
    plain: list[tuple[Any, str, Callable[[], Arguments]]] = [
        (array, "copyfrom", lambda: {"source": np.zeros((2, 3), "float32")}),
        (array, "copyto", lambda: {"target": tilewright.cpu()}),
        (kernel(), "__call__", lambda: {"arrays": [nd.empty(n) for n in ((4, 6), (6, 8), (4, 8))]}),
        (
            kernel(),
            "time_evaluator",
            lambda: {"func_name": "main", "dev": tilewright.cpu(), "number": 1},
        ),
        (kernel(), "save", lambda: {"path": "kernel.so"}),
        (module, "set_input", lambda: {"key": "x", "value": np.zeros((1, 4), "float32")}),
        (module, "get_output", lambda: {"index": 0, "out": None}),
        (module, "get_input", lambda: {"key": "x", "out": None}),
        (module, "get_input_index", lambda: {"name": "x"}),
        (library(), "save", lambda: {"path": "library.so"}),
        (library(), "__getitem__", lambda: {"name": "default"}),
        (library(), "load_on", lambda: {"dev": tilewright.cpu()}),
        (network(), "__getitem__", lambda: {"name": "main"}),
        (vector(), "__getitem__", lambda: {"index": 0}),
        (image(), "__getitem__", lambda: {"indices": (0, 0, 0, 0)}),
        (tilewright.Target("llvm"), "with_limits", lambda: {"limits": {"cores": 2}}),
        (space(), "define_split", lambda: {"name": "x", "axis": 8, "policy": "factors"}),
        (space(), "define_knob", lambda: {"name": "x", "candidate": [1, 2]}),
        (space(), "define_reorder", lambda: {"name": "x", "axes": [1, 2], "policy": "all"}),
        (space(), "define_annotate", lambda: {"name": "x", "axes": [1], "policy": "try_unroll"}),
        (space(), "multi_filter", lambda: {"filter": lambda c: True}),
        (space(), "add_flop", lambda: {"flop": 1}),
        (space(), "get", lambda: {"index": 0}),
        (task().config_space, "get", lambda: {"index": 0}),
        (task().config_space, "is_index_valid", lambda: {"index": 0}),
        (task().config_space, "index_of", lambda: {"config": task().config_space.get(0)}),
    ]
    for owner, name, arguments in plain:
        found.append(Door(f"{type(owner).__name__}.{name}", getattr(owner, name), arguments))
    return found


def _module() -> Any:
    return graph_executor.GraphModule(library()["default"](tilewright.cpu()))


def doors() -> list[Door]:
    found: dict[str, Callable[..., Any]] = {}

    def walk(room: str, module: Any) -> None:
        own = [
            n for n, v in vars(module).items() if getattr(v, "__module__", "") == module.__name__
        ]
        for name in sorted(getattr(module, "__all__", own)):
            value, path = getattr(module, name), f"{room}.{name}"
            if path in SKIPPED or name.startswith("_"):
                continue
            if inspect.ismodule(value):
                walk(path, value)
            elif callable(value):
                found[path] = value

    for room, module in (
        ("te", te), ("topi", topi), ("relay", relay), ("nd", nd), ("autotvm", autotvm),
        ("auto_scheduler", auto_scheduler),
    ):  # fmt: skip
        walk(room, module)
    found |= {
        "lower": tilewright.lower, "build": tilewright.build, "device": tilewright.device,
        "cpu": tilewright.cpu, "cuda": tilewright.cuda, "opencl": tilewright.opencl,
        "Target": tilewright.Target, "target.create": tilewright.target.create,
        "te.create_schedule": te.create_schedule, "PassContext": tilewright.transform.PassContext,
        "IRModule.from_expr": relay.IRModule.from_expr, "GraphModule": graph_executor.GraphModule,
    }  # fmt: skip
    return [
        *(Door(n, call, functools.partial(_good, n, call)) for n, call in found.items()),
        *methods(),
    ]
