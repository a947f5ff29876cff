"""Rows of the page of TVM's names about tensor expressions and schedules.

Read next: `make_compatibility.py`.
"""

from __future__ import annotations

from compatibility_rows import Row, different, not_yet, works

TENSORS: list[Row] = [
    *works("te.", "placeholder compute reduce_axis thread_axis create_schedule var const"),
    *works("te.", "sum max min comm_reducer if_then_else all any Tensor"),
    *works("te.", "exp log sqrt rsqrt tanh sigmoid erf sin cos floor ceil round abs power"),
    *works("C.", "shape dtype ndim name op op.name op.tag op.axis op.reduce_axis"),
    *works("C.", "op.input_tensors"),
    *works("te.", "size_var fmod log2 log10 exp2 exp10 trunc isnan floordiv floormod indexdiv"),
    *works("te.", "isinf isfinite"),
    *works("te.", "indexmod min_value max_value infinity popcount clz"),
    *works("te.", "nearbyint log1p ldexp hypot div tag_scope"),
    different("te.atan2", "and te.copysign: -0.0 counts as a positive zero", "te.atan2"),
    different("te.max(a, b)", "of two values, also min, sum, prod; axis=1 is refused", "te.max"),
    *works("te.schedule.", "Schedule Stage IterVar Split Fuse AutoInlineElemWise"),
    *works("te.schedule.", "AutoInlineBroadcast AutoInlineInjective"),
    different("te.schedule.InferBound", "a dict, of the axes of stages that are not inlined"),
    different("te.schedule.ScheduleOps", "lower: a Program, which prints as loops"),
    different("tir.PrimFunc", "for isinstance: what lower gives"),
    different("te.truncdiv", "truncmod, too: towards zero, by floor division", "te.truncdiv"),
    different(
        "te.reduce_axis((0, i))",
        "a loop over all values there can be, of which those in the range count",
        "te.reduce_axis",
    ),
    different("te.sum(init=)", "and te.max, min, prod; not together with where=", "te.sum"),
    different(
        "te.comm_reducer of a tuple",
        "fcombine must be commutative where values are equal, too, or which of them is found "
        "depends on the schedule",
        "te.comm_reducer",
    ),
    different(
        "C.shape of te.var",
        "one kernel for every n: extents are what a call's arrays say; tuning, records, flops "
        "and hashes need numbers: ComputeDAG(tensors).at(n=64)",
        "C.shape",
    ),
    different("C.shape with a 0", "built and run, but not tuned; te.var is at least 1", "C.shape"),
    different("A[i][k]", "reads the element that A[i, k] does", "te.Tensor"),
    *works("tir.", "if_then_else const var indexmod indexdiv floormod floordiv all any"),
    *works("tir.", "max min exp log sqrt tanh sigmoid abs power call_intrin Cast PrimExpr"),
    *works("tir.", "IntImm FloatImm Add Sub Mul Div FloorDiv FloorMod Min Max EQ NE LT LE"),
    *works("tir.", "GT GE And Or Not Var SizeVar popcount layout bijective_layout"),
    different("tir.Select", "both sides may be evaluated"),
    different(
        "te.scan",
        "states have one shape; an update is the loop nest of the scan, its time axis stays "
        "outermost; threads of a GPU read of the state what they stored; not tuned",
    ),
    different(
        "te.extern",
        "of statements: computed on its own, not tuned, tensors row-major; an index that data "
        "put outside reads the nearest element and stores nothing",
    ),
    *works("tir.", "ir_builder ir_builder.create"),
    different(
        "tir.ir_builder.create().allocate",
        "outside of loops and threads it is seen by all kernels of the stage; barriers come by "
        "themselves",
        "tir.ir_builder.create",
    ),
    different(
        "tir.call_packed",
        "given by the function of te.extern, not inside statements: the whole stage, on CPUs, "
        "in the process that calls the module",
    ),
    *works("", "register_func get_global_func"),
    different("contrib.cblas.matmul", "and batch_matmul, by numpy's library; not tuned"),
    different(
        "tir.decl_buffer",
        "for te.extern, and binds= of build and lower; row-major from the first element on; with "
        "strides for te.decl_tensor_intrin",
    ),
    different(
        "te.decl_tensor_intrin",
        "tiles of fixed size that divide the loops, in plain rows; such schedules are not tuned",
    ),
    different("tir.call_extern", "as a statement of te.decl_tensor_intrin, for llvm"),
    different(
        "tir.Ramp",
        "and tir.Broadcast, vload and constants of types such as float32x4: in statements of "
        "te.extern, not in te.compute",
    ),
    different(
        "te.gradient",
        "not through te.scan, te.extern and stages of several tensors; of equal values under a "
        "maximum the first has it",
    ),
    different(
        "te.hybrid.script",
        "outputs hold zeros where nothing is stored, as they do in Python; a store to an input "
        "is refused, assert is checked by Python only; its loops are not scheduled",
    ),
    different("te.hybrid.build", "and HybridModule; not of threads that share memory"),
    different(
        "tir.stmt_functor",
        "substitute and post_order_visit, of expressions",
    ),
    different(
        "arith.Analyzer",
        "bind of values and ranges of numbers, simplify, const_int_bound, can_prove",
    ),
    *not_yet("te.", "create_prim_func"),
    *not_yet("tir.", "Schedule transform"),
    *not_yet("tir.", "analysis"),
]

