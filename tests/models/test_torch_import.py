"""Programs of PyTorch become networks that compute the same; what cannot be imported is told once.

None of these needs PyTorch: calls and their results are those of `aten_expected.json`.
"""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from models.aten_cases import EXPECTED
from tilewright.base.errors import ModelError
from tilewright.models.limits import Limits
from tilewright.models.torch.importer import Blocked, import_program
from tilewright.models.torch.ops import CONVERTERS
from tilewright.models.torch.ops.counted import NUMBERS
from tilewright.models.torch.ops.refused import REASONS
from tilewright.models.torch.parts import parts_of, without_values
from tilewright.models.torch.program import Program, Ref, Spec, Step
from tilewright_tvm import relay
from tilewright_tvm.topi import testing

CALLS = json.loads(EXPECTED.read_text())
RELATIVE = {"float16": 5e-3, "float32": 2e-5}


def array_of(plain: dict[str, Any]) -> np.ndarray:
    return np.array(plain["values"], plain["dtype"]).reshape(plain["shape"])


def is_tensor(plain: Any) -> bool:
    return isinstance(plain, dict)


def program_of(call: dict[str, Any], constants: bool = False) -> tuple[Program, dict[str, Any]]:
    """One call as a program, and its inputs; constants: tensors of integers are weights."""
    arrays: dict[str, np.ndarray] = {}

    def argument(value: Any) -> Any:
        if is_tensor(value):  # equal arguments are one value
            array = array_of(value)
            same = (k for k, a in arrays.items() if a.dtype == array.dtype
                    and np.array_equal(a, array))  # fmt: skip
            name = next(same, f"x{len(arrays)}")
            arrays[name] = array
            return Ref(name)
        return [argument(v) for v in value] if isinstance(value, list) else value

    args = {k: argument(v) for k, v in call["args"].items()}
    results = tuple(
        Spec(tuple(r["shape"]), r["dtype"]) if is_tensor(r) else None for r in call["results"]
    )
    steps = [Step("made", call["op"], args, results, call["several"])]
    outputs = [Ref("made")]
    if call["several"]:
        outputs = [Ref(f"part{k}") for k in range(len(results))]
        steps += [
            Step(f"part{k}", "getitem", {"self": Ref("made"), "index": k}, (r,))
            for k, r in enumerate(results)
        ]
    fixed = {k: a for k, a in arrays.items() if constants and a.dtype.kind == "i"}
    inputs = tuple((k, Spec(a.shape, a.dtype.name)) for k, a in arrays.items() if k not in fixed)
    return Program(inputs, fixed, tuple(steps), tuple(outputs)), arrays


def read_results(call: dict[str, Any]) -> list[int]:
    """The results that networks read: of some operators the others are for training."""
    training = (
        "native_",
        "_embedding_bag",
        "_linalg_det",
        "_linalg_solve",
        "linalg_inv",
        "linalg_cholesky",
        "_native_batch_norm_legit_no",
        "_native_batch_norm_legit.no_stats",
        "_scaled",
        "_native_multi",
    )
    several = range(len(call["results"]))
    if call["op"].startswith("_native_batch_norm_legit_functional"):
        return list(several) if call["args"]["training"] else [0, 3, 4]
    if call["op"].startswith("_linalg_slogdet"):
        return [0, 1]
    return [0] if call["op"].startswith(training) else list(several)


def check(call: dict[str, Any], constants: bool) -> None:
    program, inputs = program_of(call, constants)
    kept = read_results(call)
    program = Program(
        program.inputs, program.weights, program.steps, tuple(program.outputs[k] for k in kept)
    )
    mod, params = import_program(program, "test")
    found = relay.evaluate(mod, {**inputs, **params})
    for value, k in zip(found if len(kept) > 1 else [found], kept, strict=True):
        want = array_of(call["results"][k])
        assert value.dtype == want.dtype and value.shape == want.shape
        np.testing.assert_allclose(
            value, want, rtol=RELATIVE.get(str(want.dtype), 1e-6), atol=2e-6, equal_nan=True
        )


def name_of(call: dict[str, Any]) -> str:
    shapes = [str(v["shape"]) for v in call["args"].values() if is_tensor(v)]
    return f"{call['op']}{','.join(shapes)}".replace(" ", "")


