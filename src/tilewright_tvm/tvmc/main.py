"""TVM's command line `tvmc`: tune, compile, run, with the options that TVM gives them.

What an option of TVM's asks for and is not here is refused, with what to do instead, before
anything is read.  In: a command line.  Out: an exit code: 0; 2 for a wrong option; 4, as in TVM,
for an error, which is told in one line.  Read next: `autotuner.py`, `compiler.py`, `runner.py`.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from typing import Any, NoReturn

from tilewright import __version__
from tilewright.base.errors import ModelError, TilewrightError, named
from tilewright.base.terminal import say
from tilewright.farm.address import parsed
from tilewright.runtime.network.archives import FILLS, read_arrays
from tilewright.search.propose.named import tuners
from tilewright_tvm.auto_scheduler.hardware import HardwareParams
from tilewright_tvm.tvmc.autotuner import TRIALS, tune_model
from tilewright_tvm.tvmc.compiler import compile_model
from tilewright_tvm.tvmc.frontends import get_frontend_names, load_model
from tilewright_tvm.tvmc.model import FORMATS, TVMCModel, TVMCPackage
from tilewright_tvm.tvmc.result_utils import get_top_results
from tilewright_tvm.tvmc.runner import run_module
from tilewright_tvm.tvmc.shape_parser import parse_shape_string
from tilewright_tvm.tvmc.target import generate_target_args, reconstruct_target_args

ERROR = 4
_PROG = "python -m tilewright_tvm.driver.tvmc"
_DEVICES = {"cpu": "cpu", "cuda": "cuda", "gpu": "cuda", "cl": "opencl", "opencl": "opencl"}
_HARDWARE = (
    "num-cores", "cache-line-bytes", "vector-unit-bytes", "max-shared-memory-per-block",
    "max-local-memory-per-block", "max-threads-per-block", "max-vthread-extent", "warp-size",
)  # fmt: skip
_MIXED = "a network is converted as a whole", "Use `tilewright compile MODEL --dtype float16`."
_MICRO = "microcontrollers are no target", "TVM 0.18 was the last version that has microTVM."
_PASSES = "there is no text between all passes", "Use --dump-code relay, ll, asm, cu or cl."
# Options of TVM's, or how they begin: why they are refused, and what to do.
_REFUSED = {
    "--config": ("files of options are not read", "Give the options themselves."),
    "--desired-layout-ops": ("a layout is of all convolutions", "Leave it out."),
    "--dump-offloads": ("compilers of others are not called", "Leave it out."),
    "--executor-": ("networks run by one executor, which has no options", "Leave it out."),
    "--list-options": _MICRO,
    "--log-estimated-latency": ("the log has each time", "See `tilewright records FILE`."),
    "--mixed-precision": _MIXED,
    "--module-name": ("a package holds one network", "Leave it out."),
    "--options": _MICRO,
    "--print-ir-": _PASSES,
    "--project-option": _MICRO,
    "--runtime-": ("there is one runtime, which has no options", "Leave it out."),
    "--workspace-pools": ("memory is planned by itself", "Leave it out."),
}


def run(arguments: Sequence[str]) -> int:
    """Carry out a command line of `tvmc`, and return its exit code."""
    parser = _parser()
    args, unknown = parser.parse_known_args(arguments)
    if args.version:
        say(__version__)
        return 0
    if args.command is None:
        parser.print_help()
        return 0
    try:
        for option in unknown:
            _refuse_if_known(args.command, option.partition("=")[0])
        if unknown:
            parser.error(f"unrecognized arguments: {' '.join(unknown)}")
        args.does(args)
    except TilewrightError as error:
        say(f"Error: {error.in_command()}", stream=sys.stderr)
        return ERROR
    return 0


def main() -> NoReturn:
    """Carry out `sys.argv`, and exit."""
    sys.exit(run(sys.argv[1:]))


_main = run  # which scripts import from TVM


def _refuse_if_known(command: str, option: str) -> None:
    for begin, (reason, way_out) in _REFUSED.items():
        if option == begin or option.startswith(f"{begin.rstrip('-')}-"):
            raise ModelError(f"tvmc {command} {option}", reason, way_out)


# -- options ---------------------------------------------------------------------------------------


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        _PROG, description="Tune, compile and run networks, with the options of TVM's tvmc.",
        epilog="The command `tilewright` does the same, and more.", allow_abbrev=False,
    )  # fmt: skip
    parser.add_argument("-v", "--verbose", action="count", default=0, help="without effect")
    parser.add_argument("--version", action="store_true", help="print the version")
    commands = parser.add_subparsers(dest="command", title="commands")
    for name, add in (("tune", _tune), ("compile", _compile), ("run", _run), ("micro", _micro)):
        sub = commands.add_parser(name, help=add.__doc__, allow_abbrev=False)
        sub.add_argument("-v", "--verbose", action="count", default=0, help=argparse.SUPPRESS)
        add(sub)
    return parser


def _tune(parser: argparse.ArgumentParser) -> None:
    """search for fast kernels for a model"""
    parser.set_defaults(does=_do_tune)
    _model_options(parser)
    parser.add_argument("-o", "--output", required=True, help="log of results, added to")
    parser.add_argument(
        "--tuning-records", metavar="PATH", help="a log that the search starts from"
    )
    parser.add_argument("--trials", type=int, default=TRIALS, help="for each task, on average")
    parser.add_argument("--early-stopping", type=int, help="a task ends after so many without gain")
    parser.add_argument("--tuner", choices=[*tuners(), "xgb-rank"], default="xgb")
    parser.add_argument("--tasks", help="numbers such as 0,2-4; all; list prints them")
    parser.add_argument("--enable-autoscheduler", action="store_true", help="by rules")
    parser.add_argument("--include-simple-tasks", action="store_true", help="also by rules")
    for name, kind in (("number", int), ("repeat", int), ("parallel", int), ("timeout", float)):
        parser.add_argument(f"--{name}", type=kind)
    parser.add_argument("--min-repeat-ms", type=float)
    for name in _HARDWARE:
        parser.add_argument(f"--{name}", type=int, help="for --enable-autoscheduler")
    _tracker_options(parser)


def _compile(parser: argparse.ArgumentParser) -> None:
    """build a model into one file"""
    parser.set_defaults(does=_do_compile)
    _model_options(parser)
    parser.add_argument("-o", "--output", default="module.tar", help="default: module.tar")
    parser.add_argument("-f", "--output-format", choices=[*FORMATS, "mlf"])
    parser.add_argument("--tuning-records", metavar="PATH", help="log of tune, or of AutoTVM")
    parser.add_argument("-O", "--opt-level", type=int, choices=range(4), default=3)
    parser.add_argument("--cross-compiler", help="a C compiler that links for the target")
    parser.add_argument("--cross-compiler-options")
    parser.add_argument("--dump-code", metavar="FORMATS", help="relay, ll, asm, cu, cl")
    parser.add_argument("--disabled-pass", help="names, with commas between")
    parser.add_argument("--pass-config", action="append", metavar="NAME=VALUE")
    parser.add_argument("--print-pass-times", action="store_true")
    parser.add_argument("--executor", choices=["graph", "aot"], default="graph")
    parser.add_argument("--runtime", choices=["cpp", "crt"], default="cpp")
    parser.add_argument("--use-vm", action="store_true", help=argparse.SUPPRESS)


def _run(parser: argparse.ArgumentParser) -> None:
    """run what compile wrote"""
    parser.set_defaults(does=_do_run)
    parser.add_argument("PATH", help="the file that compile wrote")
    parser.add_argument("--device", choices=[*_DEVICES, "micro"], help="default: its target's")
    parser.add_argument("--fill-mode", choices=FILLS, default="random")
    parser.add_argument("-i", "--inputs", "--input", metavar="FILE.npz")
    parser.add_argument("-o", "--outputs", "--output", metavar="FILE.npz")
    parser.add_argument("--print-time", action="store_true", help="time it, and print a table")
    parser.add_argument("--print-top", type=int, metavar="N", help="the N greatest numbers")
    parser.add_argument("--profile", action="store_true", help="print what each kernel takes")
    parser.add_argument("--end-to-end", action="store_true", help="count copies to and from it")
    parser.add_argument("--repeat", type=int, default=1, metavar="N")
    parser.add_argument("--number", type=int, default=1, metavar="N")
    _tracker_options(parser)


def _micro(parser: argparse.ArgumentParser) -> None:
    """is refused: microcontrollers are no target"""
    parser.set_defaults(does=_do_micro)
    parser.add_argument("rest", nargs=argparse.REMAINDER)


def _model_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("FILE", help="a model of ONNX or PyTorch")
    parser.add_argument("--model-format", choices=get_frontend_names())
    parser.add_argument("--input-shapes", type=parse_shape_string, help="data:[1,3,224,224]")
    parser.add_argument("--desired-layout", help="of convolutions: NCHW, NHWC")
    parser.add_argument("--target-host", help="or behind a comma in --target")
    generate_target_args(parser)


def _tracker_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--rpc-tracker", metavar="HOST:PORT", help="whose devices are used")
    parser.add_argument("--rpc-key", help="which of them")


# -- commands --------------------------------------------------------------------------------------


def _do_tune(args: argparse.Namespace) -> None:
    given = {name.replace("-", "_"): _of(args, name) for name in _HARDWARE}
    said = {name: value for name, value in given.items() if value is not None}
    tune_model(
        _model(args), _target(args), target_host=args.target_host, tuning_records=args.output,
        prior_records=args.tuning_records,
        enable_autoscheduler=args.enable_autoscheduler, trials=args.trials, tuner=args.tuner,
        min_repeat_ms=args.min_repeat_ms, early_stopping=args.early_stopping,
        timeout=args.timeout, repeat=args.repeat, number=args.number, parallel=args.parallel,
        desired_layout=args.desired_layout, include_simple_tasks=args.include_simple_tasks,
        hardware_params=HardwareParams(**said) if said else None,
        additional_target_options=reconstruct_target_args(args), tasks_filter=args.tasks,
        **_tracker(args),
    )  # fmt: skip


def _do_compile(args: argparse.Namespace) -> None:
    for option, value in (("executor", "aot"), ("runtime", "crt"), ("output-format", "mlf")):
        if _of(args, option) == value:
            raise ModelError(
                f"tvmc compile --{option} {value}", "this is for microcontrollers, no target here",
                "Leave it out; TVM 0.18 was the last version that has microTVM.",
            )  # fmt: skip
    passes = args.disabled_pass.split(",") if args.disabled_pass else None
    records = args.tuning_records or None
    with named(f"--tuning-records {records}", f"tuning_records={records!r}"):
        compile_model(
            _model(args), _target(args), target_host=args.target_host,
            opt_level=args.opt_level, tuning_records=records,
            package_path=args.output, cross=args.cross_compiler or None,
            cross_options=args.cross_compiler_options or None, output_format=args.output_format,
            dump_code=args.dump_code or None, desired_layout=args.desired_layout,
            disabled_pass=passes, pass_context_configs=args.pass_config,
            additional_target_options=reconstruct_target_args(args),
            print_pass_times=args.print_pass_times, use_vm=args.use_vm,
        )  # fmt: skip


def _do_run(args: argparse.Namespace) -> None:
    if args.device == "micro":
        raise ModelError("tvmc run --device micro", *_MICRO)
    with named(args.PATH, f"load_module({args.PATH!r})", f"load({args.PATH!r})"):
        package = TVMCPackage(args.PATH)
    result = run_module(
        package, _DEVICES[args.device] if args.device else None,
        inputs=read_arrays(args.inputs, f"--inputs {args.inputs}") if args.inputs else None,
        fill_mode=args.fill_mode, benchmark=args.print_time, repeat=args.repeat,
        number=args.number, profile=args.profile, end_to_end=args.end_to_end, **_tracker(args),
    )  # fmt: skip
    if args.print_time:
        say(result.format_times())
    if args.print_top:
        say(str(get_top_results(result, args.print_top)))
    if args.outputs:
        result.save(args.outputs)


def _do_micro(args: argparse.Namespace) -> NoReturn:
    raise ModelError("tvmc micro", *_MICRO)


def _model(args: argparse.Namespace) -> TVMCModel:
    with named(args.FILE, f"load({args.FILE!r})"):
        return load_model(args.FILE, args.model_format, args.input_shapes)


def _target(args: argparse.Namespace) -> str:
    if args.target is None:
        raise ModelError(
            f"tvmc {args.command} {args.FILE}", "there is no target",
            "Give --target llvm, cuda or opencl, perhaps with options.",
        )  # fmt: skip
    return str(args.target)


def _tracker(args: argparse.Namespace) -> dict[str, Any]:
    if args.rpc_tracker is None:
        return {"hostname": None, "port": None, "rpc_key": args.rpc_key}
    host, port = args.rpc_tracker, None
    if host.rpartition(":")[2].isdigit():
        host, port = parsed(host)
    return {"hostname": host, "port": port, "rpc_key": args.rpc_key}


def _of(args: argparse.Namespace, option: str) -> Any:
    return getattr(args, option.replace("-", "_"))
