"""ConfigSpace: enumeration order, indices, values, arrays, symbolic configurations, refusals."""

from __future__ import annotations

import itertools
import json
import math
import pickle
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.tiers import examples
from tilewright import te
from tilewright.base.errors import SpaceError
from tilewright.schedule.space.config_space import (
    AnnotateEntity,
    Config,
    ConfigEntity,
    ConfigSpace,
    FallbackConfigEntity,
    OtherOptionEntity,
    ReorderEntity,
    SplitEntity,
    SplitSpace,
    VirtualAxis,
)
from tilewright.schedule.space.decision import Choice, evaluate
from tilewright.schedule.space.policies import axis_length
from tilewright.schedule.space.trace import Refused, trace

RNG = np.random.default_rng(0)


def conv_space() -> ConfigSpace:
    """The space of the AutoTVM tutorial on CUDA convolutions."""
    cfg = ConfigSpace()
    for name, extent, outputs in (
        ("tile_f", 512, 4), ("tile_y", 7, 4), ("tile_x", 7, 4),
        ("tile_rc", 512, 3), ("tile_ry", 3, 3), ("tile_rx", 3, 3),
    ):  # fmt: skip
        cfg.define_split(name, extent, num_outputs=outputs)
    cfg.define_knob("auto_unroll_max_step", [0, 512, 1500])
    cfg.define_knob("unroll_explicit", [0, 1])
    return cfg


# As TVM printed them: index, the sizes of f, y, x, rc, ry, rx, the unroll step, explicit
GOLDEN = """
 9163817 | 1 8 8 8     | 1 7 1 1 | 1 7 1 1 | 1 256 2  | 1 1 3 | 3 1 1 | 1500 | 1
  430132 | 2 32 8 1    | 1 1 1 7 | 7 1 1 1 | 64 4 2   | 1 1 3 | 3 1 1 |    0 | 0
 7171430 | 8 1 32 2    | 1 7 1 1 | 1 7 1 1 | 128 4 1  | 1 3 1 | 3 1 1 |  512 | 1
  371506 | 4 8 2 8     | 7 1 1 1 | 1 1 7 1 | 2 2 128  | 1 3 1 | 3 1 1 |    0 | 0
 1984850 | 256 1 2 1   | 1 1 7 1 | 1 1 1 7 | 32 8 2   | 1 3 1 | 3 1 1 |  512 | 0
 5892581 | 64 2 1 4    | 7 1 1 1 | 7 1 1 1 | 4 32 4   | 3 1 1 | 1 3 1 |    0 | 1
 2135585 | 8 1 64 1    | 1 1 1 7 | 1 1 7 1 | 256 2 1  | 1 1 3 | 3 1 1 |  512 | 0
 1293822 | 128 4 1 1   | 1 7 1 1 | 1 1 7 1 | 4 8 16   | 3 1 1 | 1 1 3 |    0 | 0
 4766314 | 16 16 2 1   | 1 7 1 1 | 7 1 1 1 | 32 1 16  | 3 1 1 | 1 1 3 | 1500 | 0
 3056056 | 8 4 16 1    | 1 1 1 7 | 7 1 1 1 | 2 8 32   | 3 1 1 | 1 1 3 |  512 | 0
  161989 | 4 32 2 2    | 7 1 1 1 | 7 1 1 1 | 4 2 64   | 3 1 1 | 3 1 1 |    0 | 0
   29635 | 4 2 8 8     | 1 1 7 1 | 1 7 1 1 | 2 256 1  | 3 1 1 | 3 1 1 |    0 | 0
 6720023 | 4 4 8 4     | 1 7 1 1 | 7 1 1 1 | 1 32 16  | 1 3 1 | 1 1 3 |    0 | 1
 1478128 | 2 16 1 16   | 1 1 7 1 | 1 1 1 7 | 32 1 16  | 1 3 1 | 1 1 3 |    0 | 0
 9198955 | 2 2 64 2    | 1 7 1 1 | 1 7 1 1 | 32 2 8   | 1 1 3 | 3 1 1 | 1500 | 1
  220904 | 4 32 4 1    | 7 1 1 1 | 1 1 1 7 | 4 128 1  | 1 3 1 | 3 1 1 |    0 | 0
 8322429 | 4 1 128 1   | 1 7 1 1 | 1 7 1 1 | 1 1 512  | 3 1 1 | 1 1 3 |  512 | 1
 3510954 | 4 1 4 32    | 1 1 7 1 | 1 7 1 1 | 4 128 1  | 3 1 1 | 3 1 1 | 1500 | 0
 6540502 | 8 2 8 4     | 1 7 1 1 | 7 1 1 1 | 2 8 32   | 3 1 1 | 1 1 3 |    0 | 1
  108895 | 1 1 4 128   | 1 1 7 1 | 1 1 1 7 | 8 8 8    | 3 1 1 | 3 1 1 |    0 | 0
"""