@pytest.mark.sampled(332)
@pytest.mark.slow
@pytest.mark.parametrize("call", CALLS, ids=name_of)
def test_an_operator_gives_what_pytorch_gives(call):
    check(call, constants=False)


@pytest.mark.parametrize(
    "call", [c for c in CALLS if c["op"].startswith(("index", "gather", "scatter", "embedding"))],
    ids=name_of,
)  # fmt: skip
def test_indices_may_be_known(call):
    check(call, constants=True)


@pytest.mark.parametrize("call", [c for c in CALLS if c["several"]], ids=name_of)
def test_a_result_that_is_not_computed_blocks_the_call_alone(call):
    whole, _ = program_of(call)
    relu = {"self": Ref("x")}
    whole = replace(
        whole, inputs=(*whole.inputs, ("x", Spec((2, 3), "float32"))),
        steps=(*whole.steps, Step("other", "relu.default", relu, (Spec((2, 3), "float32"),))),
    )  # fmt: skip
    for k in set(range(len(call["results"]))) - set(read_results(call)):
        if whole.steps[0].results[k] is None:
            continue
        with pytest.raises(Blocked, match=f"1 x {call['op']}.*result {k} is not.*Use its") as told:
            import_program(replace(whole, outputs=(whole.outputs[k], Ref("other"))), "test")
        assert told.value.steps == {"made"}


def test_every_operator_has_a_case_or_shares_a_converter_with_one_that_has():
    covered = {CONVERTERS[c["op"]] for c in CALLS if c["op"] in CONVERTERS}
    left = [name for name, converter in CONVERTERS.items() if converter not in covered]
    apart = [name for name in left if name in NUMBERS or name in REASONS
             or name.startswith(("torchvision.", "quantized_decomposed."))]  # fmt: skip
    assert left == apart  # see the end, and test_torch_quantized.py


# -- whole programs --------------------------------------------------------------------------------


def step(name: str, op: str, shape: tuple[Any, ...], **args: Any) -> Step:
    return Step(name, op, args, (Spec(shape, "float32"),))


def program(*steps: Step, shape: tuple[Any, ...] = (2, 3), **more: Any) -> Program:
    output = more.pop("output", Ref(steps[-1].name) if steps else Ref("x"))
    return Program((("x", Spec(shape, "float32")),), more, steps, (output,))


def test_weights_are_parameters_and_are_not_copied():
    weight = np.ones((4, 3), "float32")
    made = step("y", "linear.default", (2, 4), input=Ref("x"), weight=Ref("fc.weight"), bias=None)
    mod, params = import_program(program(made, **{"fc.weight": weight}), "test")
    assert [p.name_hint for p in mod["main"].params] == ["x", "fc.weight"]
    assert params["fc.weight"] is weight


def test_what_is_not_read_is_no_parameter():
    made = step("y", "relu.default", (2, 3), self=Ref("x"))
    mod, params = import_program(program(made, unread=np.ones(3, "float32")), "test")
    assert len(mod["main"].params) == 1 and params == {}


def test_an_open_extent_is_refused_with_a_way_out():
    made = step("y", "relu.default", ("s0", 3), self=Ref("x"))
    with pytest.raises(ModelError, match="extent s0 is open.*Export the module without dynamic"):
        import_program(program(made, shape=("s0", 3)), "test")


def test_one_error_lists_all_that_blocks_most_frequent_first_in_few_lines():
    steps: list[Step] = []
    for k in range(40):
        for name in [f"a{k}_{i}" for i in range(1 + (k == 7))]:
            steps.append(step(name, f"strange{k}.default", (2, 3), self=Ref("x")))
    whole = [Ref(s.name) for s in steps]
    steps.append(step("y", "cat.default", (2 * len(steps), 3), tensors=whole))
    with pytest.raises(ModelError) as caught:
        import_program(program(*steps), "test")
    lines = str(caught.value).splitlines()
    assert len(lines) <= 30 and "41 of 42 calls" in lines[0]
    assert "2 x strange7.default (a7_0, a7_1)" in lines[1]
    assert "more, of" in lines[-1] and "cat.default" not in str(caught.value)


