"""`relay.backend`: what TVM's build is made of; here `relay.build` has no parts to choose.

`Executor("graph")` and `Runtime("cpp")` name what there is, for scripts that pass them on.
Read next: `network/build.py`.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tilewright.base.errors import ModelError
from tilewright_tvm.elsewhere import find
from tilewright_tvm.relay.backend import interpreter, te_compiler

__all__ = ["Executor", "Runtime", "interpreter", "te_compiler"]


@dataclass(frozen=True)
class Executor:
    """How a network runs: "graph", as `contrib.graph_executor` does it."""

    name: str = "graph"

    def __post_init__(self) -> None:
        _require(self.name, "relay.backend.Executor", "graph")

    def __getitem__(self, option: str) -> bool:
        """Of "link-params" False: code has no weights.  Raises ModelError for another option."""
        if option != "link-params":
            raise ModelError(
                f"relay.backend.Executor({self.name!r})[{option!r}]", "it has no such option",
                'There is "link-params".',
            )  # fmt: skip
        return False


@dataclass(frozen=True)
class Runtime:
    """What it runs on: "cpp", the package `tilewright.runtime`."""

    name: str = "cpp"
    options: Mapping[str, Any] | None = None

    def __post_init__(self) -> None:
        _require(self.name, "relay.backend.Runtime", "cpp")
        if self.options:
            raise ModelError(
                f"relay.backend.Runtime({self.name!r}, {self.options!r:.60})", "it has no options",
                "Leave them out: lib.export_library writes one file.",
            )  # fmt: skip


def _require(name: object, place: str, only: str) -> None:
    if not isinstance(name, str) or name != only:
        raise ModelError(
            f"{place}({name!r})", f'"{only}" is the only one there is',
            "Networks run from Python with numpy and one file, see docs/boards.md.",
        )  # fmt: skip


_ELSEWHERE = dict.fromkeys(
    ("graph_executor_codegen", "executor_factory", "aot"),
    "Use relay.build, whose report names the schedule of each kernel; relay.create_executor runs.",
) | {
    "compile_engine": "Use relay.build; its report names the schedule of each kernel.",
    "contrib": "Compilers of others are not called; the targets are llvm, cuda and opencl.",
}


def __getattr__(name: str) -> Any:
    return find(__name__, name, _ELSEWHERE)
