"""Names of TVM's devices, modules and schedules that are no attributes of ours: what they are here.

In: an attribute that an object of ours lacks.  Out: entries of `base/plugins.py`: what has another
name, or what to use instead.  Read next: `elsewhere.py`, whose names are those of modules.
"""

_STREAM = "Work is enqueued on one stream; dev.sync() waits for it."
_DOCTOR = "Run `tilewright doctor`: it shows the device."
MODULE = {
    "implement_function": "Call the module, or the function that module[name] gives.",
    "import_module": "Not needed: one file holds the code of host and device.",
    "save_to_file": "Use save, or export_library.",
}
MODULES = dict.fromkeys(
    ("save", "export_library", "time_evaluator", "get_source"),
    "Each function has its own: m[name].save(file).",
)
DEVICE_NOW = {
    "device_name": "name", "multi_processor_count": "target.limits.cores",
    "max_thread_dimensions": "target.limits.max_block",
    "l2_cache_size_bytes": "target.limits.l2_bytes",
}  # fmt: skip
DEVICE = {
    "compute_version": "Its architecture is dev.arch.",
    "max_clock_rate": "Clocks are not asked; what the device reports is in dev.limits.",
    **dict.fromkeys(("create_raw_stream", "free_raw_stream", "set_raw_stream"), _STREAM),
    **dict.fromkeys(
        ("api_version", "driver_version", "total_global_memory", "available_global_memory"),
        _DOCTOR,
    ),
}
STAGE = {
    "env_threads": "Bind the loops of the stage.",
    "prefetch": "Use s.cache_read and compute_at.",
    "rolling_buffer": "Use compute_at: the buffer holds what one iteration needs.",
    "transform_layout": "Use s.pack for constants; reorder loops for computed tensors.",
}
SCHEDULE = dict.fromkeys(
    ("schedule_record", "primitive_record"), "s.steps has the steps, s.to_python() their text."
)