def test_what_reads_the_results_of_blockers_is_counted_apart():
    open_ = Step("a", "strange.default", {"self": Ref("x")}, (Spec(("s0",), "float32"),))
    lists = [step(f"b{k}", "relu.default", (2, 3), self=Ref("a")) for k in range(3)]
    last = step("y", "cat.default", (6, 3), tensors=[Ref(b.name) for b in lists])
    with pytest.raises(Blocked) as caught:
        import_program(program(open_, *lists, last), "test")
    lines = str(caught.value).splitlines()
    assert "1 of 5 calls" in lines[0] and "strange" in lines[1]
    assert "3 (b0, b1, ...) read what is not there" in lines[2]
    assert caught.value.steps == {"a", "b0", "b1", "b2"}


def test_what_an_operator_refuses_is_in_the_list():
    made = Step(
        "y", "native_batch_norm.default",
        {"input": Ref("x"), "weight": None, "bias": None, "running_mean": Ref("x"),
         "running_var": Ref("x"), "training": True, "momentum": 0.1, "eps": 1e-5},
        (Spec((2, 3), "float32"), None, None), True,
    )  # fmt: skip
    first = Step("z", "getitem", {"self": Ref("y"), "index": 0}, (Spec((2, 3), "float32"),))
    with pytest.raises(ModelError, match=r"native_batch_norm.*training mode.*\.eval\(\)"):
        import_program(program(made, first), "test")


@pytest.mark.parametrize("args", [
    ("slice.Tensor", {"self": Ref("x"), "dim": 0, "start": 0, "end": 2, "step": 0}),
    ("add.Tensor", {"self": Ref("x"), "other": 2, "alpha": "x"}),
    ("elu.default", {"self": Ref("x"), "alpha": []}),
    ("unfold.default", {"self": Ref("x"), "dimension": 0, "size": -(2**40), "step": 1}),
    ("pixel_shuffle.default", {"self": Ref("x"), "upscale_factor": 0}),
    ("floor_divide.default", {"self": Ref("x"), "other": float("inf")}),
])  # fmt: skip
def test_arguments_that_pytorch_would_not_take_are_refused(args):
    op, given = args
    made = Step("y", op, given, (Spec((2, 3), "int64"),))
    with pytest.raises(Blocked, match=f"1 x {op}"):
        import_program(Program((("x", Spec((2, 3), "int64")),), {}, (made,), (Ref("y"),)), "test")


def test_a_result_of_another_shape_than_pytorchs_is_refused():
    made = step("y", "relu.default", (3, 2), self=Ref("x"))
    with pytest.raises(ModelError, match="PyTorch says"):
        import_program(program(made), "test")


def test_a_program_without_outputs_and_strange_types_are_refused():
    with pytest.raises(ModelError, match="returns no tensor"):
        import_program(Program((), {}, (), ()), "test")
    with pytest.raises(ModelError, match="complex64"):
        import_program(Program((("x", Spec((2,), "complex64")),), {}, (), (Ref("x"),)), "test")
    with pytest.raises(ModelError, match="returns no tensor"):
        import_program(program(output=None), "test")
    with pytest.raises(ModelError, match="output 0: it is 'a'"):
        import_program(program(output="a"), "test")


def test_what_no_output_needs_does_not_block():
    steps = [step("strange", "strange.default", (2, 3), self=Ref("x")),
             step("y", "relu.default", (2, 3), self=Ref("x"))]  # fmt: skip
    mod, params = import_program(program(*steps), "test")
    assert not params and len(mod["main"].params) == 1


def test_checks_are_left_out():
    check = Step("c", "_assert_tensor_metadata.default", {"a": Ref("x")}, (None,))
    made = step("y", "relu.default", (2, 3), self=Ref("x"))
    import_program(program(check, made), "test")


def test_limits_hold():
    made = step("y", "relu.default", (2, 3), self=Ref("x"))
    with pytest.raises(ModelError, match="limit is 1"):
        import_program(program(made, made), "test", Limits(nodes=1))


# -- programs in parts -----------------------------------------------------------------------------


