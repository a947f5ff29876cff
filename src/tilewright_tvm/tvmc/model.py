"""What `tvmc` hands from call to call: `TVMCModel`, `TVMCPackage`, `TVMCResult`.

In: a module and its weights; the file of a library; outputs and times.  Out: files of each.
Read next: `frontends.py`, `compiler.py`, `runner.py`.
"""

from __future__ import annotations

import io
import os
import shutil
import tarfile
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TextIO

from tilewright.base import output
from tilewright.base.concurrency import cached_property
from tilewright.base.doors import door
from tilewright.base.errors import ModelError
from tilewright.graph.expr import IRModule
from tilewright.models.onnx.export import to_onnx
from tilewright.models.onnx.importer import from_onnx
from tilewright.runtime.load import load_module
from tilewright.runtime.network.archives import write_arrays
from tilewright.runtime.network.library import Library
from tilewright.runtime.network.param_dict import save_param_dict
from tilewright.runtime.own_files import LIBRARY
from tilewright.runtime.timing import BenchmarkResult

_GRAPH, _RECORDS, _PACKAGE = "model.onnx", "tuning_records", "model_package.tar"
FORMATS = ("so", "tar")
_SAVED = output.FileKind("a saved model", output.beginning(_GRAPH.encode()))


class TVMCModel:
    """A network before it is compiled.

    mod, params: the network and its weights, as relay.frontend gives them
    model_path:  instead of them: a file that `save` wrote
    """

    @door(ModelError)
    def __init__(
        self, mod: IRModule | None = None, params: Mapping[str, Any] | None = None,
        model_path: str | os.PathLike[str] | None = None,
    ) -> None:  # fmt: skip
        self._folder = tempfile.TemporaryDirectory(prefix="tilewright-")
        if model_path is not None:
            self.load(model_path)
            return
        if mod is None:
            raise ModelError(
                "TVMCModel", "there is no network",
                "Give mod and params, or model_path, a file that save wrote.",
            )  # fmt: skip
        self.mod, self.params = mod, dict(params or {})

    @door(ModelError)
    def save(self, model_path: str | os.PathLike[str]) -> None:
        """Write the network, as ONNX, with what `tune` and `compile` left at their default places.

        Raises ModelError for an operator that ONNX has no word for, an unwritable file, and where
        a file of another kind is there.
        """
        graph = to_onnx(self.mod, self.params).SerializeToString()
        place = f"save({os.fspath(model_path)!r})"
        with (
            output.replacing(model_path, _SAVED, place, ModelError) as made,
            tarfile.open(made, "w") as tar,
        ):
            member = tarfile.TarInfo(_GRAPH)
            member.size = len(graph)
            tar.addfile(member, io.BytesIO(graph))
            for name in (_RECORDS, _PACKAGE):
                if self._at(name).exists():
                    tar.add(self._at(name), name)

    @door(ModelError)
    def load(self, model_path: str | os.PathLike[str]) -> None:
        """Read what `save` wrote.  Raises ModelError for any other file."""
        place = f"TVMCModel(model_path={os.fspath(model_path)!r})"
        try:
            with tarfile.open(model_path, "r:") as tar:
                members = {m.name: tar.extractfile(m) for m in tar if m.isreg()}
                graph = members.get(_GRAPH)
                if graph is None:
                    raise ValueError(f"it holds no {_GRAPH}")
                data = graph.read()
                for name in (_RECORDS, _PACKAGE):
                    if (held := members.get(name)) is not None:
                        self._at(name).write_bytes(held.read())
        except (OSError, ValueError, tarfile.TarError) as error:
            raise ModelError(
                place, f"it is no saved model ({error})", "TVMCModel.save writes one."
            ) from None
        self.mod, self.params = from_onnx(data)

    def default_tuning_records_path(self) -> str:
        """Where `tune` writes its log when it is given no file."""
        return str(self._at(_RECORDS))

    def default_package_path(self) -> str:
        """Where `compile` writes the package when it is given no file."""
        return str(self._at(_PACKAGE))

    @door(ModelError)
    def export_package(
        self, executor_factory: Library, package_path: str | os.PathLike[str] | None = None,
        cross: str | None = None, cross_options: str | None = None,
        output_format: str | None = None,
    ) -> str:  # fmt: skip
        """Write a library to `package_path`, which is returned; see `compile_model`."""
        path = Path(self.default_package_path() if package_path is None else package_path)
        suffix = path.suffix.removeprefix(".")
        kind = output_format or (suffix if suffix in FORMATS else "tar")
        if kind not in FORMATS:
            raise ModelError(
                f"output_format={kind!r}", "a package is a shared object or a tar archive",
                'Use "so" or "tar".',
            )  # fmt: skip
        if cross_options:
            raise ModelError(
                f"cross_options={cross_options!r}", "a compiler is called as it is named",
                "Name a script as cross= that calls it with them.",
            )  # fmt: skip
        place = f"package_path={os.fspath(path)!r}"
        made = Path(self._folder.name, f"made.{kind}")
        output.check(path, LIBRARY, place, ModelError)
        executor_factory.export_library(made, cc=cross)
        with output.replacing(path, LIBRARY, place, ModelError) as new:
            shutil.move(made, new)
        return str(path)

    @door(ModelError)
    def summary(self, file: TextIO | None = None) -> None:
        """Print the network, to `file` where one is given."""
        print(self.mod, file=file)

    def _at(self, name: str) -> Path:
        return Path(self._folder.name, name)


