"""Files that are damaged, or made to do harm: each is one error in bounded time and memory."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from click.testing import CliRunner
from onnx import TensorProto, helper

from models.test_onnx import model, node
from tilewright.base.errors import ModelError
from tilewright.cli.app import cli
from tilewright.models.onnx import importer
from tilewright.models.onnx.importer import from_onnx
from tilewright.models.torch.importer import import_program
from tilewright.models.torch.program import Program, Ref, Spec, Step

SECONDS = 30.0  # of the processor, for one file
SHAPE = {"x": [2, 3]}
TERABYTE = [2**20, 2**20]


def plain() -> onnx.ModelProto:
    weight = np.ones((3, 2000), "float32")
    return model([node("MatMul", ["x", "w"])], SHAPE, {"w": weight})


def chain(count: int) -> onnx.ModelProto:
    names = [f"c{k}" for k in range(count)]
    nodes = [node("Relu", [a], b) for a, b in pairwise(["x", *names])]
    return model(nodes, SHAPE, outputs=(names[-1],))


def with_functions(bodies: dict[str, list[str]]) -> onnx.ModelProto:
    """Functions of one input, each of which calls others one after the other."""
    made = model([helper.make_node("f0", ["x"], ["y"], domain="own")], SHAPE)
    own, onnx_own = helper.make_opsetid("own", 1), helper.make_opsetid("", 17)
    for name, called in bodies.items():
        steps = [f"v{k}" for k in range(len(called))]
        nodes = [
            helper.make_node(to, [a], [b], domain="own" if to.startswith("f") else "")
            for to, (a, b) in zip(called, pairwise(["i", *steps]), strict=True)
        ]
        made.functions.append(
            helper.make_function("own", name, ["i"], [steps[-1]], nodes, [own, onnx_own])
        )
    made.opset_import.append(own)
    return made


def field(number: int, content: bytes) -> bytes:
    """A field of a message, as protobuf writes it."""
    size, length = len(content), b""
    while size > 127:
        length, size = length + bytes([size & 127 | 128]), size >> 7
    return bytes([number << 3 | 2]) + length + bytes([size]) + content


def nested(depth: int) -> bytes:
    """Branches in branches, deeper than protobuf itself would write them."""
    body = field(1, field(4, b"Relu"))
    for _ in range(depth):
        branch = field(1, b"then_branch") + field(6, body) + bytes([0xA0, 1, 5])
        body = field(1, field(4, b"If") + field(5, branch))
    return bytes([8, 8]) + field(7, body)


def claims(dims: list[int]) -> onnx.ModelProto:
    """A weight whose data is much smaller than its shape."""
    made = plain()
    del made.graph.initializer[0].dims[:]
    made.graph.initializer[0].dims.extend(dims)
    return made


def endless(trips: int | None) -> onnx.ModelProto:
    body = helper.make_graph(
        [helper.make_node("Identity", ["more"], ["again"]), node("Exp", ["state"], "next")], "body",
        [helper.make_tensor_value_info("k", TensorProto.INT64, []),
         helper.make_tensor_value_info("more", TensorProto.BOOL, []),
         helper.make_tensor_value_info("state", TensorProto.FLOAT, None)],
        [helper.make_tensor_value_info("again", TensorProto.BOOL, []),
         helper.make_tensor_value_info("next", TensorProto.FLOAT, None)],
    )  # fmt: skip
    loop = helper.make_node("Loop", ["n" if trips else "", "yes", "x"], ["y"], body=body)
    return model([loop], SHAPE, {"n": np.array(trips or 0), "yes": np.array(True)})


def twice_named() -> onnx.ModelProto:
    made = plain()
    made.graph.initializer.append(made.graph.initializer[0])
    return made


def two_inputs() -> onnx.ModelProto:
    made = plain()
    made.graph.input.append(made.graph.input[0])
    return made


def sized(op: str, *shape: int) -> onnx.ModelProto:
    weights = {"s": np.array(shape), "v": np.ones(1, "float32")}
    inputs = ["s"] if op == "ConstantOfShape" else ["v", "s"]
    return model([node(op, inputs, "c"), node("Add", ["c", "c"])], SHAPE, weights)


def cut(share: float) -> bytes:
    data = plain().SerializeToString()
    return data[: int(len(data) * share)]


# name -> what the file holds
FILES: dict[str, Callable[[], onnx.ModelProto | bytes]] = {
    "nothing": lambda: b"",
    "noise": lambda: np.random.default_rng(0).bytes(5000),
    "text": lambda: b"<!DOCTYPE html><p>404</p>",
    **{f"cut at {share}": lambda share=share: cut(share) for share in (0.01, 0.3, 0.9, 0.999)},
    "cycle": lambda: model([node("Relu", ["b"], "a"), node("Relu", ["a"], "b")], SHAPE,
                           outputs=("b",)),
    "cycle of one": lambda: model([node("Relu", ["y"], "y")], SHAPE),
    "weight missing": lambda: model([node("Add", ["x", "w"])], SHAPE),
    "result missing": lambda: model([node("Relu", ["x"], "z")], SHAPE),
    "weight twice": twice_named,
    "input twice": two_inputs,
    "value twice": lambda: model([node("Relu", ["x"], "w"), node("Add", ["x", "w"])], SHAPE,
                                 {"w": np.ones(3, "float32")}),
    "input of terabytes": lambda: model([node("Relu", ["x"])], {"x": TERABYTE}),
    "weight of terabytes": lambda: claims(TERABYTE),
    "weight of overflow": lambda: claims([2**62, 2**62]),
    "weight of less than nothing": lambda: claims([-1, 4]),
    "constant of terabytes": lambda: sized("ConstantOfShape", *TERABYTE),
    "expansion to terabytes": lambda: sized("Expand", *TERABYTE),
    "tiles of terabytes": lambda: sized("Tile", 2**40),
    "function of itself": lambda: with_functions({"f0": ["f0"]}),
    "functions in a ring": lambda: with_functions({"f0": ["f1"], "f1": ["Relu", "f0"]}),
    "functions that double": lambda: with_functions(
        {**{f"f{k}": [f"f{k + 1}"] * 2 for k in range(40)}, "f40": ["Relu"]}),
    "functions in functions": lambda: with_functions(
        {**{f"f{k}": [f"f{k + 1}"] for k in range(3000)}, "f3000": ["Relu"]}),
    "branches in branches": lambda: nested(3000),
    "loop of many trips": lambda: endless(2**62),
    "loop without end": lambda: endless(None),
    "chain beyond the limit": lambda: chain(100_001),
}  # fmt: skip


class _Child:
    """A process with little memory that imports files."""

    def __init__(self) -> None:
        where = Path(__file__).with_name("_hostile_child.py")
        self.process = subprocess.Popen(
            [sys.executable, str(where)], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL, text=True, env={**os.environ, "OPENBLAS_NUM_THREADS": "1"},
        )  # fmt: skip

    def tries(self, path: Path) -> tuple[str, str, float]:
        assert self.process.stdin is not None and self.process.stdout is not None
        self.process.stdin.write(json.dumps(str(path)) + "\n")
        self.process.stdin.flush()
        return tuple(json.loads(self.process.stdout.readline()))


@pytest.fixture(scope="module")
def child() -> Iterator[_Child]:
    made = _Child()
    yield made
    made.process.kill()
    made.process.wait()


def check_refused(child: _Child, path: Path) -> str:
    kind, text, seconds = child.tries(path)
    assert kind == "refused", (kind, text[:300])
    assert len(text) < 3000 and text.count("\n") <= 30 and seconds < SECONDS
    return text


SLOW = ("chain beyond the limit",)


@pytest.mark.sampled(7)
@pytest.mark.slow
@pytest.mark.parametrize(
    "kind", [pytest.param(k, marks=pytest.mark.slow) if k in SLOW else k for k in FILES]
)
def test_a_file_is_refused_in_words_soon_and_without_memory(kind, child, tmp_path):
    made = FILES[kind]()
    path = tmp_path / "net.onnx"
    path.write_bytes(made if isinstance(made, bytes) else made.SerializeToString())
    check_refused(child, path)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("trips", "words"), [(2**62, "nodes, the limit is"), (None, "it never ends")]
)
def test_a_loop_whose_end_is_known_is_refused_before_it_runs(trips, words, monkeypatch):
    made, run = [], importer._Importer._inline
    monkeypatch.setattr(importer._Importer, "_inline", lambda *args: made.append(0) or run(*args))
    with pytest.raises(ModelError, match=words):
        from_onnx(endless(trips))
    assert len(made) == 1


@pytest.mark.slow
def test_a_long_chain_is_imported(child, tmp_path):
    path = tmp_path / "net.onnx"
    path.write_bytes(chain(5_000).SerializeToString())
    kind, text, seconds = child.tries(path)
    assert kind == "imported", text
    assert seconds < SECONDS


OUTSIDE = {
    "above": "../secret", "absolute": "{outside}/secret", "above from a folder": "a/../../secret",
    "link": "link", "through a linked folder": "folder/secret", "nobody": "", "the folder": ".",
    "a pipe": "pipe", "zero byte": "a\0b", "too long": 5000 * "a", "device": "/dev/zero",
}  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("kind", OUTSIDE)
def test_nothing_outside_the_folder_is_read(kind, child, tmp_path):
    inside = tmp_path / "model"
    (inside / "a").mkdir(parents=True)
    secret = tmp_path / "secret"
    secret.write_bytes(np.full((3, 2000), 7, "float32").tobytes())
    (inside / "link").symlink_to(secret)
    (inside / "folder").symlink_to(tmp_path)
    os.mkfifo(inside / "pipe")
    proto = plain()
    weight = proto.graph.initializer[0]
    weight.ClearField("raw_data")
    weight.data_location = TensorProto.EXTERNAL
    entry = weight.external_data.add()
    entry.key, entry.value = "location", OUTSIDE[kind].format(outside=tmp_path)
    path = inside / "net.onnx"
    path.write_bytes(proto.SerializeToString())
    check_refused(child, path)


@pytest.mark.parametrize("kind", ["cut at 0.3", "cycle", "weight missing", "input of terabytes"])
def test_the_command_tells_it_in_one_line(kind, tmp_path):
    made = FILES[kind]()
    path = tmp_path / "net.onnx"
    path.write_bytes(made if isinstance(made, bytes) else made.SerializeToString())
    done = CliRunner().invoke(cli, ["compile", str(path), "-o", str(tmp_path / "made.tar")])
    assert isinstance(done.exception, ModelError) and not (tmp_path / "made.tar").exists()


# -- programs of PyTorch ---------------------------------------------------------------------------

X = Spec((2, 3), "float32")


def program(*steps: Step, weights: Any = None, shape: Any = (2, 3), output: str = "y") -> Program:
    return Program((("x", Spec(shape, "float32")),), weights or {}, steps, (Ref(output),))


def relu(name: str, of: Any, result: Spec = X) -> Step:
    return Step(name, "relu.default", {"self": of}, (result,))


PROGRAMS = {
    "cycle": program(relu("a", Ref("b")), relu("y", Ref("a"))),
    "value of itself": program(relu("y", Ref("y"))),
    "weight missing": program(relu("y", Ref("w"))),
    "result missing": program(relu("z", Ref("x"))),
    "input of terabytes": program(relu("y", Ref("x")), shape=(2**20, 2**20)),
    "less than nothing": program(relu("y", Ref("x")), shape=(-1, 3)),
    "open": program(relu("y", Ref("x")), shape=("s0", 3)),
    "no tensor": program(relu("y", [[[Ref("x")]]])),
    "another shape": program(relu("y", Ref("x"), Spec((5, 5), "float32"))),
    "expansion to terabytes": program(
        Step("y", "expand.default", {"self": Ref("x"), "size": [2**40, 2, 3]},
             (Spec((2**40, 2, 3), "float32"),))),
    "chain": program(
        *(relu(f"c{k}", Ref(f"c{k - 1}" if k else "x")) for k in range(100_001)), output="c100000"),
    "weight of objects": program(relu("y", Ref("w")), weights={"w": np.array([None])}),
}  # fmt: skip


@pytest.mark.parametrize("kind", PROGRAMS)
def test_a_program_is_refused_in_words(kind):
    with pytest.raises(ModelError) as e:
        import_program(PROGRAMS[kind], "from_exported_program")
    assert len(str(e.value)) < 3000


def one(op: str, constants: dict[str, Any], opset: int = 17, **attrs: Any) -> onnx.ModelProto:
    names = ["x"] if op not in ("Range",) else []
    made = [node(op, [*names, *constants], **attrs)]
    weights = {k: np.asarray(v) for k, v in constants.items()}
    return model(made, {"x": [1, 1, 2, 2]}, weights, opset=opset)


F = np.float32
ODD = np.float32([1, 1, np.nan, 2])
GRAMS = {"min_gram_length": 1, "max_gram_length": 2, "mode": "TF", "pool_int64s": [1, 2]}
# counts and sizes that are no numbers, or so large that nothing may be made of them
NUMBERS = {
    "range-endless": lambda: one("Range", {"a": F(0), "b": F(np.inf), "c": F(1)}),
    "range-nan": lambda: one("Range", {"a": F(0), "b": F(1), "c": F(np.nan)}),
    "range-steps": lambda: one("Range", {"a": np.float64(0), "b": 1e300, "c": 1e-300}),
    "one-hot": lambda: one("OneHot", {"d": F(np.inf), "v": np.zeros(2, "float32")}),
    "tile": lambda: one("Tile", {"t": F(np.nan), "a": F(0)}, 1),
    "resize": lambda: one("Resize", {"r": np.zeros(0, "float32"), "s": ODD}),
    "resize-endless": lambda: one(
        "Resize", {"r": np.zeros(0, "float32"), "s": np.float32([1, 1, np.inf, 2])}
    ),
    "upsample": lambda: one("Upsample", {}, 7, scales=[1.0, 1.0, float("inf"), 2.0]),
    "window": lambda: one("HannWindow", {"size": np.array([4, 4])}),
}  # fmt: skip


@pytest.mark.parametrize("kind", NUMBERS)
def test_counts_and_scales_that_are_no_numbers_are_refused(kind):
    with pytest.raises(ModelError):
        from_onnx(NUMBERS[kind]())


@pytest.mark.parametrize("attrs", [
    {"max_skip_count": 0, "ngram_counts": [0, 2], "ngram_indexes": [0, 2**40]},
    {"max_skip_count": 2**40, "ngram_counts": [0, 0], "ngram_indexes": [0]},
])  # fmt: skip
def test_n_grams_take_neither_memory_nor_time(attrs):
    made = model([node("TfIdfVectorizer", ["x"], **GRAMS, **attrs)], {"x": [6]}, opset=9)
    made.graph.input[0].type.tensor_type.elem_type = TensorProto.INT32
    try:
        from_onnx(made)
    except ModelError as error:
        assert "bytes of computed constants" in str(error)
