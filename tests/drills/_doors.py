"""Every public function with arguments that are right, and the wrong values tried in their place.

In: nothing.  Out: `doors()`, each with a function and, from `_door_arguments.py`, arguments that it
accepts; `files()`, what some of these name; `values()`, objects of every kind that users have.
"""

from __future__ import annotations

import functools
import inspect
import io
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

import tilewright
import tilewright_tvm
from drills._door_arguments import (
    Arguments,
    good,
    image,
    kernel,
    library,
    matmul,
    network,
    search_task,
    task,
    vector,
)
from tilewright import runtime
from tilewright_tvm import auto_scheduler, autotvm, nd, relay, te, tir, topi, tvmc
from tilewright_tvm.contrib import cblas, graph_executor
from tilewright_tvm.contrib import random as contrib_random
from tilewright_tvm.contrib.debugger import debug_executor
from tilewright_tvm.runtime.vm import VirtualMachine


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


def files() -> None:
    """Writes the files that arguments name into the present folder."""
    Path("log.json").touch()
    Path("model.onnx").write_bytes(relay.to_onnx(network()).SerializeToString())
    library().export_library("library.so")
    runtime.save_param_dict_to_file({}, "weights.params")


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
        network()["main"], relay.Tuple([vector()]), relay.Tuple([]), vector(3, dtype="int32"),
        vector(1, 4, 8, 0), vector(0), vector(2, 3, dtype="bool"), image(3, dtype="int32"),
        image(2, 4), relay.TensorType((2, 3)), nd.array([1.0]),
        tilewright.cpu(), tilewright.Target("llvm"), task(), search_task(), relay.nn, kernel(),
        autotvm.ConfigSpace(), autotvm.LocalRunner(),
    ]  # fmt: skip


# What they are given they call, and pass its errors on.
CALLED = ("observe", "change", "fvisit")
# Made by other functions, never by users.
SKIPPED = {
    "te.Combiner", "te.ComputeOp", "te.ExternOp", "te.Expr", "te.PlaceholderOp", "te.ScanOp",
    "te.Tensor", "te.TensorIntrin",
    "te.IterVar", "relay.Expr", "relay.PASSES", "nd.NDArray", "relay.ExprFunctor",
    "relay.ExprMutator",
    "relay.ExprVisitor", "relay.ScopeBuilder", "relay.IncompleteType",
    "relay.TypeKind",  # its members are used
    "relay.expr", "relay.expr_functor", "relay.ty", "autotvm.task.dispatcher",  # other names
    "relay.testing", "topi.testing", "relay.op", "relay.Library", "relay.nn.pair", "relay.nn.sides",
    "autotvm.ConfigEntity", "autotvm.MeasureErrorNo", "autotvm.MeasureInput",
    "autotvm.MeasureResult", "autotvm.task.Task",
    "autotvm.task.ConfigEntity",
    "auto_scheduler.PythonBasedModel", "auto_scheduler.PythonBasedMeasureCallback",
    "auto_scheduler.LocalRPCMeasureContext",
    "auto_scheduler.LayoutRewriteOption",  # its members are used
}  # fmt: skip


# What users call on objects: how to make one, and per method its right arguments.
def _fresh() -> tuple[Any, Any, Any]:
    c = matmul()[-1]
    return te.create_schedule(c.op), c, c.op.axis[0]


def _cache(s: Any, c: Any) -> Any:
    """The stage of a cache, which may be placed and laid out as one likes."""
    return s[s.cache_write(c, "local")]