def test_a_program_is_cut_where_steps_are_blocked():
    whole = program(
        step("a", "relu.default", (2, 3), self=Ref("x")),
        Step("two", "strange.default", {"self": Ref("a")}, (Spec((2, 3), "float32"),) * 2, True),
        step("b", "add.Tensor", (2, 3), self=Ref("a"), other=Ref("w")),
        step("one", "getitem", (2, 3), self=Ref("two"), index=1),
        step("c", "mul.Tensor", (2, 3), self=Ref("b"), other=Ref("one")),
        w=np.ones((2, 3), "float32"),
    )
    with pytest.raises(Blocked) as caught:
        import_program(whole, "test")
    assert caught.value.steps == {"two"}
    first, strange, last = parts_of(whole, caught.value.steps)
    assert [p.compiled for p in (first, strange, last)] == [True, False, True]
    assert [s.name for s in strange.program.steps] == ["two", "one"]
    assert first.program.outputs == (Ref("a"),) and strange.program.outputs == (Ref("one"),)
    assert [name for name, _ in last.program.inputs] == ["a", "one"]
    assert list(last.program.weights) == ["w"] and not first.program.weights
    assert "x" in first.dead and "a" in last.dead and "c" not in last.dead
    for part in (first, last):
        import_program(part.program, "test")


def test_outputs_that_are_no_tensors_are_kept_apart():
    whole = Program((), {}, (), (Ref("a"), None, 3, Ref("b")))
    found, positions = without_values(whole)
    assert found.outputs == (Ref("a"), Ref("b"))
    assert positions == [("output", 0), ("value", None), ("value", 3), ("output", 1)]


def vision(op: str, arrays: dict[str, np.ndarray], shape: tuple[int, ...], **args: Any) -> Program:
    """One operator of torchvision, whose tensors are inputs."""
    inputs = tuple((k, Spec(a.shape, a.dtype.name)) for k, a in arrays.items())
    step = Step("made", f"torchvision.{op}.default", {**{k: Ref(k) for k in arrays}, **args},
                (Spec(shape, "float32"),))  # fmt: skip
    return Program(inputs, {}, (step,), (Ref("made"),))


def drawn(*shape: int) -> np.ndarray:
    return np.random.default_rng(len(shape)).standard_normal(shape).astype("float32")


def test_regions_of_torchvision():
    rois = np.array([[1, 0.5, 1, 5, 4], [0, -3, -2, 2, 2]], "float32")
    values = {"input": drawn(2, 3, 5, 6), "rois": rois}
    options = {"spatial_scale": 0.5, "pooled_height": 2, "pooled_width": 3, "aligned": True}
    mod, _ = import_program(
        vision("roi_align", values, (2, 3, 2, 3), sampling_ratio=2, **options), "test"
    )
    wanted = testing.roi_align_python(*values.values(), (2, 3), 0.5, 2, aligned=True)
    np.testing.assert_allclose(relay.evaluate(mod, values), wanted, atol=1e-5)
    adaptive = vision("roi_align", values, (2, 3, 2, 3), sampling_ratio=-1, **options)
    with pytest.raises(ModelError, match="sampling_ratio=2"):
        import_program(adaptive, "test")


@pytest.mark.parametrize("masked", [True, False])
def test_moved_taps_of_torchvision(masked):
    values = {
        "input": drawn(1, 4, 5, 6), "weight": drawn(6, 2, 3, 3), "offset": 0 * drawn(1, 36, 3, 6),
        "mask": np.full((1, 18, 3, 6), 0.5, "float32"), "bias": drawn(6),
    }  # fmt: skip
    args = {
        "stride_h": 2, "stride_w": 1, "pad_h": 1, "pad_w": 1, "dilation_h": 1, "dilation_w": 1,
        "groups": 2, "offset_groups": 2, "use_mask": masked,
    }  # fmt: skip
    mod, _ = import_program(vision("deform_conv2d", values, (1, 6, 3, 6), **args), "test")
    read = {p.name_hint for p in mod["main"].params}
    found = relay.evaluate(mod, {k: v for k, v in values.items() if k in read})
    x, w = values["input"], values["weight"]
    halves = [testing.conv2d_nchw_python(x[:, 2 * g : 2 * g + 2], w[3 * g : 3 * g + 3], (2, 1), 1)
              for g in range(2)]  # fmt: skip
    wanted = np.concatenate(halves, 1) * (0.5 if masked else 1) + values["bias"].reshape(-1, 1, 1)
    np.testing.assert_allclose(found, wanted, atol=1e-4)


