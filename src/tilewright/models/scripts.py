"""Models that a user's own code makes: `script.py:function`, or `package.module:function`.

In: such a text.  Out: what the function returns, with the inputs or weights that came with it.  The
code runs in this process, as `python script.py` would run it.
Read next: `networks.py`, which reads all other models.
"""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import os
import sys
import traceback
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

from tilewright.base.errors import ModelError, TilewrightError
from tilewright.graph.expr import Function, IRModule
from tilewright.schedule.task import Task
from tilewright.te.tensor import Tensor

_SHOWN = 8  # names in a message
_RETURN = (
    "Return a graph, (graph, weights by name), (module of PyTorch, example inputs), an exported "
    "program, an ONNX model, a path, a task, or a list of tensors."
)


@dataclass(frozen=True)
class Made:
    """name: as the user typed it; inputs: of a module of PyTorch; params: of a graph of ours."""

    name: str
    model: Any
    inputs: Any = None
    params: Mapping[str, Any] | None = None

    @property
    def is_computation(self) -> bool:
        """Whether it is no network but one computation: a task, or tensors of expressions."""
        listed = isinstance(self.model, list | tuple) and len(self.model) > 0
        tensors = listed and all(isinstance(t, Tensor) for t in self.model)
        return tensors or isinstance(self.model, Task)


def parts_of(text: str) -> tuple[str, str] | None:
    """Give the script or the module, and the name in it; None where `text` is none of these."""
    where, colon, name = text.rpartition(":")
    if not colon or not name.isidentifier() or "://" in text or os.path.exists(text):
        return None
    dotted = all(part.isidentifier() for part in where.split("."))
    return (where, name) if where.endswith(".py") or dotted else None


def check(text: str) -> None:
    """Raise ModelError where the script is not there; nothing of it runs."""
    where, name = parts_of(text) or ("", "")
    if where.endswith(".py") and not os.path.isfile(where):
        raise ModelError(text, f"there is no script {where}", "Check the path.")
    if os.path.isfile(where) and not where.endswith(".py"):  # else a module, net.onnx: onnx of net
        raise ModelError(
            text, f"{where} is no script of Python", f"Leave :{name} out, or name a file in .py."
        )


def made(text: str) -> Made:
    """Run the function of that name, and give what it returns.

    Raises ModelError for a script that is missing or fails, for a name that it lacks, and for a
    function that takes arguments; errors of Tilewright in it as they are.
    """
    where, name = parts_of(text) or ("", "")
    check(text)
    try:
        module = _module(where)
        found = getattr(module, name, None)
        if found is None:
            raise ModelError(text, f"it has no {name}", _names(module))
        plain = inspect.isroutine(found) or inspect.isclass(found)
        value = _without_arguments(found, text)() if plain else found
    except (TilewrightError, KeyboardInterrupt):
        raise
    except BaseException as error:  # SystemExit, and what others derive from it: their code ran
        raise ModelError(text, _told(error, where), "Run it with Python to see where.") from error
    return _understood(text, value)


def _module(where: str) -> ModuleType:
    if not where.endswith(".py"):
        sys.path.insert(0, "")
        return importlib.import_module(where)
    path = Path(where).resolve()
    sys.path.insert(0, str(path.parent))  # it may import its neighbours
    name = path.stem if path.stem not in sys.modules else f"script_{path.stem}"
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None and spec.loader is not None
    module = sys.modules[name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _without_arguments(function: Any, text: str) -> Any:
    try:
        needed = [
            p.name for p in inspect.signature(function).parameters.values()
            if p.default is p.empty and p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)
        ]  # fmt: skip
    except ValueError:  # of code that is not Python's
        needed = []
    if needed:
        raise ModelError(text, f"it takes arguments: {', '.join(needed)}", "Give them defaults.")
    return function


def _names(module: ModuleType) -> str:
    own = [
        name for name, value in vars(module).items()
        if inspect.isfunction(value) and value.__module__ == module.__name__
        if not name.startswith("_")
    ]  # fmt: skip
    more = ", ..." if len(own) > _SHOWN else ""
    return f"Its functions: {', '.join(own[:_SHOWN])}{more}." if own else "It has no function."


def _told(error: BaseException, where: str) -> str:
    """`ValueError: no (line 3 of net.py)`: the last line of the script that ran."""
    frames = traceback.extract_tb(error.__traceback__)
    own = [f for f in frames if Path(f.filename).name == Path(where).name]
    at = f" (line {own[-1].lineno} of {Path(where).name})" if own else ""
    said = str(error).strip().splitlines() or [""]
    return f"{type(error).__name__}: {said[0]}"[:300] + at


def _understood(text: str, value: Any) -> Made:
    if isinstance(value, tuple) and len(value) == 2:
        first, second = value
        if isinstance(first, IRModule | Function) and isinstance(second, Mapping):
            return Made(text, first, params=second)
        if _is_module(first):
            return Made(text, first, inputs=second)
    if value is None:
        raise ModelError(text, "it returns nothing", _RETURN)
    told = Made(text, value)
    known = isinstance(value, IRModule | Function | str | Path | bytes) or _is_module(value)
    other = hasattr(value, "graph_signature") or hasattr(value, "SerializeToString")
    if known or other or told.is_computation:
        return told
    raise ModelError(text, f"it returns something of type {type(value).__name__}", _RETURN)


def _is_module(value: Any) -> bool:
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(value, torch.nn.Module)
