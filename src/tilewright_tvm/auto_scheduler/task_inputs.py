"""Values of inputs that may not be drawn at random, such as the indices of a sparse matrix.

In: arrays by name, for a workload key or for all.  Out: which inputs of a computation have one, and
the arrays, which candidates are verified and timed with.  A buffer may be kept in a file of the
current folder, `NAME.SHAPE_TYPE.npy`.  Read next: `computation.py`, `te/cases.py`.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from tilewright.base.dtype import DType
from tilewright.base.errors import RecordError, SpaceError, TilewrightError
from tilewright.ir.expr import walk
from tilewright.runtime.ndarray import NDArray
from tilewright.te.dag import ComputeDAG
from tilewright.te.evaluate import evaluate, random_inputs
from tilewright.te.tensor import PlaceholderOp, Tensor

Array = npt.NDArray[Any]
Check = Callable[[Sequence[Tensor]], Mapping[Tensor, str]]

DEFAULT = "default"  # the key of buffers for every workload
_CHECKS: dict[str, Check] = {}
TASK_INPUT_BUFFER_TABLE: dict[str, dict[str, Array]] = {}  # by workload key and name
_NAME = re.compile(r"[\w-][\w.-]*")


def register_task_input_check_func(
    func_name: Check | str, f: Check | None = None, override: bool = False
) -> Any:
    """Register a function that names the special inputs of a computation: of its inputs and
    outputs it gives a dict from tensors to names.

    Usable as `@register_task_input_check_func`, with a name, and as a call with a name and f.
    override: replace another function of that name, which is an error otherwise
    """
    if not isinstance(func_name, str):
        f, func_name = func_name, getattr(func_name, "__name__", str(func_name))
    name: str = func_name

    def register(function: Check) -> Check:
        if not callable(function):
            raise SpaceError(
                f"register_task_input_check_func({name!r})", "not a function",
                "Give one that returns {tensor: name}.",
            )  # fmt: skip
        known = _CHECKS.get(name)
        if known is not None and known is not function and not override:
            raise SpaceError(
                f"register_task_input_check_func({name!r})", "another function has that name",
                "Choose another name, or pass override=True.",
            )  # fmt: skip
        _CHECKS[name] = function
        return function

    return register if f is None else register(f)


@register_task_input_check_func
def sparse_operands(args: Sequence[Tensor]) -> dict[Tensor, str]:
    """Of `topi.nn.sparse_dense`, by the names that TVM gives them: what the matrix is, its sizes,
    and W_data, W_indices or W_indptr."""
    found: dict[Tensor, str] = {}
    for op in ComputeDAG(args).compute_ops:
        matched = re.fullmatch(r"sparse_dense_sp_.hs_(csr|bsr)mm(?:_block)?", op.tag)
        reads = [n for n in walk(op.body) if n.op == "read"]
        inner = [n for n in reads if n.dtype.is_int and any(m.op == "read" for m in walk(*n.args))]
        if matched is None or not inner:
            continue
        indices = inner[0].attr  # read where the row begins, and on; so are the elements
        indptr = next(n.attr for n in reads if n.dtype.is_int and n.attr is not indices)
        data = next(n.attr for n in reads if n.args[0] is inner[0].args[0] and n is not inner[0])
        dense = next(n.attr for n in reads if n.attr not in (indices, indptr, data))
        height, width = data.shape[1:] or (1, 1)
        rows = indptr.shape[0]
        numbers = [(rows - 1) * height, dense.shape[1]]
        numbers += [height, width] if matched[1] == "bsr" else []
        sizes = "_".join(map(str, [*numbers, indices.shape[0], rows]))
        for tensor, what in ((data, "W_data"), (indices, "W_indices"), (indptr, "W_indptr")):
            if isinstance(tensor.op, PlaceholderOp):
                found[tensor] = f"sparse_dense_{matched[1]}_{sizes}_{what}"
    return found


def prepare_input_map(args: Sequence[Tensor], workload_key: str | None = None) -> dict[Tensor, str]:
    """The names of the special inputs among `args`, as the registered functions give them.

    workload_key is accepted and not needed.
    """
    found: dict[Tensor, str] = {}
    for check in _CHECKS.values():
        found |= dict(check(args))
    return found


def register_task_input_buffer(
    workload_key: str, input_name: str, input_data: NDArray | Array, overwrite: bool = False,
    save_to_file: bool = False,
) -> NDArray | Array:  # fmt: skip
    """Say what an input of a workload is to be; returns the data.

    workload_key: "default": of every workload that has no buffer of that name
    overwrite:    replace another one, which is an error otherwise
    save_to_file: also write it to the current folder, from where other runs read it
    """
    place = f"register_task_input_buffer({input_name!r})"
    value = _array(place, input_data)
    own = TASK_INPUT_BUFFER_TABLE.setdefault(workload_key, {})
    known = own.get(input_name)
    if known is not None and not overwrite and not _equal(known, value):
        raise SpaceError(
            place, "another buffer has that name", "Choose another name, or pass overwrite=True."
        )
    own[input_name] = value
    if save_to_file:
        _save(place, input_name, value)
    return input_data


def get_task_input_buffer(workload_key: str, input_name: str) -> Array:
    """The buffer of a workload, or of a file in the current folder, or of every workload.

    Raises SpaceError where there is none, RecordError for a file that is no such buffer.
    """
    own = TASK_INPUT_BUFFER_TABLE.get(workload_key, {})
    if input_name in own:
        return own[input_name]
    found = _load(input_name)
    if found is not None:
        TASK_INPUT_BUFFER_TABLE.setdefault(workload_key, {})[input_name] = found
        return found
    shared = TASK_INPUT_BUFFER_TABLE.get(DEFAULT, {})
    if input_name in shared:
        return shared[input_name]
    raise SpaceError(
        f"input buffer {input_name!r}", "it was not registered, and no file has it",
        "Pass SearchTask(task_inputs={name: array}).",
    )  # fmt: skip


def inputs_of(
    dag: ComputeDAG, workload_key: str, given: Any, overwrite: bool, save_to_file: bool
) -> tuple[list[str], dict[str, Array]]:
    """What `SearchTask(task_inputs=)` asks for: names, and arrays by the names of inputs.

    Raises SpaceError for what fits no input, and where the computation does not accept the values.
    """
    place = "SearchTask(task_inputs=)"
    if isinstance(given, Mapping):
        for name, value in given.items():
            register_task_input_buffer(workload_key, name, value, overwrite, save_to_file)
    elif not isinstance(given, (list, tuple)):
        raise SpaceError(place, f"{given!r} is no dict", "Give {name: array}, or names.")
    names = list(given)
    inputs = [op.output_tensor for op in dag.placeholders]
    places = {t.name: t for t in inputs}
    places |= {name: t for t, name in prepare_input_map(dag.args).items()}
    found: dict[Tensor, Array] = {}
    for name in names:
        tensor = places.get(name)
        if tensor is None:
            raise SpaceError(
                place, f"no input is called {name!r}", f"There are {', '.join(map(str, places))}."
            )
        value = get_task_input_buffer(workload_key, name)
        wanted = tensor.dtype.storage
        if value.shape != tuple(tensor.shape) or not np.can_cast(value.dtype, wanted, "same_kind"):
            raise SpaceError(
                place, f"{name!r} is {value.dtype}{list(value.shape)}, the computation takes "
                f"{tensor.dtype}{list(tensor.shape)}", "Give the buffer that the task computes on.",
            )  # fmt: skip
        found[tensor] = np.ascontiguousarray(value, wanted)
    if any(tensor.dtype.is_int for tensor in found):
        _try(place, dag, found)
    return names, {tensor.name: value for tensor, value in found.items()}


def _try(place: str, dag: ComputeDAG, found: Mapping[Tensor, Array]) -> None:
    """Indices must lie in what they point into."""
    try:
        evaluate(dag, random_inputs(dag, 0, given=found))
    except TilewrightError as error:
        raise SpaceError(
            place, f"the computation refuses these values ({error})", "Check indices and rows."
        ) from None


def _array(place: str, data: Any) -> Array:
    value = data.numpy() if isinstance(data, NDArray) else data
    if not isinstance(value, np.ndarray):
        raise SpaceError(place, f"{type(data).__name__} is no array", "Give an NDArray.")
    copy = np.array(value)
    copy.flags.writeable = False
    return copy


def _equal(a: Array, b: Array) -> bool:
    return a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes()


def _save(place: str, name: str, value: Array) -> None:
    if not _NAME.fullmatch(name):
        raise SpaceError(place, "the name is no file's", "Use letters, digits, _ - and .")
    path = f"{name}.{''.join(f'{n}_' for n in value.shape)}{value.dtype}.npy"
    try:
        np.save(path, value, allow_pickle=False)
    except OSError as error:
        raise RecordError(
            f"file {path!r}", f"it cannot be written ({error.strerror or error})",
            "Run where you may write, or leave save_to_file out.",
        ) from None  # fmt: skip


def _load(name: str) -> Array | None:
    """Of a file that `_save` wrote, or TVM: those of TVM are numbers as text."""
    pattern = re.compile(re.escape(name) + r"\.((?:\d+_)*)(\w+?)\.npy")
    for file in sorted(os.listdir()):
        matched = pattern.fullmatch(file)
        if matched is not None:
            break
    else:
        return None
    try:
        shape = tuple(int(n) for n in matched[1].split("_")[:-1])
        dtype = DType(matched[2]).storage
        with open(file, "rb") as f:
            stored = f.read(6) == b"\x93NUMPY"
        value: Array
        if stored:
            value = np.load(file, allow_pickle=False)
        else:
            value = np.array(Path(file).read_text("ascii").split(), dtype).reshape(shape)
        if value.shape != shape or value.dtype != dtype:
            raise ValueError(f"it holds {value.dtype}{list(value.shape)}")
    except (OSError, ValueError, TilewrightError) as error:
        raise RecordError(
            f"file {file!r}", f"it is no buffer of that shape and type ({error})",
            "Delete it, or register the buffer with overwrite=True.",
        ) from None  # fmt: skip
    value.flags.writeable = False
    return value
