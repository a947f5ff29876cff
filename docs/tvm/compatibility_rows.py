"""Rows of the page that compares names: of passes, the auto-scheduler, spaces, gradients and
functional Relay.

In: names as the original has them.  Out: `Row`s by section.  Read next: `make_compatibility.py`.
"""

from __future__ import annotations

from dataclasses import dataclass

from compatibility_text import EACH_ONCE

WORKS, DIFFERENT, NOT_YET = "works", "different", "not yet"


@dataclass(frozen=True)
class Row:
    """One name as users type it, without the package.

    use: for DIFFERENT, the name here, where it is another one
    """

    name: str
    state: str
    note: str = ""
    use: str = ""


def works(prefix: str, names: str) -> list[Row]:
    return [Row(prefix + name, WORKS) for name in names.split()]


def not_yet(prefix: str, names: str) -> list[Row]:
    return [Row(prefix + name, NOT_YET) for name in names.split()]


def different(name: str, note: str, use: str = "") -> Row:
    return Row(name, DIFFERENT, note, use)


PASSES: list[Row] = [
    different(
        "relay.transform.ConvertLayout",
        "convolutions and poolings are named, all else follows; channels that do not fill "
        "whole blocks of NCHW8c stay as they are",
    ),
    different(
        "relay.transform.AlterOpLayout",
        "for CPUs blocks of as many channels as a vector holds; an optional target; with "
        "register_alter_op_layout a user's functions instead",
    ),
    *works("relay.transform.", "FoldScaleAxis BackwardFoldScaleAxis MergeComposite"),
    *works("relay.transform.", "FoldExplicitPadding"),
    different(
        "relay.transform.FakeQuantizationToInteger",
        "results as far as one step from those before; rounds as quantize does",
    ),
    different(
        "relay.transform.ForwardFoldScaleAxis",
        "through a sum only where the scale is a constant without zeros",
    ),
    different(
        "transform.Sequential",
        "outside of a PassContext every pass of it runs; inside one, levels count as in TVM",
    ),
]

