"""What TVM's home adds to the compiler: readers of TVM's logs, AutoTVM's tuners by name, networks
of `relay.testing`, names that arguments had.

In: nothing.  Out: entries of `base/plugins.py`.  Nothing is imported for them before it is used.
"""

from __future__ import annotations

from tilewright.base import plugins

# AutoTVM's tuners that learn: by which loss, from which features.
_TUNERS = [
    f"{loss}_{features}"
    for loss in ("xgb", "xgb_rank", "xgb_rank_binary")
    for features in ("itervar", "knob", "curve")
]

# Targets of TVM's that have a name and options here, and no code.
NAMED_KINDS = (
    "aocl", "c", "cmsis-nn", "ethos-n", "ethos-u", "ext_dev", "hexagon", "hybrid", "metal", "nvptx",
    "rocm", "sdaccel", "stackvm", "vulkan", "webgpu",
)  # fmt: skip

# Networks that the compiler's zoo has not: `relay/testing/networks.py` makes them.
NETWORKS = (
    *(f"resnet3d-{n}" for n in (18, 34, 50, 101, 152, 200, 269)),
    *(f"densenet-{n}" for n in (121, 161, 169, 201)),
    "dcgan", "dqn", "inception_v3", "lstm", "unet",
)  # fmt: skip


# Functions of TVM's runtime, by their names there.
_FUNCTIONS = {
    "cblas.matmul": "matrix_product",
    "cblas.batch_matmul": "matrix_product",
    "random.normal": "normal_numbers",
    "random.randint": "whole_numbers",
    "random.uniform": "even_numbers",
    "sort.argsort": "sorted_places",
    "sort.argsort_nms": "valid_places",
}


def register() -> None:
    """Tell where everything is; again changes nothing."""
    logs = "tilewright_tvm.logs.tvm_logs"
    plugins.register("logs", {"AutoTVM": f"{logs}:LOG_OF_AUTOTVM", "Ansor": f"{logs}:LOG_OF_ANSOR"})
    plugins.register("templates", {"TVM": "tilewright_tvm.topi.templates"})
    names = {"Device", "Module", "Modules", "Schedule", "Stage"}
    places = {name: f"tilewright_tvm.absent_names:{name.upper()}" for name in names}
    plugins.register("absent names", places)
    schedules = "tilewright_tvm.te.schedule_members"
    plugins.register("members", {name: f"{schedules}:{name}" for name in ("Stage", "Schedule")})
    plugins.register("members", {"Target": "tilewright_tvm.target:Members"})
    configs = "tilewright_tvm.autotvm.config_members"
    kinds = ("ConfigSpace", "ConfigEntity", "FallbackConfigEntity")
    plugins.register("members", {name: f"{configs}:{name}" for name in kinds})
    plugins.register("other names", {"Device": "tilewright_tvm.absent_names:DEVICE_NOW"})
    plugins.register("argument names", {"TVM 0.6": "tilewright_tvm.old_names:modern"})
    plugins.register("tuners", dict.fromkeys(_TUNERS, "tilewright_tvm.autotvm.planned:proposer"))
    plugins.register(
        "networks", dict.fromkeys(NETWORKS, "tilewright_tvm.relay.testing.networks:get_network")
    )
    plugins.register("target options", {"TVM": "tilewright_tvm.target_options:OPTIONS"})
    devices = {name: f"tilewright_tvm.named_kinds:{name}" for name in NAMED_KINDS}
    plugins.register("device kinds", devices)
    functions = "tilewright_tvm.contrib.functions"
    places = {f"tvm.contrib.{name}": f"{functions}:{own}" for name, own in _FUNCTIONS.items()}
    plugins.register("functions", places | {"tilewright.same_bits": f"{functions}:same_bits"})
