"""Targets as users of tvmc write them: with the host behind a comma, with options by kind.

In: text or a target, arguments of a command.  Out: a `Target`.  Read next: `targets/target.py`.
"""

from __future__ import annotations

import argparse
import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from tilewright.base.doors import door
from tilewright.base.errors import TargetError
from tilewright.targets.kind import kind as kind_named
from tilewright.targets.kind import kinds
from tilewright.targets.spelling import OTHER_OPTIONS
from tilewright.targets.target import Target
from tilewright_tvm.plugin import NAMED_KINDS
from tilewright_tvm.tvmc import composite_target

_LIMITS = (
    "max_num_threads", "max_threads_per_block", "max_shared_memory_per_block", "thread_warp_size",
)  # fmt: skip
_OF_A_VALUE = r",(?=[^\s,])(?!(?:llvm|cuda|opencl)(?:[\s,]|$))"  # a comma that ends no target
_PARTS = re.compile(rf"""-{{1,2}}[\w-]+=(?:'[^']*'|"[^"]*"|[^\s,'"]|{_OF_A_VALUE})+|,|[^\s,]+""")


@door(TargetError)
def target_from_cli(
    target: str, additional_target_options: Mapping[str, Mapping[str, Any]] | None = None
) -> tuple[Target, list[dict[str, Any]]]:
    """`"cuda"`, or `"opencl -device=mali, llvm -mtriple=aarch64-linux-gnu"` with the host; what
    `Target` takes as JSON; or the path of a file with one of these.

    The list has what compilers of others are named in front, as `parse_target` gives it: none is
    called.  Raises TargetError for what is no target.
    """
    if os.path.isfile(target):
        try:
            target = Path(target).read_text(encoding="utf-8").strip()
        except (OSError, UnicodeDecodeError) as error:
            reason = f"the file of that name is no text ({type(error).__name__})"
            raise TargetError(f"target {target!r}", reason, "Name a target.") from None
    if target.lstrip().startswith("{"):
        return Target(target), []
    given = parse_target(target)
    extra = [each for each in given if each["name"] in composite_target.get_codegen_names()]
    if given[-1] in extra:
        composite_target.refuse(given[-1]["name"])
    made = [Target(each["raw"]) for each in given if each not in extra]
    names = [str(each.kind) for each in made]
    if not 1 <= len(made) <= 2 or len({*names}) < len(names):
        raise TargetError(
            f"target {target!r}", "these are no device and its host",
            'Write one target, or two: "cuda, llvm -mcpu=skylake".',
        )  # fmt: skip
    more = additional_target_options or {}
    for name, options in more.items():
        if name not in (*names, *(each["name"] for each in extra)):
            option = f"--target-{name}-{next(iter(options), '')}"
            raise TargetError(
                f"Passed {option} but did not specify {name} target",
                f"the target is {target!r}", f"Give options of {' or '.join(names)}.",
            )  # fmt: skip
    made = [_with(each, more.get(str(each.kind), {})) for each in made]
    for each in extra:
        each["opts"] |= more.get(each["name"], {})
    return Target(made[0], made[1]) if len(made) == 2 else made[0], extra


def tokenize_target(target: str) -> list[str]:
    """Split the text of targets into names, options and the commas between targets."""
    return _PARTS.findall(target)


def parse_target(target: str) -> list[dict[str, Any]]:
    """Read the text of targets: of each its name, its options, its text, and whether it is a
    target and no compiler of others.

    Raises TargetError for what is no option.
    """
    parts: list[list[str]] = [[]]
    for token in tokenize_target(target):
        if token == ",":
            parts.append([])
        else:
            parts[-1].append(token)
    return [_parsed(words, target) for words in parts]


def _parsed(words: list[str], target: str) -> dict[str, Any]:
    name, *options = words or [""]
    opts: dict[str, Any] = {}
    for option in options:
        key, equals, value = option.lstrip("-").partition("=")
        if not option.startswith("-") or not (equals or option.startswith("--")):
            raise TargetError(
                f"target {target!r}", f"cannot read {option!r}", "Write options as -name=value."
            )
        opts[key] = value.strip("'\"") if equals else True
    known = name in _names()
    return {"name": name, "opts": opts, "raw": " ".join(words), "is_tvm_target": known}


def generate_target_args(parser: argparse.ArgumentParser) -> None:
    """Add `--target`, and an option for each of every kind: `--target-llvm-mcpu`."""
    parser.add_argument("--target", help="a target, its host behind a comma, JSON, or a file")
    for name in _names():
        group = parser.add_argument_group(f"target {name}")
        for option in _options(name):
            group.add_argument(
                f"--target-{name}-{option}", type=int if option in _LIMITS else str,
                help=f"target {name} {option}",
            )  # fmt: skip


def reconstruct_target_args(args: argparse.Namespace) -> dict[str, dict[str, Any]]:
    """Give what the options of `generate_target_args` say, by kinds, for `target_from_cli`."""
    found = {
        name: {option: value for option in _options(name) if (value := _said(args, name, option))}
        for name in _names()
    }
    return {name: options for name, options in found.items() if options}


def _said(args: argparse.Namespace, name: str, option: str) -> Any:
    return getattr(args, f"target_{name}_{option}".replace("-", "_"), None)


def _names() -> Iterator[str]:
    """The kinds that are targets, whether code is made for them or not."""
    others = composite_target.get_codegen_names()
    return (n for n in dict.fromkeys([*(k.name for k in kinds()), *NAMED_KINDS]) if n not in others)


def _options(name: str) -> list[str]:
    return list(dict.fromkeys([*OTHER_OPTIONS, *kind_named(name).options, *_LIMITS]))


def chosen_target(
    target: Target | str, target_host: Target | str | None = None,
    additional_target_options: Mapping[str, Mapping[str, Any]] | None = None,
) -> Target:  # fmt: skip
    """The target of `tune` and `compile`.  Raises TargetError."""
    made, extra = target_from_cli(str(target), additional_target_options)
    if extra:
        composite_target.refuse(extra[0]["name"])
    if isinstance(target, Target) and not additional_target_options:
        made = target  # with limits, which its text does not tell
    return made if target_host is None else Target(made, target_host)


def _with(target: Target, options: Mapping[str, Any]) -> Target:
    return Target({**target.export(), **options}) if options else target