AUTO_SCHEDULER: dict[str, list[Row]] = {
    "Auto-scheduler: tasks and policies": [
        *works("auto_scheduler.", "register_workload make_workload_key workload_key_to_tensors"),
        *works("auto_scheduler.", "create_task auto_schedule is_auto_scheduler_enabled"),
        *works("auto_scheduler.", "register_workload_tensors ComputeDAG EmptyPolicy RandomModel"),
        *works("dag.", "apply_steps_from_state infer_bound_from_state get_init_state flop_ct"),
        *works("dag.", "tensors hash_key print_dag"),
        different(
            "dag.workload_key", "to the letter TVM's hash; a workload function's key has its name"
        ),
        different(
            "dag.print_python_code_from_state",
            "begins by making `s` and a variable per stage out of `tensors`, so it runs",
        ),
        different(
            "auto_scheduler.SearchTask",
            "task_inputs also go by the inputs' own names",
        ),
        *works("search_task.", "compute_dag workload_key target hardware_params desc"),
        *works("search_task.", "apply_best"),
        different("auto_scheduler.LayoutRewriteOption", "no input changes its shape"),
        different("search_task.tune", "gives a Report; Ctrl-C keeps what was measured"),
        different("search_task.print_best", "print_mode: schedule, or the target's kind"),
        different(
            "auto_scheduler.loop_state.State",
            "all steps but tensorize; pragma: auto_unroll_max_step$N only; it prints as this "
            "project's loop nests, and the ranges of loops are always known",
        ),
        different("inp.state", "a loop_state.State"),
        *works("auto_scheduler.feature.", "get_per_store_feature_names"),
        *(
            different(
                f"auto_scheduler.feature.get_per_store_features_from_{what}",
                "164 columns a store by TVM's names; counted from the loop tree, so some numbers "
                "differ: cost/store_features.py says which",
            )
            for what in ("states", "measure_pairs", "file")
        ),
        *not_yet("auto_scheduler.feature.", "features_from_primfunc named_features_from_primfunc"),
        different("auto_scheduler.HardwareParams", "cache_line_bytes has no effect"),
        different(
            "auto_scheduler.SketchPolicy",
            "templates that fit compete with the rules, unless templates=False; params have "
            "their effect where given (mutation_prob is knobs of a child on average), else the "
            "search sizes itself; retry_search_one_round_on_empty and "
            "disable_change_compute_location say what is so anyway",
        ),
        *works("policy.", "sample_initial_population evolutionary_search"),
        different(
            "policy.generate_sketches",
            "states whose open lengths are those of the first configuration, before loops are "
            "marked; with the sketch's origin, space and close(index)",
        ),
        different(
            "auto_scheduler.XGBModel",
            "useful before the first trial; the three options about warming up have no effect",
        ),
        *works("model.", "update predict update_from_file save load"),
        different("auto_scheduler.PreloadMeasuredStates", "restores population, model and best"),
        different(
            "auto_scheduler.PreloadCustomSketchRule",
            "apply_func changes the state, a search.rules.state.PartialSketch, or copies of it: "
            "those of [[state, id], [copy, id]] are a sketch each; loops are spread over the cores "
            "as far as it computes a stage in them",
        ),
        *works("auto_scheduler.", "get_task_input_buffer register_task_input_check_func"),
        *works("auto_scheduler.workload_registry.", "WORKLOAD_FUNC_REGISTRY"),
        *works("testing.auto_scheduler.", "matmul_auto_scheduler_test get_tiled_matmul"),
        *works("testing.auto_scheduler.", "conv2d_nchw_bn_relu_auto_scheduler_test"),
        *works("auto_scheduler._ffi_api.", "SearchPolicyUtilsGetConsumers"),
        *works("auto_scheduler._ffi_api.", "SearchPolicyUtilsIsElementwiseMatch"),
        *works("auto_scheduler._ffi_api.", "SearchPolicyUtilsIsTiled"),
        *works(
            "auto_scheduler._ffi_api.SearchPolicyUtilsHas",
            "CacheWriteStage CacheReadStage RfactorStage CrossThreadReduction",
        ),
        *works("auto_scheduler.", "prepare_input_map register_task_input_buffer PythonBasedModel"),
        *not_yet("auto_scheduler.", "rewrite_compute_body"),
        *not_yet("auto_scheduler.", "dynamic_gradient_search task_scheduler.droplet_exploitation"),
        *not_yet("auto_scheduler._ffi_api.", "SerializeSearchTask DeserializeSearchTask"),
    ],
    "Auto-scheduler: measuring, logs, networks": [
        different(
            "auto_scheduler.TuningOptions",
            "a budget may be seconds=, too; early_stopping counts trials without any improvement",
        ),
        different("auto_scheduler.LocalBuilder", "build_func is a function, or default"),
        different("auto_scheduler.LocalRunner", "a candidate clearly slower is timed briefly"),
        different("auto_scheduler.LocalRPCMeasureContext", "a LocalRunner: no tracker, no server"),
        different("auto_scheduler.MeasureInput", "has the whole record"),
        different(
            "auto_scheduler.MeasureResult",
            "error_msg is the full text; without verified=True it is never the best of a log",
        ),
        *works("auto_scheduler.", "PythonBasedMeasureCallback"),
        different("auto_scheduler.RecordToFile", "this project's JSON lines, not TVM's"),
        *works("auto_scheduler.", "save_records distill_record_file"),
        *(
            different(f"auto_scheduler.{name}", EACH_ONCE)
            for name in ("RecordReader", "load_records")
        ),
        different("auto_scheduler.load_best_record", "raises where there is none"),
        *works("auto_scheduler.", "measure_record load_best"),
        *works("auto_scheduler.measure_record.", "dump_record_to_string load_record_from_string"),
        *works("auto_scheduler.measure.", "recover_measure_input LocalBuilder.build"),
        *works("auto_scheduler.measure.", "LocalRunner.run RPCRunner.run"),
        *works("auto_scheduler.", "ApplyHistoryBest"),
        different(
            "auto_scheduler.extract_tasks",
            "tasks and weights of TVM's partition, in network order; a convolution is stated "
            "directly, never as Winograd's; other_targets is refused",
        ),
        different(
            "auto_scheduler.TaskScheduler",
            "time goes by the loop's predicted gain, by Ansor's gradient where alpha, beta or "
            "backward_window_size is given; the Trials column counts trials; gamma is refused",
        ),
        *works("scheduler.", "tune best_costs task_cts ct dead_tasks"),
        *works("auto_scheduler.", "TaskSchedulerCallback PrintTableInfo LogEstimatedLatency"),
        *works("auto_scheduler.utils.", "request_remote calc_workload_dis_factor get_const_tuple"),
        *works("remote.", "upload load_module listdir remove cpu cl cuda device"),
        different("auto_scheduler.RPCRunner", "n_parallel is accepted and not needed"),
        *not_yet("auto_scheduler.", "load_from_file write_to_file rewrite_tensor_shape"),
        *not_yet("auto_scheduler.", "remove_index_check get_shape_from_rewritten_layout"),
        *not_yet("auto_scheduler.", "ApplyHistoryBestOrSample DispatchContext FallbackContext"),
        *not_yet("auto_scheduler.", "enable_relay_integration"),
    ],
}

