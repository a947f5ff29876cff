"""`Library`: a compiled network as plain data, and loaded on a device.

In: what `network/build.py` made, or a file.  Out: `lib["default"](dev)`, the network on a
device; files (`library_file.py`).  Read next: `plan.py`, `graph_executor.py`, which runs it.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from tilewright.base.artifact import Artifact
from tilewright.base.concurrency import cached_property, lock
from tilewright.base.doors import door
from tilewright.base.errors import DeviceError, ModelError
from tilewright.runtime.device import Device, device
from tilewright.runtime.network import library_file
from tilewright.runtime.network.functions import Functions
from tilewright.runtime.network.graph_executor import GraphModule
from tilewright.runtime.network.graph_json import graph_json
from tilewright.runtime.network.library_file import Contents
from tilewright.runtime.network.loaded import LoadedLibrary as LoadedLibrary
from tilewright.runtime.network.plan import Array, Plan
from tilewright.runtime.network.report import BuildReport
from tilewright.runtime.texts import source_text

_loading = lock()


class Library:
    """A network compiled for one target, for one set of input shapes or several.

    plans:     the network for each set of input shapes, in the order in which they were asked for
    report:    what each kernel is, printable
    kernels:   distinct artefacts; constants: weights in the layout that kernels read.  All plans
               share them
    shared:    the shared object that holds the kernels' code; None: their binaries do

    Raises ModelError for plans that do not fit kernels and constants.
    """

    def __init__(
        self,
        plans: Plan | Sequence[Plan],
        kernels: Sequence[Artifact],
        constants: Sequence[Array],
        report: BuildReport,
        shared: str | None = None,
    ) -> None:
        self.plans = (plans,) if isinstance(plans, Plan) else tuple(plans)
        self.report, self.shared = report, shared
        self.kernels, self.constants = tuple(kernels), tuple(constants)
        self._loaded: dict[Device, LoadedLibrary] = {}
        if len(report.kernels) != len(self.kernels):
            raise ModelError(
                "Library", "its report is of other kernels", "Build and save it again."
            )
        for plan in self.plans:
            wrong = plan.misfit(self.kernels, self.constants) or plan.unlike(self.plans[0])
            if wrong:
                raise ModelError("Library", wrong, "Build and save it again.")

    @property
    def plan(self) -> Plan:
        """The first of `plans`."""
        return self.plans[0]

    @property
    def target(self) -> str:
        return self.plan.target

    @door(ModelError)
    def __getitem__(self, name: str) -> Callable[..., Any]:
        """`lib["default"](dev)`: the network on a device; `lib["debug_create"]("default", dev)`:
        the same, for a `GraphModuleDebug`; `lib["get_graph_json"]()`."""
        if name == "default":
            return lambda dev: OpenedLibrary(self.load_on(dev))
        if name == "debug_create":
            return lambda model_name, dev: self[model_name](dev)
        if name == "get_graph_json":
            return self.get_graph_json
        raise ModelError(f"lib[{name!r}]", "there is no such function", 'Use lib["default"](dev).')

    def load_on(self, dev: Device) -> LoadedLibrary:
        """Code and weights on `dev`, put there once however often it is asked for.

        Raises DeviceError when the target is of another kind.
        """
        if not isinstance(dev, Device):
            raise DeviceError(
                f'lib["default"]({type(dev).__name__})', "it is no device", "Try cpu() or cuda(0)."
            )
        wanted = device(self.target)
        if dev.kind != wanted.kind:
            raise DeviceError(
                f'lib["default"]({dev})', f"the network was built for {self.target}",
                f"Use {wanted}, or build it for another target.",
            )  # fmt: skip
        with _loading:
            if dev not in self._loaded:
                self._loaded[dev] = LoadedLibrary(self, dev)
            return self._loaded[dev]

    def __iter__(self) -> Iterator[Any]:
        """`graph, lib, params = relay.build(...)`, as before TVM had libraries."""
        return iter((self.get_graph_json(), self, self.get_params()))

    @property
    def graph_json(self) -> str:
        """`get_graph_json()`, as TVM's factory modules name it."""
        return self.get_graph_json()

    @property
    def lib(self) -> Library:
        """Itself: code, graph and weights are one here."""
        return self

    @property
    def params(self) -> dict[str, Array]:
        """`get_params()`, as TVM's factory modules name it."""
        return self.get_params()

    def get_lib(self) -> Library:
        """Itself: code, graph and weights are one here."""
        return self

    @door(ModelError)
    def get_source(self, fmt: str = "") -> str:
        """The generated text of all kernels; fmt: as of `Module.get_source`."""
        return "\n".join(source_text(k, fmt) for k in self.kernels)

    def get_params(self) -> dict[str, Array]:
        """The weights by the names that `get_graph_json` gives them: folded, in the layout that
        kernels read.  They are inside the library and need not be set."""
        return {f"p{k}": value for k, value in enumerate(self.constants)}

    def get_graph_json(self) -> str:
        """The first plan as the JSON text of TVM's graph executor: nodes, shapes, storage."""
        return graph_json(self)

    @door(ModelError)
    def export_library(
        self, file_name: str | os.PathLike[str], fcompile: Any = None, *, cc: str | None = None
    ) -> None:
        """Write one file with everything, which `runtime.load_module` reads.

        file_name: what ends in `.so` is a shared object: kernels of a CPU and the thread pool they
            run on as machine code, so that loading needs no LLVM; all else (weights, code of GPUs)
            is appended to it as data.  `.tar` is a tar archive; anything else the same as a zip
        fcompile: TVM's, such as `contrib.ndk.create_shared`; it changes nothing, as the target says
            what to link for
        cc: a C compiler for the target, whose linker makes the shared object; default: `cc` for
            this machine; where there is none, and for others, that of the extra `cross`
        Raises ModelError where the file cannot be written, where one of another kind is there, and
        without a linker for `.so`.
        """
        library_file.write(self.contents(), file_name, cc)

    save = export_library

    def contents(self) -> Contents:
        """Return what a file of it holds."""
        return Contents(self.plans, self.report, self.kernels, self.constants, self.shared)

    def __repr__(self) -> str:
        plan = self.plan
        outputs = ", ".join(str(plan.outputs[k][0]) for k in plan.returned)
        inputs = ", ".join(str(plan.inputs[k]) for k in plan.given)
        if plan.states:
            nbytes = sum(plan.inputs[state.input].nbytes for state in plan.states)
            inputs += f"; {len(plan.states)} states of {nbytes / (1 << 20):.1f} MiB"
        more = f" and for {len(self.plans) - 1} more shapes" if len(self.plans) > 1 else ""
        launches = sum(len(plan.launches) for plan in self.plans)
        return (
            f"Library({inputs}) -> {outputs}{more} for {self.target}: "
            f"{len(self.kernels)} kernels, {launches} launches"
        )