@pytest.mark.parametrize("line", GOLDEN.strip().splitlines())
def test_indices_of_the_tutorial_both_ways(line: str) -> None:
    first, *columns = ([int(word) for word in column.split()] for column in line.split("|"))
    (index,), values = first, [c if len(c) > 1 else c[0] for c in columns]
    space = conv_space()
    given_values = dict(zip(space.space_map, values, strict=True))
    assert repr(space.get(index)) == f"{list(given_values.items())},,None,{index}"
    assert space.index_of(given_values) == index
    assert space.index_of(space.get(index)) == index
    assert space.encode(space.decode(np.array([index]))).tolist() == [index]


def test_printed_space() -> None:
    assert (
        str(conv_space())
        == """\
ConfigSpace (len=10454400, space_map=
   0 tile_f: Split(policy=factors, product=512, num_outputs=4) len=220
   1 tile_y: Split(policy=factors, product=7, num_outputs=4) len=4
   2 tile_x: Split(policy=factors, product=7, num_outputs=4) len=4
   3 tile_rc: Split(policy=factors, product=512, num_outputs=3) len=55
   4 tile_ry: Split(policy=factors, product=3, num_outputs=3) len=3
   5 tile_rx: Split(policy=factors, product=3, num_outputs=3) len=3
   6 auto_unroll_max_step: OtherOption([0, 512, 1500]) len=3
   7 unroll_explicit: OtherOption([0, 1]) len=2
)"""
    )
    assert repr(conv_space()) == (
        "ConfigSpace(10454400 configurations; tile_f:220, tile_y:4, tile_x:4, tile_rc:55, "
        "tile_ry:3, tile_rx:3, auto_unroll_max_step:3, unroll_explicit:2)"
    )


# The enumeration, stated a second time as the recursion it is.


