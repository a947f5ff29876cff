"""What a file is that somebody named: by how it begins, then by its name.

In: a path.  Out: nothing, or a ModelError that says what the file is and how to bring it.  Nothing
of the file is unpickled, and no more of it is read than tells.
Read next: `output.py`, which asks the same of files that are to be written.
"""

from __future__ import annotations

import os
import shlex
from contextlib import suppress
from pathlib import Path

from tilewright.base.errors import ModelError

COMPILED = "a compiled network"
ONNX = "an ONNX model"
LOG = "a log of `tilewright tune`"
SCRIPT = "a script of Python"
DECODER = "the folder of a decoder"  # config.json beside weights
_PYTORCH = "a file of PyTorch"
EXPORTED = "a program of PyTorch (torch.export)"
SCRIPTED = "a scripted module of PyTorch"
_DAMAGED, _DAMAGED_PROGRAM = (
    "a damaged file of PyTorch",
    "a damaged program of PyTorch (torch.export)",
)
_SAVED, _FROZEN = "a saved model of TensorFlow", "a graph of TensorFlow"
_KERAS = "a model of Keras, or another file of HDF5"
_LITE = "a model of TensorFlow Lite"

_TO_ONNX = "Export it to ONNX first"
MODELS = "Give an .onnx or a .pt2 file, or SCRIPT.py:FUNCTION."
_WAYS = {  # what it is -> how to bring it
    EXPORTED: "tilewright.load(PATH) reads it.",
    SCRIPTED: "tilewright.load(torch.jit.load(PATH), inputs) reads it.",
    _PYTORCH: "Weights alone are no network.  Write a function that makes the module, loads them "
        "and returns (module, example inputs): `tilewright tune SCRIPT.py:FUNCTION`; or export the "
        "module with torch.export or torch.onnx.export.",
    _DAMAGED: "Copy it again from where it is whole, or write it again.",
    _DAMAGED_PROGRAM: "Copy it again from where it is whole, or write it again: "
        "torch.export.save(torch.export.export(module, inputs), PATH).",
    _SAVED:
        f"{_TO_ONNX}, with tf2onnx: python -m tf2onnx.convert --saved-model FILE --output net.onnx",
    _FROZEN: f"{_TO_ONNX}, with tf2onnx: python -m tf2onnx.convert --graphdef FILE --output "
        "net.onnx, which wants --inputs and --outputs, too.",
    _KERAS: f"{_TO_ONNX}: model.export('net.onnx', format='onnx') in Keras 3, or tf2onnx.",
    _LITE: f"{_TO_ONNX}, with tf2onnx: python -m tf2onnx.convert --tflite FILE --output net.onnx",
    "a model of Core ML": f"{_TO_ONNX}, from the program that it was made of.",
    "a model of Paddle": f"{_TO_ONNX}, with paddle2onnx.",
    "a model of Caffe": f"{_TO_ONNX}, from the program that it was made of.",
    "a file of weights (safetensors)": "Weights alone are no network.  Write a function that makes "
        "the module, loads them and returns (module, example inputs): `tilewright tune "
        "SCRIPT.py:FUNCTION`; or export the module to ONNX.",
    "a file of weights (GGUF)": "Weights alone are no network; export it to ONNX from elsewhere.",
    "an engine of TensorRT": "Take the ONNX model that it was made of.",
    "a saved model of tvmc": "Read it in Python: driver.tvmc.TVMCModel(model_path=PATH).",
    "a pointer of Git LFS": "Fetch the file itself: git lfs pull",
    "a web page": "Download the file itself, not the page about it.",
    SCRIPT: "Name the function in it that makes the model: FILE:FUNCTION",
    "a shared object": "Machine code tells no network; give the model that it was made of.",
    "a folder": "Give a file in it: an .onnx or a .pt2 file.  That of a decoder has a config.json.",
    DECODER: "tilewright.load(PATH) reads it.",
    "a file of numpy": "Arrays by name are what `tilewright run` takes as --inputs.",
}  # fmt: skip
_BEGINNINGS = (
    (b"\x89HDF\r\n\x1a\n", _KERAS),
    (b"GGUF", "a file of weights (GGUF)"),
    (b"version https://git-lfs", "a pointer of Git LFS"),
    (b"<!doctype html", "a web page"),
    (b"<html", "a web page"),
    (b"\x93NUMPY", "a file of numpy"),
    (b'{"kind":', LOG),
    (b"\x80\x02", _PYTORCH),  # a pickle, as old versions wrote
)
_ENDINGS = {
    ".onnx": ONNX, ".pt": _PYTORCH, ".pth": _PYTORCH, ".pt2": _DAMAGED_PROGRAM,
    ".pb": _FROZEN, ".h5": _KERAS, ".hdf5": _KERAS, ".keras": _KERAS, ".tflite": _LITE,
    ".mlmodel": "a model of Core ML", ".mlpackage": "a model of Core ML",
    ".pdmodel": "a model of Paddle", ".caffemodel": "a model of Caffe",
    ".prototxt": "a model of Caffe", ".safetensors": "a file of weights (safetensors)",
    ".gguf": "a file of weights (GGUF)", ".engine": "an engine of TensorRT",
    ".plan": "an engine of TensorRT", ".npz": "a file of numpy", ".npy": "a file of numpy",
    ".so": "a shared object", ".tar": "an archive", ".zip": "an archive", ".jsonl": LOG,
    ".py": SCRIPT,
}  # fmt: skip
_MEMBERS = (  # of archives: how a name ends that tells
    ("network.json", COMPILED),
    ("saved_model.pb", _SAVED),
    ("model.onnx", "a saved model of tvmc"),
    ("archive_format", EXPORTED),
    ("serialized_exported_program.json", EXPORTED),
    ("constants.pkl", SCRIPTED),
    ("data.pkl", _PYTORCH),
    ("model.weights.h5", _KERAS),
    (".npy", "a file of numpy"),
)


