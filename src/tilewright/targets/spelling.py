"""How options of targets are spelled: in text, as TVM's dicts, as values.

In: what a user gave.  Out: options by name, as text; their values; TargetErrors.
Read next: `target.py`, which is made of them.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping
from dataclasses import dataclass, fields
from numbers import Integral
from typing import Any

from tilewright.base import plugins
from tilewright.base.errors import TargetError
from tilewright.targets.kind import DeviceKind
from tilewright.targets.limits import Limits
from tilewright.targets.precision import FLOAT32, PRECISIONS

OTHER_OPTIONS = (
    "arch", "mcpu", "mattr", "mtriple", "mfloat-abi", "num-cores", "device", "keys", "libs",
    "model", "precision",
)  # fmt: skip
FIELDS = fields(Limits)
LIMIT_NAMES = {f.name for f in FIELDS if f.type == "int"}  # annotations are text
# TVM's words for limits, where they are others.
_TVMS_LIMITS = {
    "max_shared_memory_per_block": "shared_bytes_per_block",
    "thread_warp_size": "warp_size",
    "max_num_threads": "max_threads_per_block",
    "l2_cache_size_bytes": "l2_bytes",
}
_LISTS = ("mattr", "libs", "keys")
_FLOAT_ABIS = {"gnueabihf": "hard", "gnueabi": "soft"}  # by the end of a triple


@dataclass(frozen=True)
class Foreign:
    """An option that other compilers have, among plugins "target options".

    means: the option of ours that says the same; "" where none is needed
    values: with which it changes nothing here; none: all of them
    flag: it may stand without a value, which is 1 then
    """

    means: str = ""
    values: tuple[str, ...] = ()
    flag: bool = False


_DERIVED = ("kind", "host", "keys", "tag")  # what a target of TVM, as a dict, holds besides options


def limit_named(option: str) -> str:
    """The field of `Limits` that an option gives; "" for any other."""
    name = option.replace("-", "_")
    name = _TVMS_LIMITS.get(name, name)
    return name if name in LIMIT_NAMES else ""


def value_of(name: str, text: str) -> Any:
    """The value of an option: a number, a list or the text."""
    if name == "num-cores" or limit_named(name):
        return int(text)
    return [word for word in text.split(",") if word] if name in _LISTS else text


def is_by_device(given: Mapping[Any, Any]) -> bool:
    """Whether a dict holds targets by their devices, and is none itself."""
    return given.keys().isdisjoint(("kind", "tag"))


def spelled(given: Mapping[Any, Any], place: str) -> str:
    """The text of a target that is given as TVM's dict of a kind, or a tag, and options."""
    words = [str(given.get("kind", given.get("tag")))]
    for name, value in given.items():
        if name in _DERIVED:
            continue
        items = value if isinstance(value, (list, tuple)) else [value]
        if not all(isinstance(v, (str, int, Integral)) for v in items):
            raise TargetError(
                place, f"{name} cannot be {value!r}", "Give a string, a number or a list of them."
            )
        words.append(f"-{name}={','.join(str(v) for v in items)}")
    return shlex.join(words)


def from_json(text: str, place: str) -> Mapping[Any, Any]:
    """A target as TVM's dict.  Raises TargetError for any other text."""
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        found = None
    if isinstance(found, Mapping) and not is_by_device(found):
        return found
    raise TargetError(place, "it is no JSON of a target", 'It looks like {"kind": "llvm"}.')


def options_of(words: list[str], place: str) -> dict[str, str]:
    """Of `-name=value` and `--name value`; the last of one name counts."""
    found, left = {}, iter(words)
    for word in left:
        name, eq, value = word.lstrip("-").partition("=")
        if not eq and any(name in t and t[name].flag for t in plugins.every("target options")):
            eq, value = "=", "1"
        if not eq:
            value = next(left, "")
        if not word.startswith("-") or (not eq and (not value or value.startswith("-"))):
            raise TargetError(place, f"cannot read {word!r}", "Write options as -name=value.")
        found[name] = value
    return found


def without_foreign(options: Mapping[str, str], known: DeviceKind) -> dict[str, str]:
    """Options in this compiler's words, without those of others that change nothing here."""
    found: dict[str, str] = {}
    for name, value in options.items():
        if name not in (*OTHER_OPTIONS, *known.options) and not limit_named(name):
            told = next((t[name] for t in plugins.every("target options") if name in t), None)
            if told is not None and (not told.values or value in told.values):
                if told.means:
                    found[told.means] = value
                continue
        found[name] = value
    return found


def check_options(place: str, options: Mapping[str, str], known: DeviceKind) -> None:
    """Raises TargetError for names and values that a target cannot have."""
    for name, value in options.items():
        if name == "num-cores" or limit_named(name):
            if not (value.isascii() and value.isdigit() and int(value) > 0):
                raise TargetError(
                    place, f"-{name} must be a whole number from 1, not {value!r}",
                    f"For example -{name}=16.",
                )  # fmt: skip
        elif name not in (*OTHER_OPTIONS, *known.options):
            listed = " ".join(f"-{option}" for option in OTHER_OPTIONS)
            raise TargetError(
                place, f"unknown option -{name}",
                f"Known: {listed} and the integers of Limits, such as -max-threads-per-block.",
            )  # fmt: skip
    for word in filter(None, options.get("mattr", "").split(",")):
        if word[0] not in "+-":
            raise TargetError(
                place, f"-mattr does not say whether {word!r} is there",
                f"Write +{word}, or -{word} where it is not.",
            )  # fmt: skip
    _check_float_abi(place, options)
    _check_precision(place, options)


def _check_precision(place: str, options: Mapping[str, str]) -> None:
    asked = options.get("precision", FLOAT32)
    if asked not in PRECISIONS:
        raise TargetError(
            place, f"-precision={asked} is none of {', '.join(PRECISIONS)}",
            "Networks know float16 and bfloat16, too. Other types are a computation's own: give "
            "its tensors that dtype.",
        )  # fmt: skip


def _check_float_abi(place: str, options: Mapping[str, str]) -> None:
    """-mfloat-abi says of 32-bit ARM what -mtriple does, which counts."""
    asked, triple = options.get("mfloat-abi"), options.get("mtriple", "")
    told = next((abi for end, abi in _FLOAT_ABIS.items() if triple.endswith(end)), "")
    if asked is None or asked == told or (not told and asked in _FLOAT_ABIS.values()):
        return
    raise TargetError(
        place, f"-mfloat-abi={asked} is not that of the triple {triple!r}",
        "Name it there: -mtriple=armv7l-linux-gnueabihf is hard, -gnueabi soft.",
    )  # fmt: skip