class OpenedLibrary(LoadedLibrary):
    """What `lib["default"](dev)` gives: `GraphModule` runs it, and so do functions by their names,
    `opened["set_input"]("data", x)`, of a module that is its own."""

    def __init__(self, loaded: LoadedLibrary) -> None:
        self._loaded, self.library, self.device = loaded, loaded.library, loaded.device
        self.kernels, self.constants = loaded.kernels, loaded.constants

    def __getitem__(self, name: str) -> Any:
        """A method of `GraphModule` by its name."""
        return self._functions[name]

    def get_function(self, name: str, query_imports: bool = False) -> Any:
        """A method of `GraphModule` by its name."""
        return self._functions.get_function(name, query_imports)

    def time_evaluator(self, func_name: str, dev: Device, *args: Any, **options: Any) -> Any:
        """A function that times runs: see `Functions.time_evaluator`."""
        return self._functions.time_evaluator(func_name, dev, *args, **options)

    @cached_property
    def _functions(self) -> Functions:
        return GraphModule(self._loaded).module


def load(path: str | os.PathLike[str]) -> Library:
    """The library in a file.  Raises ModelError for a missing or damaged file.

    Only data is read here; machine code of a shared object is loaded with the device.
    """
    found = library_file.read(path)
    try:
        return Library(found.plans, found.kernels, found.constants, found.report, found.shared)
    except ModelError as error:
        raise ModelError(
            f"load({os.fspath(path)!r})", f"it is damaged ({error.reason})", error.way_out
        ) from None
