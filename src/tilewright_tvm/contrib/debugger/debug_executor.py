"""`contrib.debugger.debug_executor`: a network whose kernels run and are seen one by one.

In: what `relay.build` gives, or a loaded library, and a device.  Out: values and seconds of single
kernels, and files of both where a folder is named.  Read next: `runtime/network/profile.py`.
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from tilewright.base.doors import door
from tilewright.base.errors import DeviceError, ModelError
from tilewright.runtime.device import Device
from tilewright.runtime.ndarray import NDArray
from tilewright.runtime.network.graph_executor import GraphModule
from tilewright.runtime.network.library import Library, LoadedLibrary
from tilewright.runtime.sequence import LaunchSequence
from tilewright_tvm.contrib.graph_executor import first_device

GRAPH_FILE, PROFILE_FILE, OUTPUTS_FILE = (
    "_tvmdbg_graph_dump.json", "_tvmdbg_profile.json", "output_tensors.npz"
)  # fmt: skip


@door(ModelError)
def create(
    graph_json_str: str,
    libmod: Library,
    device: Device | Sequence[Device],
    dump_root: str | os.PathLike[str] | None = None,
) -> GraphModuleDebug:
    """The library on the device, to be run kernel by kernel.

    graph_json_str: what `libmod.get_graph_json()` gives; the library has its graph with it
    dump_root:      a folder for the files of `run`; None: none are written
    """
    dev = first_device(device)
    return GraphModuleDebug(libmod["default"](dev), [dev], graph_json_str, dump_root)


class GraphModuleDebug(GraphModule):
    """A `GraphModule` that shows what is inside.  Nodes are those of `get_graph_json`: inputs,
    weights, then kernels in the order in which they run.  Of a library for several shapes it shows
    the first.
    """

    def __init__(
        self,
        module: LoadedLibrary,
        device: Any = None,
        graph_json_str: str | None = None,
        dump_root: str | os.PathLike[str] | None = None,
    ) -> None:
        super().__init__(module)
        self.graph = json.loads(module.library.get_graph_json())
        self.dump_root = None if dump_root is None else Path(dump_root)
        names = [node["name"] for node in self.graph["nodes"]]
        self._first = len(names) - len(self._now.plan.launches)
        self._at = {name: k for k, name in enumerate(names)}

    def run(self, **inputs: Any) -> None:
        """Run; with a `dump_root`, also write the graph, the profile and every kernel's result."""
        super().run(**inputs)
        if self.dump_root is None:
            return
        try:
            self.dump_root.mkdir(mode=0o700, parents=True, exist_ok=True)
            (self.dump_root / GRAPH_FILE).write_text(json.dumps(self.graph, indent=2))
            (self.dump_root / PROFILE_FILE).write_text(self.profile().json())
            names = list(self._at)[self._first :]
            values = {name: self.debug_get_output(name).numpy() for name in names}
            np.savez(self.dump_root / OUTPUTS_FILE, allow_pickle=False, **values)
        except OSError as error:
            raise DeviceError(
                f"GraphModuleDebug.run(dump_root={str(self.dump_root)!r})",
                error.strerror or str(error), "Name a folder that you may write to.",
            ) from None  # fmt: skip

    def debug_get_output(self, node: int | str, out: NDArray | None = None) -> NDArray:
        """The value of a node, from a run of everything up to it: a copy, or in `out`."""
        index = self._node(node)
        with self._own:
            self._check_set()
            if index >= self._first:
                launches = self._now.launches[: index - self._first + 1]
                calls = [call for launch in launches for call in launch]
                LaunchSequence(self.device, calls).run()
            found = self._now.node(index)
            return found.copyto(self.device if out is None else out)

    def run_individual(
        self, number: int, repeat: int = 1, min_repeat_ms: float = 0
    ) -> list[list[float]]:
        """Seconds of each node, `repeat` times the mean of `number` runs; 0 for inputs and weights.

        Kernels run alone, in order, so that their inputs are what a run gives them.
        """
        with self._own:
            self._check_set()
            rows = [[0.0] * repeat for _ in range(self._first)]
            for calls in self._now.launches:
                timed = LaunchSequence(self.device, calls).time(number, repeat, min_repeat_ms)
                rows.append([*timed.results])
            return rows

    def exit(self) -> None:
        """Remove the files that `run` wrote, and their folder where nothing else is in it."""
        if self.dump_root is None or not self.dump_root.is_dir():
            return
        for name in (GRAPH_FILE, PROFILE_FILE, OUTPUTS_FILE):
            (self.dump_root / name).unlink(missing_ok=True)
        if not any(self.dump_root.iterdir()):
            self.dump_root.rmdir()

    def _node(self, node: int | str) -> int:
        if self._now.plan is not self.loaded.library.plan:
            raise DeviceError(
                "GraphModuleDebug", "the inputs are for other shapes than the graph",
                f"Set inputs of {', '.join(map(str, self.loaded.library.plan.inputs))}.",
            )  # fmt: skip
        index = self._at.get(node, -1) if isinstance(node, str) else node
        if not isinstance(index, int) or not 0 <= index < len(self._at):
            raise DeviceError(
                f"debug_get_output({node!r})", f"the graph has no such node among {len(self._at)}",
                f"Kernels begin at {self._first}: {', '.join(list(self._at)[self._first :][:8])}.",
            )  # fmt: skip
        return index