SPACES: dict[str, list[Row]] = {
    "AutoTVM: templates and spaces": [
        *works("autotvm.", "template get_config ConfigSpace ConfigEntity FallbackConfigEntity"),
        *works("cfg.", "axis reduce_axis define_split define_knob define_reorder define_annotate"),
        *works("cfg.", "add_flop raise_error valid space_map dims range_length subrange_length"),
        *works("cfg.", "get point2knob knob2point is_index_valid get_next_index"),
        different("cfg.get_rand_index", "ends when everything is excluded, and says so"),
        different("cfg.sample_ints", "an optional generator makes it repeatable"),
        different("cfg.random_walk", "an optional generator makes it repeatable"),
        different("cfg.multi_filter", "tested when a configuration, or len(space), is asked for"),
        *works("cfg['tile'].", "apply size"),
        *works("cfg['knob'].", "val"),
        *works("config.", "get_flatten_feature get_other_option to_json_dict from_json_dict"),
        *works("fallback.", "fallback_split fallback_with_reference_log is_fallback"),
        different(
            "autotvm.register_topi_compute",
            "the name up to its dot is the operator whose kernels get the template; another "
            "computation is another implementation, taken where its records are faster",
        ),
        *works("autotvm.", "register_topi_schedule"),
    ],
}

GRADIENTS: list[Row] = [
    different(
        "relay.transform.gradient",
        "both modes give the same function, without references or closures, whose result may be "
        "differentiated again; all operators of this page have a gradient but a few of images and "
        "boxes; integers have none, nor has what waits for values that decide a shape",
    ),
    *works("relay.transform.", "FirstOrderGradient"),
    different(
        "relay.transform.PartialEvaluate",
        "calls of functions become what these compute, what depends on constants only its value",
    ),
    different(
        "relay.transform.LazyGradientInit",
        "tensors of zeros and ones become numbers, or disappear; there are no cells that wait",
    ),
    *works("relay.", "annotation.checkpoint op.register_gradient testing.count_ops"),
    different(
        "relay.testing.check_grad",
        "differences are those of the evaluator in float64, whatever the function computes in",
    ),
    *works("testing.", "check_numerical_grads"),
]


