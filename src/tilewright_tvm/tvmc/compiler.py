"""`tvmc.compile`: a model built for a target, as one file.

In: a `TVMCModel`, a target, a log.  Out: a `TVMCPackage`.
Read next: `network/build.py`, `model.py`.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

from tilewright.base import output
from tilewright.base.doors import door
from tilewright.base.errors import ModelError
from tilewright.base.terminal import say
from tilewright.graph.expr import IRModule
from tilewright.network.conversion import in_layout
from tilewright.runtime.network.library import Library
from tilewright.runtime.own_files import write_source
from tilewright.targets.target import Target
from tilewright_tvm.instrument import PassTimingInstrument
from tilewright_tvm.relay.backend import Executor, Runtime
from tilewright_tvm.relay.contextual import build
from tilewright_tvm.transform import PassContext
from tilewright_tvm.tvmc.model import TVMCModel, TVMCPackage
from tilewright_tvm.tvmc.target import chosen_target

_RELAY = output.FileKind(
    "the text of a network", output.beginning(b"#[version", b"def @", b"type ")
)


@door(ModelError)
def compile_model(
    tvmc_model: TVMCModel, target: Target | str, opt_level: int = 3,
    executor: Executor | None = None, runtime: Runtime | None = None,
    tuning_records: str | os.PathLike[str] | None = None,
    package_path: str | os.PathLike[str] | None = None, cross: str | None = None,
    cross_options: str | None = None, output_format: str | None = None,
    dump_code: str | Sequence[str] | None = None, target_host: Target | str | None = None,
    desired_layout: str | None = None, disabled_pass: Sequence[str] | None = None,
    pass_context_configs: Sequence[str] | None = None,
    additional_target_options: Mapping[str, Mapping[str, Any]] | None = None,
    instruments: Sequence[Any] | None = None, print_pass_times: bool = False,
    use_vm: bool = False,
) -> TVMCPackage:  # fmt: skip
    """Build a model with the best that is known, and write one file that runs without the compiler.

    target:         such as "llvm -mcpu=skylake"; with its host behind a comma or as `target_host`
    opt_level:      below 3 nothing is folded into weights, below 2 nothing is fused
    tuning_records: a log of `tune`, or of AutoTVM; there it must be
    package_path:   default: beside the model, so that `TVMCModel.save` takes it along
    cross:          a C compiler that links for the target, where the package is a shared object
    output_format:  "so" or "tar"; default: the end of `package_path`, else "tar"
    dump_code:      texts to write beside the package, at `package_path` with these ends: "relay",
                    and of the kernels "ll" and "asm" for a CPU, "cu" for CUDA, "cl" for OpenCL
    desired_layout: of convolutions, such as "NHWC"
    disabled_pass, instruments: see `transform.PassContext`
    pass_context_configs: its `config`, as ["name=value"]
    additional_target_options: by kind of target: {"llvm": {"mcpu": "skylake"}}
    print_pass_times: print what each pass takes
    Raises ModelError for a network that cannot be compiled.
    """
    if tuning_records is not None and not os.path.exists(tuning_records):
        raise ModelError(
            f"tuning_records={os.fspath(tuning_records)!r}", "there is no such file",
            "tvmc.tune writes one, and returns its path.", command="`tvmc tune` writes one.",
        )  # fmt: skip
    if use_vm:
        raise ModelError(
            "compile(use_vm=True)", "a package holds a network for the sizes it was built for",
            "Leave it out; for sizes that are not known before, relay.vm.compile in one process.",
        )  # fmt: skip
    chosen = chosen_target(target, target_host, additional_target_options)
    watch = [PassTimingInstrument()] if print_pass_times else []
    with PassContext(
        opt_level=opt_level, disabled_pass=disabled_pass,
        instruments=[*(instruments or ()), *watch], config=_config(pass_context_configs or ()),
    ):  # fmt: skip
        mod = in_layout(tvmc_model.mod, desired_layout)
        library = build(
            mod,
            chosen,
            tvmc_model.params,
            tuning_records,
            executor=executor,
            runtime=runtime,
        )
    path = tvmc_model.export_package(library, package_path, cross, cross_options, output_format)
    for end in [dump_code] if isinstance(dump_code, str) else dump_code or ():
        for part in end.split(","):
            _dump(mod, library, path, part.strip())
    for each in watch:
        say(f"Compilation time breakdown by pass:\n{each.render()}")
    return TVMCPackage(path)


def _dump(mod: IRModule, library: Library, path: str, end: str) -> None:
    text = str(mod) if end == "relay" else library.get_source(end)
    file, place = f"{path}.{end}", f"dump_code={end!r}"
    if end == "relay":
        output.write(file, text.encode(), _RELAY, place, ModelError)
    else:
        write_source(file, text, place, ModelError)


def _config(given: Sequence[str]) -> dict[str, Any]:
    """`["tir.disable_vectorize=true"]` as a dict.  Raises ModelError."""
    found: dict[str, Any] = {}
    for text in given:
        name, equals, value = text.partition("=")
        if not name or not equals:
            raise ModelError(
                f"pass_context_configs={text!r}", "it is no name=value",
                "Example: relay.FuseOps.max_depth=4.",
            )  # fmt: skip
        words = {"true": True, "false": False}
        found[name] = int(value) if value.lstrip("-").isdigit() else words.get(value, value)
    return found