def run_in_stages(program: Program, values: dict[str, np.ndarray]) -> list[np.ndarray]:
    mod, params = import_program(program, "test")
    run = relay.create_executor("vm", mod=mod, target="llvm", params=params).evaluate()
    found = run(**values)
    found = [f.numpy() for f in found] if isinstance(found, (list, tuple)) else [found.numpy()]
    wanted = relay.evaluate(mod, {**params, **values})
    for mine, other in zip(found, wanted if len(found) > 1 else [wanted], strict=True):
        np.testing.assert_allclose(mine, other, rtol=1e-5)
    return found


def test_boxes_that_are_left_are_chosen_when_the_network_runs():
    corners = np.array([[0, 0], [0.1, 0], [3, 3], [3, 3.2], [9, 9]], "float32")
    values = {
        "dets": np.concatenate([corners, corners + 1], 1),
        "scores": np.array([0.1, 0.9, -np.inf, 0.3, 0.2], "float32"),
    }
    (found,) = run_in_stages(vision("nms", values, ("u0",), iou_threshold=0.5), values)
    assert found.dtype == "int64" and found.tolist() == [1, 3, 4]


def picked(*steps: Step, outputs: tuple[str, ...]) -> Program:
    """Steps behind `y`, the positive ones of x [2, 3]."""
    mask = step("mask", "gt.Scalar", (2, 3), self=Ref("x"), other=0)
    mask = Step(mask.name, mask.op, mask.args, (Spec((2, 3), "bool"),))
    y = step("y", "index.Tensor", ("u0",), self=Ref("x"), indices=[Ref("mask")])
    inputs = (("x", Spec((2, 3), "float32")),)
    return Program(inputs, {}, (mask, y, *steps), tuple(map(Ref, outputs)))


def counted(name: str, op: str, expression: str, **args: Any) -> Step:
    return Step(name, op, args, (Spec((), "int64", expression),))


def test_extents_and_numbers_that_data_decide():
    steps = [
        counted("n", "sym_size.int", "u0", self=Ref("y"), dim=0),
        counted("m", "add", "u0 + 1", **{"0": Ref("n"), "1": 1}),
        step("twice", "cat.default", ("2*u0",), tensors=[Ref("y"), Ref("y")]),
        step("column", "view.default", ("2*u0", 1), self=Ref("twice"), size=[-1, 1]),
        step("ones", "full.default", ("u0 + 1", 2), size=[Ref("m"), 2], fill_value=1.0),
        step("wide", "expand.default", (3, "u0"), self=Ref("y"), size=[3, -1]),
        step("scaled", "mul.Tensor", ("u0",), self=Ref("y"), other=Ref("n")),
    ]

    names = ("column", "ones", "wide", "scaled")
    program = picked(*steps, outputs=names)
    for shift in (0, 1, -9):
        x = drawn(2, 3) + np.float32(shift)
        found = dict(zip(names, run_in_stages(program, {"x": x}), strict=True))
        y = x[x > 0]
        np.testing.assert_array_equal(found["column"], np.concatenate([y, y])[:, None])
        np.testing.assert_array_equal(found["ones"], np.ones((len(y) + 1, 2), "float32"))
        np.testing.assert_array_equal(found["wide"], np.stack([y] * 3))
        np.testing.assert_allclose(found["scaled"], y * len(y), rtol=1e-6)


def test_a_number_that_is_read_decides_a_slice():
    whole = step("whole", "sum.default", (), self=Ref("x"))
    cast = Step("cast", "_to_copy.default", {"self": Ref("whole"), "dtype": "int64"},
                (Spec((), "int64"),))  # fmt: skip
    number = counted("k", "_local_scalar_dense.default", "u1", self=Ref("cast"))
    some = step("some", "slice.Tensor", ("u1", 3), self=Ref("x"), dim=0, start=0, end=Ref("k"),
                step=1)  # fmt: skip
    program = Program((("x", Spec((4, 3), "float32")),), {}, (whole, cast, number, some),
                      (Ref("some"),))  # fmt: skip
    for count in (1, 3):
        x = np.zeros((4, 3), "float32")
        x[0, 0] = count
        (found,) = run_in_stages(program, {"x": x})
        np.testing.assert_array_equal(found, x[:count])