TUNERS: dict[str, list[Row]] = {
    "AutoTVM: tasks, measuring, tuners": [
        different(
            "autotvm.task.create",
            "also takes TVM's own templates by their names, listed at the end",
        ),
        *works("autotvm.", "create TaskExtractEnv"),
        *works("autotvm.task.", "extract_from_program extract_from_multiple_program get_workload"),
        *works("task.", "name args target workload flop config_space"),
        different("task.instantiate", "close(index) gives the schedule", "sketch.close"),
        *works("autotvm.", "measure_option MeasureInput MeasureResult"),
        different(
            "autotvm.measure.Runner",
            "subclass it with run(measure_inputs, build_results): one input at a time; the tuner "
            "goes by what it says, networks are never built from its records",
        ),
        different(
            "autotvm.LocalBuilder",
            "timeout, n_parallel and build_func (a function of an importable module)",
        ),
        different(
            "autotvm.LocalRunner",
            "no cost is dropped; a candidate that is clearly slower is timed briefly: race=False "
            "times all alike",
        ),
        *works("autotvm.tuner.", "RandomTuner GridSearchTuner GATuner"),
        different(
            "autotvm.tuner.XGBTuner",
            "the project's own features and candidates unless feature_type or optimizer is given; "
            "then AutoTVM's, counted from the loop tree, and only what the device can run is "
            "planned",
        ),
        different(
            "autotvm.tuner.DropletTuner",
            "starts from what runs untuned, where there is that; start_position=[0, ...] is TVM's",
        ),
        *works("tuner.", "tune next_batch has_next update reset set_error_threshold best_config"),
        *works("tuner.", "best_flops best_iter best_measure_pair ttl space visited"),
        *works("tuner.", "range_length index_offset counter"),
        different(
            "GATuner.genes",
            "and pop_size: of the generation that is tried now, without what cannot run",
            "autotvm.tuner.GATuner.genes",
        ),
        different(
            "DropletTuner.best_choice",
            "and execution, step, batch, total_execution, next, dims: of this search, which goes "
            "on to neighbours further away by itself",
            "autotvm.tuner.DropletTuner.best_choice",
        ),
        different(
            "XGBTuner.cost_model",
            "predict(indices) of what the tuner learned, and base_model, of what a history told",
            "autotvm.tuner.XGBTuner.cost_model",
        ),
        different(
            "LocalRunner.ref_input",
            "refused: inputs are drawn; SearchTask(task_inputs=) has values of the user's",
            "autotvm.LocalRunner.ref_input",
        ),
        different(
            "tuner.load_history",
            "records of any task on devices of the kind; any number helps, unless "
            "min_seed_records is given",
        ),
        *works("autotvm.callback.", "progress_bar Monitor"),
        different("autotvm.callback.log_to_database", "a tilewright.measure.Database"),
        *works("autotvm.feature.", "get_itervar_feature_flatten get_buffer_curve_sample_flatten"),
        *works("autotvm.feature.", "get_itervar_feature flatten_itervar_feature get_flatten_name"),
        *works("autotvm.", "database database.DummyDatabase"),
        *works("autotvm.", "measure.local_executor.LocalExecutor measure.executor.Executor"),
        *works("autotvm.", "task.task.compute_flop MeasureErrorNo"),
        *works("autotvm.task.", "serialize_args deserialize_args args_to_workload"),
        *works("testing.autotvm.", "DummyRunner matmul get_sample_task get_sample_records"),
        different(
            "autotvm.tuner.xgboost_cost_model.XGBoostCostModel",
            "what it scores are numbers of an order; fit_log needs no 500 records unless "
            "min_seed_records is given",
        ),
        different("autotvm.callback.log_to_file", "this project's JSON lines, not TVM's"),
        *works("autotvm.record.", "pick_best measure_str_key split_workload"),
        different("autotvm.record.encode", "this project's JSON line"),
        different("autotvm.record.decode", "reads lines of both"),
        different("autotvm.record.load_from_buffer", "gives Records, as load_from_file"),
        different(
            "autotvm.record.load_from_file",
            "gives Records, of which `inp, result = record` makes TVM's pair; of a log of TVM the "
            "lines of templates that are known here",
        ),
        different(
            "autotvm.apply_history_best", "logs of AutoTVM, too; relay.build verifies what they say"
        ),
        *works("autotvm.", "ApplyHistoryBest ApplyConfig ApplyFixedConfig FallbackContext"),
        *works("autotvm.", "apply_fixed_config task.clear_fallback_cache GLOBAL_SCOPE"),
        *works("autotvm.", "DispatchContext DispatchContext.current"),
        *works("autotvm.", "ApplyGraphBest apply_graph_best"),
        different(
            "autotvm.RPCRunner",
            "as many trials at once as there are devices: n_parallel is accepted and not needed",
        ),
        different("autotvm.tophub.context", "changes nothing: what is known is used without it"),
        *not_yet("autotvm.", "database.RedisDatabase"),
        *(
            different(
                f"autotvm.graph_tuner.{name}",
                "layouts are those of candidate_layouts; records may be of AlterOpLayout's and "
                "ConvertLayout's networks; relay.build chooses from such a log by itself",
            )
            for name in ("DPTuner", "PBQPTuner")
        ),
    ],
}


FUNCTIONAL = [
    *works("relay.", "TypeVar GlobalTypeVar TypeCall RefType TypeData Constructor Match"),
    *works("relay.", "Clause PatternVar PatternWildcard PatternConstructor PatternTuple"),
    *works("relay.", "RefCreate RefRead RefWrite adt.Match ty.TypeVar"),
    *works("relay.prelude.", "Prelude StaticTensorArrayOps TensorArrayOps"),
    *works("IRModule.", "get_type get_global_type_var get_constructor import_from_std"),
    *works("relay.testing.", "count make_nat_value make_nat_expr"),
    *works("relay.backend.interpreter.", "ConstructorValue RefValue"),
    *works("relay.", "transform.LambdaLift transform.InferTypeLocal transform.EtaExpand"),
    *works("relay.analysis.", "unmatched_cases"),
    different("relay.vm.VMCompiler", "lower compiles; optimize gives the module of relay.optimize"),
    different(
        "closures, data types, references under relay.build",
        'refused: relay.create_executor("vm") and relay.vm.compile run them; of a data type '
        'they give a list with a tag, "debug" a ConstructorValue',
        "relay.create_executor",
    ),
]