class TVMCPackage:
    """A compiled network.

    package_path: the file, which `tvmc.compile`, `tilewright compile` or
                  `Library.export_library` wrote
    """

    @door(ModelError)
    def __init__(self, package_path: str | os.PathLike[str]) -> None:
        library = load_module(package_path)
        if not isinstance(library, Library):
            raise ModelError(
                f"TVMCPackage({os.fspath(package_path)!r})", "it is one kernel, no network",
                "tvmc.compile writes one.",
            )  # fmt: skip
        self.library, self.package_path = library, os.fspath(package_path)
        self.lib_path = self.package_path

    @cached_property
    def graph(self) -> str:
        """The text of TVM's graph executor; see `Library.get_graph_json`."""
        return self.library.get_graph_json()

    @cached_property
    def params(self) -> bytearray:
        """The weights, as runtime.save_param_dict writes them."""
        return bytearray(save_param_dict(self.library.get_params()))

    def __repr__(self) -> str:
        return f"TVMCPackage({self.package_path!r}): {self.library!r}"


class TVMCResult:
    """What a run gave.

    outputs: numpy arrays by name, "output_0" and so on
    times:   seconds of a run, by repeats; None where it was not timed
    """

    @door(ModelError)
    def __init__(
        self, outputs: Mapping[str, Any] | None, times: BenchmarkResult | None = None
    ) -> None:
        self.outputs, self.times = dict(outputs or {}), times

    def format_times(self) -> str:
        """Mean, median and so on of the times, as a small table in milliseconds."""
        if self.times is None:
            return "It was not timed.\n"
        names = ("mean", "median", "max", "min", "std")
        head = " ".join(f"{f'{name} (ms)':^12}" for name in names)
        row = " ".join(f"{getattr(self.times, name) * 1e3:^12.4f}" for name in names)
        return f"Execution time summary:\n{head}\n{row}\n"

    @door(ModelError)
    def get_output(self, name: str) -> Any:
        """Raises ModelError for the name of no output."""
        if name not in self.outputs:
            raise ModelError(
                f"get_output({name!r})", "there is no such output",
                f"There are {', '.join(self.outputs)}.",
            )  # fmt: skip
        return self.outputs[name]

    @door(ModelError)
    def save(self, output_path: str | os.PathLike[str]) -> None:
        """Write the outputs as numpy.savez does.  Raises ModelError."""
        write_arrays(output_path, self.outputs, f"save({os.fspath(output_path)!r})")

    def __str__(self) -> str:
        return f"{self.format_times()}\nOutput Names:\n {list(self.outputs)}"