SHAPE = Spec((2, 3), "float32")


def body(*steps: Step, inputs: tuple[str, ...] = ("v",), weights: Any = None) -> Program:
    return Program(tuple((k, SHAPE) for k in inputs), weights or {}, steps, (Ref(steps[-1].name),))


def positive(name: str, of: str) -> list[Step]:
    total = step(f"{name}_sum", "sum.default", (), self=Ref(of))
    return [total, Step(name, "gt.Scalar", {"self": Ref(total.name), "other": 0},
                        (Spec((), "bool"),))]  # fmt: skip


def chosen(name: str, condition: str, one: Program, other: Program, *given: str) -> list[Step]:
    args = {"0": Ref(condition), "1": one, "2": other, "3": [Ref(k) for k in given]}
    return [Step(f"{name}_all", "cond", args, (SHAPE,), several=True),
            Step(name, "getitem", {"self": Ref(f"{name}_all"), "index": 0}, (SHAPE,))]  # fmt: skip


def test_a_branch_is_chosen_when_the_network_runs():
    weights = {"w": np.arange(6, dtype="float32").reshape(2, 3)}
    product = step("p", "mul.Tensor", (2, 3), self=Ref("v"), other=Ref("w"))
    outer = body(*positive("inner", "w"), *chosen(
        "z", "inner", body(product, inputs=("v", "w")),
        body(step("s", "sub.Tensor", (2, 3), self=Ref("v"), other=Ref("w")), inputs=("v", "w")),
        "v", "w"), inputs=("v", "w"))  # fmt: skip
    held = body(step("h", "add.Tensor", (2, 3), self=Ref("v"), other=Ref("w")), weights=weights)
    other = Program((*held.inputs, ("u", SHAPE)), held.weights, held.steps, held.outputs)
    steps = [*positive("c", "x"), *chosen("y", "c", outer, other, "x", "x2")]
    steps.append(step("end", "neg.default", (2, 3), self=Ref("y")))
    inputs = (("x", SHAPE), ("x2", SHAPE))
    made = Program(inputs, {}, tuple(steps), (Ref("end"),))
    for a in (1, -1):
        for b in (1, -1):
            x, x2 = (k * np.abs(drawn(2, 3)) for k in (a, b))
            x, x2 = x.astype("float32"), x2.astype("float32")
            (found,) = run_in_stages(made, {"x": x, "x2": x2})
            wanted = (x * x2 if b > 0 else x - x2) if a > 0 else x + weights["w"]
            np.testing.assert_allclose(found, -wanted, rtol=1e-5)


def loop(body_of: Program) -> Program:
    """Doubles x, and what `body_of` does, as often as `n` says."""
    number = Spec((), "int64")
    going = Step("going", "lt.Tensor", {"self": Ref("i"), "other": Ref("n")}, (Spec((), "bool"),))
    state = (("i", number), ("v", SHAPE), ("n", number))
    more = Step("more", "add.Scalar", {"self": Ref("i"), "other": 1, "alpha": 1}, (number,))
    trip = Program(state, {}, (more, *body_of.steps), (Ref("more"), *body_of.outputs))
    args = {"0": Program(state, {}, (going,), (Ref("going"),)), "1": trip,
            "2": [Ref("zero"), Ref("x")], "3": [Ref("n")]}  # fmt: skip
    whole = Step("loop", "while_loop", args, (number, SHAPE), several=True)
    picks = [Step(k, "getitem", {"self": Ref("loop"), "index": at}, (spec,))
             for at, (k, spec) in enumerate((("count", number), ("y", SHAPE)))]  # fmt: skip
    return Program((("x", SHAPE), ("n", number)), {"zero": np.zeros((), "int64")},
                   (whole, *picks), (Ref("count"), Ref("y")))  # fmt: skip


def test_a_loop_runs_as_often_as_data_say():
    double = body(step("twice", "mul.Scalar", (2, 3), self=Ref("v"), other=2))
    for n in (0, 1, 5):
        x = drawn(2, 3)
        count, found = run_in_stages(loop(double), {"x": x, "n": np.array(n)})
        assert count == n
        np.testing.assert_array_equal(found, x * 2**n)