OLD: list[Row] = [
    *works("", "placeholder compute create_schedule reduce_axis thread_axis var const sum max min"),
    *works("", "select if_then_else all any exp log tanh sqrt floordiv floormod indexdiv indexmod"),
    *works("", "comm_reducer scan extern call_packed call_pure_intrin decl_buffer tag_scope"),
    *works("", "hybrid.script ir_builder.create expr.Var tensor.Tensor api.convert ndarray.array"),
    *works("", "module.load module.enabled build_module.build TVMContext target.current_target"),
    *works("", "contrib.graph_runtime.create contrib.debugger.debug_runtime contrib.util.tempdir"),
    *works("", "relay.Module relay.module.Module relay.transform.PassContext relay.alpha_equal"),
    *works("", "autotvm.task.register autotvm.measure.measure_methods topi.util"),
    different("nd.array(ctx=)", "device, wherever a function has device= or dev=", "nd.array"),
    different("build_config", "a PassContext; add_lower_pass is refused, others change nothing"),
    different("relay.build_config", "a PassContext; fallback_device and trace are refused"),
    different(
        "@autotvm.template over a function",
        "its own name is the template's; autotvm.task.create takes the function itself",
        "autotvm.template",
    ),
    *not_yet("", "ir_pass make register_extension support tir.ir_pass relay.ir_pass"),
    *not_yet("", "autotvm.task.extract_from_graph contrib.dlpack contrib.rocblas"),
    *works("", "te.operation te.autodiff tir.expr tir.stmt tir.op rpc.base relay.op.nn.nn"),
    *works("", "relay.op.transform relay.op.vision schedule.AutoInlineInjective"),
    *not_yet("", "vta dlight ffi datatype codegen.build_module expr.Load relay.visualize"),
    *not_yet("", "contrib.popen_pool contrib.sdaccel contrib.tflite_runtime contrib.thrust"),
    *not_yet("", "contrib.tvmjs exec.rpc_proxy exec.autotvm_log_editor exec.tune_relay rpc.proxy"),
    *not_yet("", "relay.testing.tf relay.testing.darknet relay.frontend.tensorflow"),
    *not_yet("", "relay.frontend.common topi.hexagon topi.adreno arith.DetectClipBound"),
    *not_yet("", "auto_scheduler.ProgramMeasurer dev.max_clock_rate"),
]

SCHEDULES: list[Row] = [
    *works("s[C].", "split fuse reorder tile bind compute_at compute_inline compute_root"),
    *works("s[C].", "vectorize unroll parallel storage_align op leaf_iter_vars all_iter_vars"),
    *works("s[C].", "iter_var_attrs relations"),
    *works("s.", "cache_read cache_write rfactor stages outputs"),
    different("s[C].set_scope", "scopes are global, shared, fragment and local"),
    different(
        "s[C].pragma",
        "auto_unroll_max_step; vectorize, unroll and parallel are the primitives; unroll_explicit "
        "and the hints parallel_* have no effect; import_llvm links a text; any other is refused",
    ),
    different(
        "s[C].tensorize",
        "of a te.decl_tensor_intrin, and of a matrix instruction by its name, which ir/atoms.py "
        "lists",
    ),
    *not_yet("s[C].", "prefetch env_threads"),
    different("s[C].double_buffer", "no effect: copies do not overlap arithmetic"),
    different(
        "s[C].set_store_predicate",
        "of threads that would store the same one stores anyway; any other is refused",
    ),
    *not_yet("s[C].", "rolling_buffer transform_layout"),
    *works("s.", "normalize"),
    different("s.create_group", "compute_at and compute_root; only its steps are recorded"),
    *works("s[C].", "group attach_type attach_stage attach_ivar"),
]