def check_model(file: str, place: str, *also: str) -> None:
    """Raises ModelError for a file that is missing, and for one that is no model that is read.

    also: kinds of files, see `kind_of`, that are taken, too
    """
    path = Path(file)
    if not file or not os.path.exists(path):  # of a name that is too long, Path raises OSError
        raise _missing(file, place)
    what = kind_of(path)
    if what not in (ONNX, "", *also):
        raise _not(what, path, place, "a model that can be read", MODELS)


def check_compiled(file: str | os.PathLike[str], place: str) -> None:
    """Raises ModelError for a file that is known to be anything but a compiled network."""
    path = Path(file)
    what = kind_of(path)
    if what in (ONNX, *_WAYS, "a folder", "an empty file", LOG):
        raise _not(what, path, place, "a compiled network", "`tilewright compile` writes one.")


def kind_of(path: Path) -> str:
    """What is there, "a model of Keras"; "" where neither its beginning nor its name tells."""
    if os.path.isdir(path):
        if (path / "saved_model.pb").exists():
            return _SAVED
        if (path / "config.json").exists():
            return DECODER
        return "a model of Core ML" if path.suffix == ".mlpackage" else "a folder"
    if not os.path.isfile(path):
        return ""  # what is read from a pipe is gone
    try:
        with path.open("rb") as file:
            head = file.read(512)
    except OSError:
        return ""  # who reads it says why it cannot be
    if not head:
        return "an empty file"
    for begins, what in _BEGINNINGS:
        if head[: len(begins)].lower() == begins.lower():
            return what
    if head[4:8] == b"TFL3":
        return _LITE
    members = _members(path, head)
    told = next((w for end, w in _MEMBERS for m in members if m.endswith(end)), "")
    if told or head.startswith(b"\x7fELF"):
        return told or "a shared object"
    found = _ENDINGS.get(path.suffix.lower(), "")
    cut = found == _PYTORCH and head.startswith(b"PK")  # the table of an archive is its end
    return _DAMAGED if cut else found


def _members(path: Path, head: bytes) -> list[str]:
    """Names in an archive, also in one behind a shared object."""
    import tarfile
    import zipfile

    with suppress(OSError, zipfile.BadZipFile, tarfile.TarError, ValueError, NotImplementedError):
        if head[257:262] == b"ustar":
            with tarfile.open(path, "r:") as tar:
                return tar.getnames()
        if head.startswith((b"PK", b"\x7fELF")):
            with zipfile.ZipFile(path) as archive:
                names = archive.namelist()
            return names if head.startswith(b"\x7fELF") or _first(head) in names else []
    return []


def _first(head: bytes) -> str:
    """The member that an archive begins with.  Of one that was cut, Python may find the table of
    an archive inside it."""
    return head[30 : 30 + int.from_bytes(head[26:28], "little")].decode(errors="replace")


def is_path(text: str) -> bool:
    """Whether that can only be the path of a file, there or not."""
    return "/" in text or Path(text).suffix.lower() in _ENDINGS


def _missing(text: str, place: str) -> ModelError:
    if "://" in text:
        return ModelError(
            place, "it is an address, and nothing is fetched from elsewhere",
            "Download the file, and name it.",
        )  # fmt: skip
    return ModelError(place, "there is no such file", "Check the path.")


def _not(what: str, path: Path, place: str, wanted: str, way_out: str) -> ModelError:
    """It is `what`, not `wanted`; with a way out in Python, and one in a shell."""
    typed, given = shlex.quote(str(path)), repr(str(path))
    made = shlex.quote(f"{path.stem}.tar")
    told = _WAYS.get(what, way_out).replace("FILE", typed).replace("PATH", given)
    inside, command = {
        COMPILED: (
            f"It runs as it is: tilewright.open({given}).",
            f"It runs as it is: tilewright run {typed} --repeat 10",
        ),
        LOG: (
            f"tilewright.compile takes it as log={given}.",
            f"Its contents: tilewright records {typed}",
        ),
        SCRIPTED: (
            told,
            "Give the shapes of its inputs by the names of its arguments: tilewright compile "
            f"{typed} --shape 'x:[1,3,224,224]'",
        ),
        EXPORTED: (
            f"Compile it first: tilewright.compile(tilewright.load({given})).",
            f"Compile it first: tilewright compile {typed} -o {made}",
        ),
        ONNX: (
            f"Compile it first: tilewright.compile(tilewright.load({given})).",
            f"Compile it first: tilewright compile {typed} -o {made}",
        ),
    }.get(what, (told, told))  # fmt: skip
    return ModelError(place, f"it is {what}, not {wanted}", inside, command=command)