def _stage_methods() -> dict[str, Callable[[Any, Any, Any], Arguments]]:
    axis = {name: (lambda s, c, i: {"axis": i}) for name in ("vectorize", "unroll", "parallel")}
    return {
        "split": lambda s, c, i: {"parent": i, "factor": 2, "nparts": None},
        "tile": lambda s, c, i: {"x": i, "y": c.op.axis[1], "x_factor": 2, "y_factor": 2},
        "fuse": lambda s, c, i: {"axes": (i, c.op.axis[1])},
        "reorder": lambda s, c, i: {"axes": (i, c.op.axis[1])},
        "bind": lambda s, c, i: {"axis": i, "thread": te.thread_axis("threadIdx.x")},
        "pragma": lambda s, c, i: {"axis": i, "key": "unroll_explicit", "value": 1},
        "compute_at": lambda s, c, i: {
            "self": _cache(s, c), "parent": s[c], "axis": s[c].op.axis[0],
        },
        "set_scope": lambda s, c, i: {"scope": "global"},
        "storage_align": lambda s, c, i: {
            "self": (stage := _cache(s, c)), "axis": stage.op.axis[0], "factor": 8, "offset": 1,
        },
        "storage_order": lambda s, c, i: {
            "self": (stage := _cache(s, c)), "axes": (stage.op.axis[0],),
        },
        **axis,
    }  # fmt: skip


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
        "pad": lambda s, c, i: {"tensor": c, "multiples": {i: 16}},
        "as_product": lambda s, c, i: {
            "tensor": c, "m": [i], "n": [c.op.axis[1]], "k": list(c.op.reduce_axis),
        },
    }  # fmt: skip


