"""Rows of the page that compares names: of the auto-scheduler, of spaces, of functional Relay.

In: names as the original has them.  Out: `Row`s by section.  Read next: `make_compatibility.py`.
"""

from __future__ import annotations

from dataclasses import dataclass

from compatibility_text import EACH_ONCE

WORKS, DIFFERENT, NOT_YET = "works", "different", "not yet"


@dataclass(frozen=True)
class Row:
    """One name as users type it, without `tilewright.`.

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
        *works("policy.", "generate_sketches sample_initial_population evolutionary_search"),
        different(
            "auto_scheduler.XGBModel",
            "useful before the first trial; the three options about warming up have no effect",
        ),
        *works("model.", "update predict update_from_file save load"),
        different("auto_scheduler.PreloadMeasuredStates", "restores population, model and best"),
        different(
            "auto_scheduler.PreloadCustomSketchRule",
            "apply_func changes the state, a search.rules.state.State, or copies of it: those of "
            "[[state, id], [copy, id]] are a sketch each; loops are spread over the cores as far "
            "as it computes a stage in them",
        ),
        *works("auto_scheduler.", "get_task_input_buffer register_task_input_check_func"),
        *works("auto_scheduler._ffi_api.", "SearchPolicyUtilsGetConsumers"),
        *works("auto_scheduler._ffi_api.", "SearchPolicyUtilsIsElementwiseMatch"),
        *works("auto_scheduler.", "prepare_input_map register_task_input_buffer PythonBasedModel"),
        *not_yet("auto_scheduler.", "rewrite_compute_body"),
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