def test_what_blocks_a_body_is_told_at_import():
    strange = body(step("odd", "strange.default", (2, 3), self=Ref("v")))
    fine = body(step("s", "sin.default", (2, 3), self=Ref("v")))
    branch = Program((("x", SHAPE),), {}, (*positive("c", "x"),
                     *chosen("y", "c", fine, strange, "x")), (Ref("y"),))  # fmt: skip
    for made in (branch, loop(strange)):
        with pytest.raises(Blocked, match=r"inside it 1 x strange\.default"):
            import_program(made, "test")


def test_what_data_decide_is_no_part_of_a_graph_that_is_compiled_whole():
    double = step("double", "mul.Tensor", ("u0",), self=Ref("y"), other=2)
    with pytest.raises(Blocked, match=r"1 x index\.Tensor"):
        import_program(picked(double, outputs=("double",)), "test", staged=False)
    mod, _ = import_program(picked(double, outputs=("double",)), "test")
    with pytest.raises(ModelError, match="create_executor"):
        relay.build(mod, "llvm")


@pytest.mark.parametrize("op", ["randn.default", "_linalg_svd.default"])
def test_what_no_network_does_is_refused_with_a_way_out(op):
    made = step("y", op, (2, 3), size=[2, 3])
    with pytest.raises(Blocked, match="make "):
        import_program(program(made), "test")


def test_matrices_of_many_rows_are_refused():
    made = step("y", "cholesky.default", (40, 40), self=Ref("x"))
    with pytest.raises(Blocked, match="Use 1 to 32"):
        import_program(
            Program((("x", Spec((40, 40), "float32")),), {}, (made,), (Ref("y"),)), "test"
        )


def test_the_memory_of_a_view_is_refused():
    spec = Spec((2, 3), "float32")
    args = {"self": Ref("x"), "size": [3, 2], "stride": [2, 1], "storage_offset": None}
    for dense in (True, False):
        step = Step(
            "made", "as_strided.default", args | {"dense": dense}, (Spec((3, 2), "float32"),)
        )
        program = Program((("x", spec),), {}, (step,), (Ref("made"),))
        if dense:
            import_program(program, "test")
        else:
            with pytest.raises(Blocked, match="it reads the memory of a view"):
                import_program(program, "test")


@pytest.mark.parametrize(("op", "wanted"), [("log1p", np.log1p), ("expm1", np.expm1)])
def test_small_and_infinite_arguments_keep_their_digits(op, wanted):
    x = np.array([0, 1e-30, 1e-9, -1e-7, 3e-4, -0.02, 0.4, -0.6, 5, 80, np.inf, -0.9], "float32")
    spec = Spec(x.shape, "float32")
    steps = (Step("made", f"{op}.default", {"self": Ref("x")}, (spec,)),)
    mod, params = import_program(Program((("x", spec),), {}, steps, (Ref("made"),)), "test")
    found = relay.evaluate(mod, {**params, "x": x})
    with np.errstate(over="ignore"):
        np.testing.assert_allclose(found, wanted(x.astype("float64")), rtol=1e-6)


@pytest.mark.parametrize("scales", [None, 1.7])
@pytest.mark.parametrize("word", ["bilinear", "bicubic"])
def test_what_has_no_weight_does_not_count(word, scales):
    """Outputs that a column does not reach stay as they are when it becomes infinite."""
    shape, args = (1, 1, 10, 20), {"output_size": [3, 3], "align_corners": False}
    spec, made = Spec(shape, "float32"), Spec((1, 1, 3, 3), "float32")
    args |= {"self": Ref("x"), "scales_h": scales, "scales_w": scales}
    step = Step("made", f"_upsample_{word}2d_aa.default", args, (made,))
    mod, params = import_program(Program((("x", spec),), {}, (step,), (Ref("made"),)), "test")
    x = np.random.default_rng(0).normal(size=shape).astype("float32")
    usual = relay.evaluate(mod, {**params, "x": x})
    for column in range(shape[-1]):
        other, infinite = x.copy(), x.copy()
        other[..., column], infinite[..., column] = 1e6, np.inf
        reached = relay.evaluate(mod, {**params, "x": other}) != usual
        found = relay.evaluate(mod, {**params, "x": infinite})
        np.testing.assert_array_equal(np.isfinite(found), ~reached)