def methods() -> list[Door]:
    """Methods; `self` is one of the arguments, and stays right."""
    found = []
    for of_stage, table in ((True, _stage_methods()), (False, _schedule_methods())):
        for name, arguments in table.items():

            def fresh(of_stage: bool = of_stage, arguments: Any = arguments) -> Arguments:
                s, c, i = _fresh()
                return {"self": s[c] if of_stage else s, **arguments(s, c, i)}

            s, c, _ = _fresh()
            owner = type(s[c] if of_stage else s)
            found.append(Door(f"{owner.__name__}.{name}", getattr(owner, name), fresh))
    array = nd.array(np.zeros((2, 3), "float32"))
    module, space = _module(), autotvm.ConfigSpace
    debugger = debug_executor.GraphModuleDebug(library()["default"](tilewright.cpu()))
    debugger.set_input("x", np.zeros((1, 4), "float32"))
    debugger.set_input("w", np.zeros((3, 4), "float32"))
    debugger.run()
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
        (debugger, "debug_get_output", lambda: {"node": 0, "out": None}),
        (module, "get_input_index", lambda: {"name": "x"}),
        (library(), "export_library", lambda: {"file_name": "saved.so"}),
        (library(), "__getitem__", lambda: {"name": "default"}),
        (library(), "load_on", lambda: {"dev": tilewright.cpu()}),
        (module, "set_input_zero_copy", lambda: {
            "key": "x", "value": nd.array(np.zeros((1, 4), "float32")),
        }),
        (module, "load_params", lambda: {"params_bytes": runtime.save_param_dict({})}),
        (module, "share_params", lambda: {
            "other": module, "params_bytes": runtime.save_param_dict({}),
        }),
        (module, "__getitem__", lambda: {"name": "run"}),
        (network(), "__getitem__", lambda: {"name": "main"}),
        (network(), "get_global_var", lambda: {"name": "main"}),
        (network(), "update_func", lambda: {"var": "main", "func": network()["main"]}),
        (network(), "update", lambda: {"other": network()}),
        (relay.create_executor("debug", network()), "evaluate", dict),
        (relay.Tuple([vector()]), "__getitem__", lambda: {"index": 0}),
        (image(), "__getitem__", lambda: {"indices": (0, 0, 0, 0)}),
        (tilewright.Target("llvm"), "with_limits", lambda: {"limits": {"cores": 2}}),
        (space(), "define_split", lambda: {"name": "x", "axis": 8, "options": {"num_outputs": 2}}),
        (space(), "define_knob", lambda: {"name": "x", "candidate": [1, 2]}),
        (space(), "define_reorder", lambda: {
            "name": "x", "axes": [1, 2], "policy": "candidate",
            "options": {"candidate": [[1, 2], [2, 1]]},
        }),
        (space(), "define_annotate", lambda: {
            "name": "x", "axes": [1], "policy": "locate_cache", "options": {"num_anchor": 1},
        }),
        (space(), "multi_filter", lambda: {"filter": lambda c: True}),
        (space(), "add_flop", lambda: {"flop": 1}),
        (space(), "get", lambda: {"index": 0}),
        (task().config_space, "get", lambda: {"index": 0}),
        (task().config_space, "is_index_valid", lambda: {"index": 0}),
        (task().config_space, "index_of", lambda: {"config": task().config_space.get(0)}),
    ]  # fmt: skip
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
        "load_module": runtime.load_module,
        "save_param_dict_to_file": runtime.save_param_dict_to_file,
        "load_param_dict_from_file": runtime.load_param_dict_from_file,
        "VirtualMachine": VirtualMachine, "register_func": tilewright.register_func,
        "get_global_func": tilewright.get_global_func, "contrib.cblas.matmul": cblas.matmul,
        "contrib.cblas.batch_matmul": cblas.batch_matmul,
        **{f"contrib.random.{n}": getattr(contrib_random, n) for n in contrib_random.__all__},
        "tir.decl_buffer": tir.decl_buffer, "tir.call_packed": tir.call_packed,
        "cpu": tilewright.cpu, "cuda": tilewright.cuda, "opencl": tilewright.opencl,
        "Target": tilewright.Target, "target.create": tilewright_tvm.target.create,
        "te.create_schedule": te.create_schedule, "te.extern": te.extern, "te.scan": te.scan,
        "te.gradient": te.gradient, "PassContext": tilewright_tvm.transform.PassContext,
        "IRModule.from_expr": relay.IRModule.from_expr, "GraphModule": graph_executor.GraphModule,
        "graph_executor.create": graph_executor.create,
        "debug_executor.create": debug_executor.create,
        "tvmc.load": tvmc.load, "tvmc.compile": tvmc.compile, "tvmc.run": tvmc.run,
        "tvmc.TVMCModel": tvmc.TVMCModel, "tvmc.TVMCPackage": tvmc.TVMCPackage,
        "tvmc.TVMCResult": tvmc.TVMCResult,  # tune is not here: a wrong budget is a long one
        "tvmc.frontends.get_frontend_by_name": tvmc.frontends.get_frontend_by_name,
        "tvmc.frontends.guess_frontend": tvmc.frontends.guess_frontend,
        "tvmc.autotuner.autotvm_get_tuning_tasks": tvmc.autotuner.autotvm_get_tuning_tasks,
        "tvmc.autotuner.autoscheduler_get_tuning_tasks":
            tvmc.autotuner.autoscheduler_get_tuning_tasks,
        "tvmc.common.parse_shape_string": tvmc.common.parse_shape_string,
        "tvmc.result_utils.get_top_results": tvmc.result_utils.get_top_results,
        "tvmc.runner.generate_tensor_data": tvmc.runner.generate_tensor_data,
        "tvmc.target.target_from_cli": tvmc.target.target_from_cli,
        "tvmc.transform.convert_graph_layout": tvmc.transform.convert_graph_layout,
    }  # fmt: skip
    return [
        *(Door(n, call, functools.partial(good, n, call)) for n, call in found.items()),
        *methods(),
        *front_door(),
    ]


def front_door() -> list[Door]:
    """All of it but `tune`, of which a wrong budget is a long one."""
    compiled = {"target": "llvm", "log": None, "verify": False, "knowledge": False}
    return [
        Door("load", tilewright.load, lambda: {
            "model": network(), "inputs": None, "params": {}, "shape": None, "batch": (),
            "dtype": "float32", "layout": None,
        }),
        Door("compile", tilewright.compile, lambda: {
            "what": tilewright.load(network()), **compiled, "partial_batches": False
        }),
        Door("open", tilewright.open, lambda: {"path": "library.so", "device": None}),
        Door("task", tilewright.task, lambda: {
            "computation": matmul(), "args": (), "target": "llvm"
        }),
    ]  # fmt: skip