def walk_tilings(length: int, sizes: list[int], outputs: int, exact: bool) -> list[list[int]]:
    found: list[list[int]] = []

    def descend(stack: list[int]) -> None:
        if len(stack) < outputs - 1:
            for size in sizes:
                descend([*stack, size])
            return
        tile = math.prod(stack)
        if length % tile == 0 or (not exact and tile < length):
            found.append([-(-length // tile), *reversed(stack)])

    descend([])
    return found


POLICIES = st.sampled_from(["factors", "power2", "verbose"])


@given(st.integers(1, 60), POLICIES, st.integers(1, 4), st.integers(1, 70), st.booleans())
@examples(40)
def test_split_order(length: int, policy: str, outputs: int, limit: int, exact: bool) -> None:
    powers = [2**i for i in range(10) if 2**i <= length]
    divisors = [d for d in range(1, length + 1) if length % d == 0]
    sizes = sorted(
        {"factors": {*divisors}, "power2": {*powers}, "verbose": {*divisors, *powers}}[policy]
    )
    expected = walk_tilings(length, [s for s in sizes if s <= limit], outputs, exact)
    knob = SplitSpace(
        "t", length, policy, num_outputs=outputs, max_factor=limit, no_tail=exact
    )  # fmt: skip
    assert [e.size for e in knob] == expected
    assert knob.exact == all(math.prod(s) == length for s in expected)


def test_factors_are_exact_unless_asked_otherwise() -> None:
    assert SplitSpace("t", 12, num_outputs=2).exact
    assert len(SplitSpace("t", 12, "factors", num_outputs=3, no_tail=False)) > len(
        SplitSpace("t", 12, num_outputs=3)
    )
    assert not SplitSpace("t", 12, "power2", num_outputs=2).exact


def test_split_filter_and_candidates() -> None:
    kept = SplitSpace("t", 64, num_outputs=3, filter=lambda e: e.size[1] in {4} and e.size[2] < 8)
    assert [e.size for e in kept] == [[16, 4, 1], [8, 4, 2], [4, 4, 4]]
    listed = SplitSpace("t", 56, "candidate", candidate=[[-1, 8], [4, 14], [-1, 64], [1, 16]])
    assert [e.size for e in listed] == [[7, 8], [4, 14], [1, 64], [4, 16]]
    assert listed.position(SplitEntity([-1, 14])) == 1
    unknown = SplitSpace("t", VirtualAxis(-1), "candidate", candidate=[[-1, 8]])
    assert unknown[0].size == [-1, 8]


def test_axis_lengths() -> None:
    data = te.placeholder((6, 4), name="data")
    rows = te.reduce_axis((0, 6), name="rows")
    out = te.compute((4,), lambda j: te.sum(data[rows, j], axis=rows), name="out")
    assert axis_length(out.op.axis[0]) == 4 and axis_length(rows) == 6
    assert axis_length(VirtualAxis(rows)) == 6 and axis_length(np.int64(3)) == 3
    assert axis_length(SimpleNamespace(extent=None)) == -1
    assert axis_length(SimpleNamespace(dom=SimpleNamespace(extent=5))) == 5
    assert Config.axis(8).length == Config.reduce_axis(out.op.axis[0]).length * 2 == 8


# Whole spaces.

KNOBS = st.one_of(
    st.tuples(
        st.just("split"), st.integers(1, 24), POLICIES, st.integers(1, 3)
    ),
    st.tuples(
        st.just("knob"),
        st.lists(st.integers(-5, 50), min_size=1, max_size=4, unique=True)
        | st.lists(st.sampled_from(["a", "b", "c", None, 2.5, True]), min_size=1, unique=True),
    ),
    st.tuples(st.just("reorder"), st.integers(1, 3), st.sampled_from(["identity", "all"])),
    st.tuples(
        st.just("annotate"), st.integers(1, 3),
        st.sampled_from(["try_unroll_vec", "unroll", "none_vec"]),
    ),
)  # fmt: skip


@st.composite
def spaces(draw: st.DrawFn) -> ConfigSpace:
    cfg = ConfigSpace()
    for i, (kind, first, *rest) in enumerate(draw(st.lists(KNOBS, max_size=4))):
        if kind == "split":
            cfg.define_split(f"k{i}", first, rest[0], num_outputs=rest[1])
        elif kind == "knob":
            cfg.define_knob(f"k{i}", first)
        else:
            define = cfg.define_reorder if kind == "reorder" else cfg.define_annotate
            define(f"k{i}", [VirtualAxis(2) for _ in range(first)], rest[0])
    return cfg


@given(spaces(), st.data())
@examples(40)
def test_index_and_configuration_are_a_bijection(space: ConfigSpace, data: st.DataObject) -> None:
    indices = space.sample(20, np.random.default_rng(1))
    assert len(indices) == min(20, len(space)) == len(set(indices.tolist()))
    assert (space.encode(space.decode(indices)) == indices).all()
    assert (space.indices(space.positions(indices)) == indices).all()
    index = data.draw(st.integers(0, len(space) - 1))
    config = space.get(index)
    assert space.knob2point(space.point2knob(index)) == index
    assert space.index_of(config) == index
    read = ConfigEntity.from_json_dict(json.loads(json.dumps(config.to_json_dict())))
    assert read == config and space.index_of(read) == index and repr(read) == repr(config)
    other = data.draw(st.integers(0, len(space) - 1))
    assert (space.get(other) == config) == (other == index)
    assert pickle.loads(pickle.dumps(config)) == config


@given(spaces())
@examples(40)
def test_symbolic_configuration_equals_each_concrete_one(space: ConfigSpace) -> None:
    def read(cfg: Any) -> list[Any]:
        entities = [cfg[name] for name in space.space_map]
        return [e.val if isinstance(e, OtherOptionEntity) else e.value for e in entities]

    indices = space.sample(30, np.random.default_rng(2))
    population, config = space.decode(indices), space.symbolic()
    parts = trace(lambda: read(config), population, len(indices), max_parts=100)
    for part in parts:
        assert part.value is not None
        for row in part.rows:
            expected = read(space.get(int(indices[row])))
            ints = population.row(int(row))
            assert [_closed(v, ints) for v in part.value] == expected
            assert ints == space.decode(int(indices[row]))


def _closed(value: Any, ints: Any) -> Any:
    if isinstance(value, list):
        return [_closed(v, ints) for v in value]
    return evaluate(value, ints) if isinstance(value, Choice) else value


def test_first_knob_varies_fastest() -> None:
    space = ConfigSpace()
    space.define_knob("a", [10, 20, 30])
    space.define_knob("b", ["x", "y"])
    assert [space.get(i).get_other_option() for i in (0, 1, 3)] == [
        {"a": 10, "b": "x"}, {"a": 20, "b": "x"}, {"a": 10, "b": "y"},
    ]  # fmt: skip
    assert (space.dims, len(space), space.range_length) == ([3, 2], 6, 6)
    assert space.decode(5) == {"a": 30, "b": 1}  # ints by value, the others by position


def test_collecting_returns_the_first_entities_and_handles() -> None:
    space = ConfigSpace()
    tiles = space.define_split("t", 8, num_outputs=2)
    assert [axis.name for axis in tiles] == ["t.0", "t.1"]
    space.define_reorder("order", tiles, "candidate", candidate=[tiles, tiles[::-1]])
    assert [e.perm for e in space.space_map["order"]] == [[0, 1], [1, 0]]
    assert space["t"].size == [8, 1] and "t" in space and "u" not in space
    space.define_split("t", 8, num_outputs=2)  # the same again changes nothing
    assert len(space) == 8
    space.add_flop(5)
    space.add_flop(6)
    assert space.flop == 11


def test_a_concrete_configuration_ignores_definitions() -> None:
    config = conv_space().get(2135585)
    assert len(config.define_split("tile_f", 512, num_outputs=4)) == 4
    assert len(config.define_reorder("o", [1, 2], "all")) == 2
    assert len(config.define_annotate("n", [1, 2], "unroll")) == 2
    config.define_knob("k", [1])
    config.multi_filter(lambda cfg: False)
    config.add_flop(3)
    assert config["tile_f"].size == [8, 1, 64, 1] and config["unroll_explicit"].val == 0
    assert config.valid() and config.flop == 0 and not config.is_fallback
    config.raise_error("too large")
    assert not config.valid() and config.errors == ["too large"]


def test_flattened_features() -> None:
    space = ConfigSpace()
    axes = [VirtualAxis(2), VirtualAxis(2)]
    space.define_split("s", 4, num_outputs=2)
    space.define_reorder("r", axes, "identity")
    space.define_annotate("a", axes[:1], "unroll")
    space.define_annotate("c", axes, "locate_cache", num_anchor=1)
    space.define_knob("k", [7])
    space.define_knob("name", ["x"])
    onehot = [0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0]
    assert space.get(1).get_flatten_feature().tolist() == [2, 2, 0, 1, *onehot, 0, 7]


# Policies of orders and annotations.


def orders(policy: str, count: int = 3, **options: Any) -> list[list[int]]:
    space, axes = ConfigSpace(), [VirtualAxis(2, f"x{i}") for i in range(count)]
    by_name = {k: [[axes[i] for i in c] for c in v] for k, v in options.items() if k != "interval"}
    space.define_reorder("o", axes, policy, **{**options, **by_name})
    return [e.perm for e in space.space_map["o"]]


def test_reorder_policies() -> None:
    assert orders("identity") == [[0, 1, 2]]
    assert orders("all") == [list(p) for p in itertools.permutations(range(3))]
    assert orders("interval_all", 4, interval=(1, 3)) == [[0, 1, 2, 3], [0, 2, 1, 3]]
    assert orders("candidate", candidate=[[2, 1, 0]]) == [[2, 1, 0]]
    chains = {"spatial": [[0, 1, 2], [3, 4]], "reduce": [[5, 6]]}
    assert orders("interleave", 7, **chains) == [[0, 1, 3, 5, 2, 4, 6]]
    assert orders("interleave_cuda", 7, **chains) == [[0, 1, 3, 5, 6, 2, 4]]


def annotations(policy: str, count: int, **options: Any) -> list[list[Any]]:
    space = ConfigSpace()
    space.define_annotate("a", [VirtualAxis(2)] * count, policy, **options)
    return [e.anns for e in space.space_map["a"]]


def test_annotate_policies() -> None:
    assert annotations("bind_gpu", 2) == [["blockIdx.x", "threadIdx.x"]]
    assert annotations("bind_gpu", 5) == [
        ["fuse", "blockIdx.y", "blockIdx.x", "threadIdx.y", "threadIdx.x"]
    ]
    assert annotations("bind_gpu", 7)[0][:2] == ["fuse", "blockIdx.z"]
    assert annotations("bind_gpu_virtual", 3) == [["blockIdx.x", "vthread", "threadIdx.x"]]
    assert annotations("bind_gpu_virtual", 9) == [
        ["blockIdx.z", "blockIdx.y", "blockIdx.x", *["vthread"] * 3,
         "threadIdx.z", "threadIdx.y", "threadIdx.x"]
    ]  # fmt: skip
    assert annotations("locate_cache", 3, num_anchor=2) == [[0, 1], [0, 2], [1, 2]]
    assert annotations("try_vec", 2) == [["none", "none"], ["none", "vec"], ["vec", "none"]]
    assert annotations("unroll", 2) == [["unroll", "unroll"]]


# Applying entities calls the public schedule primitives and nothing else.


class Recorder:
    """Stands for a schedule: `s[op]` gives a stage whose calls are written down."""

    def __init__(self) -> None:
        self.calls: list[str] = []

    def __getitem__(self, op: str) -> Any:
        return SimpleNamespace(
            split=lambda axis, factor: self._note(f"{op}.split({axis}, {factor})", 2),
            fuse=lambda a, b: self._note(f"{op}.fuse({a}, {b})", 1)[0],
            reorder=lambda *axes: self._note(f"{op}.reorder{axes}", 0),
            unroll=lambda axis: self._note(f"{op}.unroll({axis})", 0),
            vectorize=lambda axis: self._note(f"{op}.vectorize({axis})", 0),
            compute_at=lambda stage, axis: self._note(f"{op}.compute_at({axis})", 0),
            bind=lambda axis, thread: self._note(f"{op}.bind({axis}, {thread.thread_tag})", 0),
        )

    def _note(self, call: str, results: int) -> list[str]:
        self.calls.append(call)
        return [f"ax{len(self.calls)}{'oi'[i] if results > 1 else ''}" for i in range(results)]


def test_apply_split() -> None:
    s = Recorder()
    assert SplitEntity([8, 1, 64, 2]).apply(s, "C", "f") == ["ax1o", "ax2o", "ax3o", "ax3i"]
    assert s.calls == ["C.split(f, 128)", "C.split(ax1i, 128)", "C.split(ax2i, 2)"]
    s = Recorder()
    conv_space().symbolic()["tile_rc"].apply(s, "C", "rc")
    assert s.calls == ["C.split(rc, tile_rc.1*tile_rc.2)", "C.split(ax1i, tile_rc.2)"]
    assert SplitEntity([5]).apply(Recorder(), "C", "f") == ["f"]


def test_apply_reorder_and_annotations() -> None:
    s = Recorder()
    assert ReorderEntity([2, 0, 1]).apply(s, "C", ["i", "j", "k"]) == ["k", "i", "j"]
    marks = AnnotateEntity(["fuse", "fuse", "blockIdx.x", "threadIdx.x"])
    assert marks.apply(s, "C", ["a", "b", "c", "d"]) == ["ax3", "d"]
    loops = AnnotateEntity(["none", "unroll", "vec"])
    loops.apply(s, "C", "xyz", axis_lens=[9, 4, 8], max_unroll=4, vec_size={4, 8})
    AnnotateEntity([1, 0]).apply(s, "C", ["i", "j"], source=[["A"], ["B", "D"]])
    assert s.calls == [
        "C.reorder('k', 'i', 'j')", "C.fuse(a, b)", "C.fuse(ax2, c)", "C.bind(ax3, blockIdx.x)",
        "C.bind(d, threadIdx.x)", "C.unroll(y)", "C.vectorize(z)",
        "A.compute_at(j)", "B.compute_at(i)", "D.compute_at(i)",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("mark", "message"),
    [("unroll", "Too large factor for unrolling"), ("vec", "Wrong size of lanes in vectorization")],
)
def test_annotations_mark_a_configuration_invalid(mark: str, message: str) -> None:
    space = ConfigSpace()
    space.define_split("t", 8, num_outputs=2)
    entity = AnnotateEntity([mark])
    options: dict[str, Any] = {"max_unroll": 4, "vec_size": [1, 2, 4]}
    config = space.get(3)
    entity.apply(Recorder(), "C", ["x"], [config["t"].size[1]], cfg=config, **options)
    assert config.errors == [message]
    with pytest.raises(Refused, match=message):
        entity.apply(Recorder(), "C", ["x"], [8], **options)
    with pytest.raises(SpaceError, match="needs axis_lens"):
        entity.apply(Recorder(), "C", ["x"], **options)

    cfg = space.symbolic()
    parts = trace(
        lambda: entity.apply(Recorder(), "C", ["x"], [cfg["t"].size[1]], cfg=cfg, **options),
        space.decode(np.arange(4)), 4,
    )  # fmt: skip
    refused = [r for p in parts if p.error for r in p.rows]
    assert refused == [3] and all(message in str(p.error) for p in parts if p.error)


# Symbolic configurations.


def test_symbolic_entities() -> None:
    space = conv_space()
    space.define_split("odd", 7, "power2", num_outputs=2)
    space.define_split("one", 1, num_outputs=2)
    cfg = space.symbolic()
    assert str(cfg["tile_f"].size) == "[tile_f.0, tile_f.1, tile_f.2, tile_f.3]"
    assert str(cfg["odd"].size) == "[ceil_div(7, odd.1), odd.1]"
    assert cfg["one"].size == [1, 1]  # nothing to decide
    assert str(cfg["auto_unroll_max_step"].val) == "auto_unroll_max_step"
    assert repr(cfg).startswith("SymbolicConfig(tile_f, tile_y")


def test_options_that_are_no_ints_ask() -> None:
    space = ConfigSpace()
    space.define_knob("layout", ["NCHW", "NHWC"])
    space.define_knob("flag", [False, True])
    cfg = space.symbolic()
    with pytest.raises(SpaceError, match="layout"):
        cfg["layout"]
    parts = trace(lambda: (cfg["layout"].val, cfg["flag"].val), space.decode(np.arange(4)), 4)
    assert [(p.value, p.rows.tolist()) for p in parts] == [
        (("NCHW", False), [0]), (("NCHW", True), [2]),
        (("NHWC", False), [1]), (("NHWC", True), [3]),
    ]  # fmt: skip
    assert parts[1].value is not None and parts[1].value[1] is True


def test_raise_error_refuses_the_part_being_traced() -> None:
    space = conv_space()
    cfg = space.symbolic()

    def template() -> str:
        if cfg["unroll_explicit"].val == 1:
            cfg.raise_error("not explicit")
        return "fine"

    good, bad = trace(template, space.decode(space.sample(64, RNG)), 64)
    assert good.value == "fine" and isinstance(bad.error, Refused)


# Searching.


def test_samples_differ_and_follow_the_generator() -> None:
    space = conv_space()
    one, two = (space.sample(1000, np.random.default_rng(3)) for _ in range(2))
    assert (one == two).all() and len(set(one.tolist())) == 1000
    small = ConfigSpace()
    small.define_knob("k", [1, 2, 3])
    assert sorted(small.sample(10, RNG).tolist()) == [0, 1, 2]
    assert len(space.sample(0, RNG)) == 0
    assert len(space.sample_ints(5)) == 5


@given(st.integers(0, 10454399), st.integers(0, 99))
@examples(30)
def test_a_walk_changes_exactly_one_knob(point: int, seed: int) -> None:
    space = conv_space()
    moved = space.random_walk(point, np.random.default_rng(seed))
    pairs = zip(space.point2knob(point), space.point2knob(moved), strict=True)
    assert sum(a != b for a, b in pairs) == 1


def test_a_walk_reaches_every_knob() -> None:
    space = conv_space()
    start = np.full(2000, 123456)
    before, after = space.positions(start), space.positions(space.walk(start, RNG))
    assert ((before != after).sum(axis=0) == 1).all()
    assert (before != after).any(axis=1).all()


def test_multi_filter_on_a_space_too_large_to_list() -> None:
    space = conv_space()
    for name in ("more", "much_more"):
        space.define_split(name, 4096, num_outputs=4)
    assert space.range_length > 10**12
    space.multi_filter(
        lambda cfg: cfg["tile_f"].size[2] * cfg["tile_y"].size[2] * cfg["tile_x"].size[2] >= 64
    )
    found = space.sample(200, RNG)
    threads = space.decode(found)
    assert len(found) == 200 == len(set(found.tolist()))
    product = threads["tile_f.2"] * threads["tile_y.2"] * threads["tile_x.2"]
    assert np.min(product) >= 64


def test_a_filter_may_raise_and_read_options() -> None:
    space = ConfigSpace()
    space.define_knob("layout", ["a", "b"])
    space.define_knob("k", [1, 2])

    def predicate(cfg: Any) -> bool:
        if cfg["k"].val == 2:
            cfg.raise_error("no")
        return bool(cfg["layout"].val == "b")

    space.multi_filter(predicate)
    assert space.valid_mask(np.arange(4)).tolist() == [False, True, False, False]


# Fallback.


def test_fallback_split_is_greedy_from_the_innermost() -> None:
    cfg = FallbackConfigEntity()
    cfg.define_split("t", 56, num_outputs=3)
    cfg.define_knob("k", [1, 2])
    assert cfg.is_fallback and cfg["t"].size == [56, 1, 1]
    cfg.fallback_split("t", [-1, 8, 4])
    assert cfg["t"].size == [2, 7, 4]
    cfg.fallback_split("t", [1, -1, 3])
    assert cfg["t"].size == [1, 28, 2]
    cfg["k"] = OtherOptionEntity(2)
    assert cfg["k"].val == 2
    assert repr(cfg) == "[('t', [1, 28, 2]), ('k', 2)],,None,None"
    assert ConfigEntity.from_json_dict(cfg.to_json_dict())["t"].size == [1, 28, 2]


def test_fallback_with_reference_log() -> None:
    def record(extent: int, sizes: list[int], unroll: int) -> Any:
        entities = {"t": SplitEntity(sizes), "unroll": OtherOptionEntity(unroll)}
        return SimpleNamespace(config=ConfigEntity(0, entities)), None

    cfg = FallbackConfigEntity()
    cfg.define_split("t", 96, num_outputs=2)
    cfg.define_knob("unroll", [0, 512])
    cfg.fallback_with_reference_log([])
    assert cfg["t"].size == [96, 1]
    other = SimpleNamespace(config=ConfigEntity(0, {"else": SplitEntity([4, 24])})), None
    records = [record(7, [7, 1], 0), record(64, [4, 16], 512), record(5, [-1, 5], 0), other]
    cfg.fallback_with_reference_log(records)
    assert cfg["t"].size == [6, 16] and cfg["unroll"].val == 512
    foreign = [record(96, [2, 4, 12], 512), record(96, [8, 12], 7)]  # three loops; no such choice
    cfg.fallback_with_reference_log(foreign)
    assert cfg["t"].size == [6, 16] and cfg["unroll"].val == 512


def test_a_space_beyond_64_bits_has_no_arrays_but_configurations() -> None:
    space = ConfigSpace()
    for i in range(10):
        space.define_split(f"t{i}", 4096, num_outputs=4)
    assert space.range_length > 2**63
    assert space.get(space.range_length - 1)["t9"].size == [1, 1, 1, 4096]
    with pytest.raises(SpaceError, match="do not fit 64-bit"):
        space.sample(1, RNG)
    with pytest.raises(SpaceError, match="do not fit 64-bit"):
        space.decode(0)
