"""Precision as a request: who may ask, what it is kept apart by, how far a result may be off."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import click
import numpy as np
import pytest
from click.testing import CliRunner, Result

import tilewright as tw
from te.matrix_unit import apart, split_sums
from tilewright import te
from tilewright.base.errors import ModelError, TargetError
from tilewright.cli.options import network_options
from tilewright.codegen import generate
from tilewright.knowledge.device_class import device_class, device_classes
from tilewright.lowering.pipeline import lower_schedule
from tilewright.measure import signatures
from tilewright.network.tune import tasks_of
from tilewright.schedule.task import Task
from tilewright.search.jobs import References, task_id
from tilewright.targets import kind
from tilewright.targets.cuda import KIND
from tilewright.targets.limits import family
from tilewright.targets.precision import PRECISIONS, ROUNDED_GREATEST, allows, needed
from tilewright.targets.target import Target
from tilewright.te.cases import cases
from tilewright.te.chains import longest_in_unit
from tilewright.te.dag import ComputeDAG
from tilewright.te.evaluate import agrees, evaluate_with_tolerance, random_inputs


@pytest.fixture
def tf32() -> Target:
    return Target("cuda -precision=tf32")


@pytest.fixture
def unused(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if no template made use of it."""
    monkeypatch.setitem(kind._KINDS, "cuda", replace(KIND, precisions=()))


def product(m: int, k: int, n: int, dtype: str = "float32", after: bool = False) -> ComputeDAG:
    a = te.placeholder((m, k), dtype, "A")
    b = te.placeholder((k, n), dtype, "B")
    r = te.reduce_axis((0, k), "r")
    c = te.compute((m, n), lambda i, j: te.sum(a[i, r] * b[r, j], axis=r), name="C")
    out = te.compute((m, n), lambda i, j: te.max(c[i, j], 0), name="D") if after else c
    return ComputeDAG([a, b, out])


def rounded(x: np.ndarray) -> np.ndarray:
    """To the 11 digits of TF32, to nearest."""
    bits = x.astype(np.float32).view(np.uint32).astype(np.uint64)
    bits = (bits + 0xFFF + (bits >> 13 & 1)) >> 13 << 13
    return bits.astype(np.uint32).view(np.float32)


# -- who may ask -----------------------------------------------------------------------------------


def test_float32_is_what_all_targets_are() -> None:
    assert str(Target("cuda -precision=float32")) == "cuda"
    assert Target("cuda").precision == "float32"
    assert Target("cuda").with_precision("float32") == Target("cuda")


def test_a_precision_that_no_template_uses_is_refused_for_networks(unused: None) -> None:
    """A schedule by hand may still make use of it."""
    target, net = Target("cuda -precision=tf32"), tw.load("mobilenet")
    for call in (
        lambda: tw.compile(net, target),
        lambda: tw.compile(net, "cuda", precision="tf32"),
        lambda: tasks_of(net.modules, net.params, target),
    ):
        with pytest.raises(TargetError, match="no template for cuda computes float32 in tf32"):
            call()


def test_an_unknown_precision_is_refused() -> None:
    with pytest.raises(TargetError, match="is none of float32, 3xtf32, tf32"):
        Target("cuda -precision=float16")
    with pytest.raises(TargetError, match="opencl has no instruction for it"):
        Target("opencl").with_precision("3xtf32")
    with pytest.raises(TargetError, match="llvm has no instruction for it"):
        Target("llvm -precision=tf32")


def test_a_device_without_the_instruction_is_refused(tf32: Target) -> None:
    assert Target("cuda -arch=sm_86 -precision=tf32").precision == "tf32"
    with pytest.raises(TargetError, match="sm_75 has no instruction for it"):
        Target("cuda -arch=sm_75 -precision=tf32")
    with pytest.raises(TargetError, match="sm_75 has no instruction for it"):
        Target("cuda -arch=sm_75").with_precision("tf32")


def test_which_atoms_kernels_may_use(tf32: Target) -> None:
    assert not Target("cuda").allows("m16n8k8.tf32")
    assert not Target("cuda").allows("m16n8k8.3xtf32")
    split = Target("cuda -precision=3xtf32")
    assert split.allows("m16n8k8.3xtf32") and not split.allows("m16n8k8.tf32")
    assert Target("cuda").allows("m16n8k16.float16")
    assert tf32.allows("m16n8k8.tf32")
    assert not Target("cuda -arch=sm_75").allows("m16n8k16.float16")
    assert [needed(n) for n in ("m16n8k8.tf32", "m16n8k16.bfloat16")] == ["tf32", "float32"]
    assert allows("tf32", "3xtf32") and not allows("3xtf32", "tf32")


def test_every_atom_of_a_target_is_one_that_programs_have() -> None:
    from tilewright.ir.atoms import ATOMS, GROUP_ATOMS

    known = {family(name) for name in ATOMS | GROUP_ATOMS}
    assert {rate.name for rate in Target("cuda").limits.atoms} == known


def test_the_front_door_takes_it(tf32: Target) -> None:
    net = tw.task(lambda: product(16, 16, 16).args)
    with pytest.raises(ModelError, match="a task has its target"):
        tw.tune(net, precision="tf32")
    with pytest.raises(ModelError, match="a task has its target"):
        tw.compile(net, precision="tf32")


@pytest.mark.parametrize("word", ["int8", "TF32", "fp16", ""])
def test_the_front_door_names_all_that_networks_know(word: str) -> None:
    net = tw.load("mobilenet")
    for call in (tw.compile, tw.tune):
        with pytest.raises(ModelError, match="no such precision. Use .*tf32.* bfloat16; weights="):
            call(net, "llvm", precision=word)


def test_the_command_takes_it(tf32: Target) -> None:
    asked: list[Target] = []

    @click.command()
    @network_options
    def show(target: Target, **_: Any) -> None:
        asked.append(target)

    def run(*words: str) -> Result:
        return CliRunner().invoke(show, ["resnet-18", *words])

    assert run("--target", "cuda", "--precision", "tf32").exit_code == 0
    assert run("--precision", "tf32", "--target", "cuda").exit_code == 0
    assert run("--target", "cuda -precision=tf32", "--precision", "float32").exit_code == 0
    assert asked == [tf32, tf32, Target("cuda")]
    assert run("--target", "cuda", "--precision", "3xtf32").exit_code == 0
    assert asked.pop().precision == "3xtf32"
    refused = run("--target", "llvm", "--precision", "tf32")
    assert refused.exit_code == 2
    assert "llvm has no instruction for it" in " ".join(refused.output.split())


def test_of_a_network_halves_are_a_precision(tf32: Target) -> None:
    asked: list[tuple[Target, str]] = []

    @click.command()
    @network_options
    def show(target: Target, dtype: str, **_: Any) -> None:
        asked.append((target, dtype))

    def run(*words: str) -> Result:
        return CliRunner().invoke(show, ["resnet-18", *words])

    for words in (("--precision", "float16"), ("--precision", "float16", "--dtype", "float16")):
        assert run(*words).exit_code == 0
    assert run("--target", "cuda -precision=tf32", "--precision", "bfloat16").exit_code == 0
    assert asked == [(Target("llvm"), "float16")] * 2 + [(tf32, "bfloat16")]
    refused = run("--precision", "float16", "--dtype", "bfloat16")
    assert refused.exit_code == 2 and "--dtype is bfloat16" in refused.output
    net = small_network()
    half = tw.compile(net, "llvm", precision="float16").library
    assert {n.dtype for n in half.constants} == {np.dtype("float16")}


def test_kernels_of_a_network_are_offered_atoms_of_its_precision() -> None:
    net = small_network()
    for precision, atom in (("float32", ""), ("3xtf32", "3xtf32"), ("tf32", "tf32")):
        target = Target("cuda").with_precision(precision)
        (task,) = tasks_of(net.modules, net.params, target)
        found = [s for s in task.sketches if s.origin.endswith("dense.tensor")]
        assert bool(found) is bool(atom)
        for sketch in found:
            source = generate(lower_schedule(sketch.close(sketch.fallback()), target), target)
            assert f"tw_mma_m16n8k8_{atom}(" in source.text


def small_network() -> Any:
    from tilewright.front import Network
    from tilewright.graph.expr import IRModule
    from tilewright.graph.functions import nn
    from tilewright.graph.leaves import var

    weight = np.ones((4, 8), np.float32)
    body = nn.relu(nn.dense(var("data", shape=(2, 8)), var("weight", shape=(4, 8))))
    return Network("small", (IRModule.from_expr(body),), {"weight": weight})


@pytest.fixture
def torch() -> Iterator[Any]:
    found = pytest.importorskip("torch")
    before = found.get_float32_matmul_precision()
    yield found
    found.set_float32_matmul_precision(before)


def test_both_ways_in_which_pytorch_allows_fewer_digits_are_obeyed(torch: Any) -> None:
    from tilewright.models.torch.compile import _in_precision

    matmul = torch.backends.cuda.matmul
    if not hasattr(matmul, "fp32_precision"):
        pytest.skip("this PyTorch has one way")

    def asked() -> str:
        return _in_precision(torch, Target("cuda"), None).precision

    before = matmul.fp32_precision, torch.backends.fp32_precision
    try:
        for word, wanted in (("tf32", "tf32"), ("ieee", "float32")):
            matmul.fp32_precision = word
            assert asked() == wanted
        matmul.fp32_precision = "none"
        for word, wanted in (("tf32", "tf32"), ("ieee", "float32")):
            torch.backends.fp32_precision = word
            assert asked() == wanted
    finally:
        matmul.fp32_precision, torch.backends.fp32_precision = before
    torch.backends.cuda.matmul.allow_tf32 = True
    assert asked() == "tf32"


def test_halves_are_an_option_of_torch_compile(torch: Any) -> None:
    """Its inputs and results keep their types; sums of products have the digits of halves."""
    layer = torch.nn.Linear(64, 32).eval()
    data = torch.randn(8, 64)
    options = {"precision": "float16", "target": "llvm", "cache": False}
    with torch.no_grad():
        made = torch.compile(layer, backend="tilewright", options=options)(data)
        exact = layer.double()(data.double())
    assert made.dtype == torch.float32
    off = (made.double() - exact).abs().max().item()
    assert 1e-6 < off < 1e-2


def test_what_pytorch_allows_is_obeyed_where_it_has_a_use(torch: Any, tf32: Target) -> None:
    from tilewright.models.torch.compile import Options, _in_precision

    for word, wanted in (("highest", "float32"), ("high", "tf32"), ("medium", "tf32")):
        torch.set_float32_matmul_precision(word)
        assert _in_precision(torch, Target("cuda"), None).precision == wanted
        for other in ("llvm", "cuda -arch=sm_75"):
            assert _in_precision(torch, Target(other), None) == Target(other)
        assert _in_precision(torch, Target("cuda"), "float32").precision == "float32"
        assert _in_precision(torch, tf32, None) == tf32
    with pytest.raises(TargetError, match="llvm has no instruction"):
        _in_precision(torch, Target("llvm"), Options.of({"precision": "tf32"}).precision)


def test_without_a_template_pytorchs_permission_changes_nothing(torch: Any, unused: None) -> None:
    from tilewright.models.torch.compile import _in_precision

    torch.set_float32_matmul_precision("high")
    assert _in_precision(torch, Target("cuda"), None) == Target("cuda")


# -- what it is kept apart by ----------------------------------------------------------------------


def test_records_knowledge_and_signatures_of_two_precisions_are_apart(tf32: Target) -> None:
    dag, plain = product(16, 16, 16), Target("cuda")
    here, there = (task_id(Task("t", (), dag, t)) for t in (plain, tf32))
    assert here.dag == there.dag and here.key != there.key
    assert device_class(tf32) == device_class(plain) + "-tf32"
    assert not set(device_classes(tf32)) & set(device_classes(plain))
    assert signatures.claim("d", "float32") == "d" != signatures.claim("d", "tf32")


def test_the_references_of_two_precisions_are_apart(tf32: Target) -> None:
    from tilewright.measure import reference

    references = References()
    try:
        bounds = []
        for target in (Target("cuda"), tf32):
            known = references.get(Task("t", (), product(16, 64, 16), target))
            bounds.append(reference.load(known).tolerance[0].max())
    finally:
        references.close()
    assert bounds[1] > 10 * bounds[0]


# -- the bound -------------------------------------------------------------------------------------


@pytest.mark.parametrize("after", [False, True])
def test_a_product_of_rounded_operands_is_within_the_bound_of_tf32_only(after: bool) -> None:
    dag = product(32, 256, 32, after=after)
    inputs = random_inputs(dag, 3)
    reached = rounded(inputs[0]).astype(np.float64) @ rounded(inputs[1]).astype(np.float64)
    reached = np.maximum(reached, 0) if after else reached
    for precision, right in (("tf32", True), ("3xtf32", False), ("float32", False)):
        (value,), (bound,) = evaluate_with_tolerance(dag, inputs, precision)
        assert bool(agrees(reached, value, bound).all()) is right


def test_the_bound_of_tf32_is_that_of_its_operands_and_of_the_sum() -> None:
    dag = product(8, 64, 8)
    inputs = random_inputs(dag, 0)
    _, (plain,) = evaluate_with_tolerance(dag, inputs)
    _, (wide,) = evaluate_with_tolerance(dag, inputs, "tf32")
    sizes = np.abs(inputs[0]).astype(np.float64) @ np.abs(inputs[1]).astype(np.float64)
    np.testing.assert_allclose(wide - plain, 2.0**-10 * sizes, rtol=1e-6)
    _, (three,) = evaluate_with_tolerance(dag, inputs, "3xtf32")
    np.testing.assert_array_equal(three, plain)


ADVERSE: dict[str, Any] = {
    "normal": lambda rng, shape: rng.standard_normal(shape),
    "all positive": lambda rng, shape: rng.uniform(0.5, 1, shape),
    "one in a hundred large": lambda rng, shape: (
        rng.standard_normal(shape) * np.where(rng.random(shape) < 0.01, 100, 1)
    ),
    "rounded to one side": lambda rng, shape: np.full(shape, 1 + 2.0**-11 + 2.0**-12 - 2.0**-23),
    "of all sizes": lambda rng, shape: np.exp2(rng.uniform(-30, 30, shape)),
}


@pytest.mark.parametrize("terms", [1, 8, 72, 1024, 4608])
@pytest.mark.parametrize("kind", ADVERSE)
def test_three_products_are_within_the_bound_of_float32(kind: str, terms: int) -> None:
    """In chains as long as the mask `precision` allows; half of it is left to the order."""
    rng, dag = np.random.default_rng(terms), product(8, terms, 8)
    a, b = (ADVERSE[kind](rng, t.shape).astype(np.float32) for t in dag.args[:2])
    (value,), (bound,) = evaluate_with_tolerance(dag, [a, b], "3xtf32")
    chain = int(min(terms, longest_in_unit(terms, "3xtf32")))
    found = split_sums(a.astype(np.float64), b.astype(np.float64), chain)
    assert (np.abs(found - value) <= bound / 2).all()


def test_two_products_or_operands_that_are_cut_are_beyond_it() -> None:
    """What a kernel that forgets a part computes, and one whose sums are one long chain."""
    rng, dag = np.random.default_rng(0), product(8, 64, 8)
    alike = ADVERSE["rounded to one side"]
    inputs = [alike(rng, t.shape).astype(np.float32) for t in dag.args[:2]]
    (a, small), (b, _) = (apart(x.astype(np.float64)) for x in inputs)
    (value,), (bound,) = evaluate_with_tolerance(dag, inputs, "3xtf32")
    assert not agrees(a @ b + small @ b, value, bound).any()
    terms = 65536
    dag = product(2, terms, 2)
    inputs = [rng.uniform(0.5, 1, t.shape).astype(np.float32) for t in dag.args[:2]]
    (value,), (bound,) = evaluate_with_tolerance(dag, inputs, "3xtf32")
    a, b = (x.astype(np.float64) for x in inputs)
    assert not agrees(split_sums(a, b, terms), value, bound).all()


def test_the_check_says_what_three_products_cannot_hold() -> None:
    """Nothing is promised of infinities and of what rounds to one, little of what is tiny."""
    dag = product(1, 4, 1)
    ones = np.ones((4, 1), np.float32)

    def bound(x: float, precision: str) -> float:
        a = np.full((1, 4), x, np.float32)
        return float(evaluate_with_tolerance(dag, [a, ones], precision)[1][0].item())

    greatest = float(np.uint32(0x7F7FEFFF).view(np.float32))
    above = float(np.uint32(0x7F7FF000).view(np.float32))
    assert greatest == ROUNDED_GREATEST
    small = product(1, 1, 1)
    for x, known in ((greatest, True), (above, False), (np.inf, False)):
        a = np.full((1, 1), x, np.float32)
        (found,) = evaluate_with_tolerance(small, [a, ones[:1] * 0.5], "3xtf32")[1]
        assert bool(np.isfinite(found).all()) is known
    tiny = 2.0**-110 * (1 + 2.0**-23)
    assert bound(tiny, "3xtf32") - bound(tiny, "float32") == pytest.approx(4 * 2.0**-126)
    assert bound(2.0**-100, "3xtf32") == bound(2.0**-100, "float32")


def guarded() -> ComputeDAG:
    """A sum that the reference adds up point by point: its index is no affine one."""
    a = te.placeholder((16, 40), "float32", "A")
    b = te.placeholder((40,), "float32", "B")
    r = te.reduce_axis((0, 40), "r")
    c = te.compute((16,), lambda i: te.sum(a[i, r] * b[te.min(r + i, 39)], axis=r), name="C")
    return ComputeDAG([a, b, c])


def test_sums_of_every_form_have_the_bound() -> None:
    dag = guarded()
    inputs = random_inputs(dag, 1)
    _, (plain,) = evaluate_with_tolerance(dag, inputs)
    _, (wide,) = evaluate_with_tolerance(dag, inputs, "tf32")
    assert (wide > 50 * plain).all()


def test_what_is_no_product_of_float32_has_the_bound_that_it_had() -> None:
    halves = product(16, 64, 16, "float16")
    a = te.placeholder((16, 64), "float32", "A")
    r = te.reduce_axis((0, 64), "r")
    sums = ComputeDAG([a, te.compute((16,), lambda i: te.sum(a[i, r], axis=r), name="S")])
    squares = te.compute((16,), lambda i: te.sum(a[i, r] * a[i, r], axis=r), name="Q")
    for dag in (halves, sums, ComputeDAG([a, squares])):
        inputs = random_inputs(dag, 0)
        _, (plain,) = evaluate_with_tolerance(dag, inputs)
        _, (wide,) = evaluate_with_tolerance(dag, inputs, "tf32")
        np.testing.assert_array_equal(plain, wide)


def test_small_whole_numbers_stay_exact_and_larger_ones_do_not() -> None:
    dag = product(8, 32, 8)
    _, whole = cases(dag, precision="tf32")
    assert not whole.tolerance[0].any()
    dag = product(8, 3, 8)
    large = [np.full(t.shape, 2049.0, np.float32) for t in dag.args[:2]]
    assert not evaluate_with_tolerance(dag, large)[1][0].any()
    for precision in ("tf32", "3xtf32"):
        assert evaluate_with_tolerance(dag, large, precision)[1][0].all()


def test_a_missing_term_is_found_in_every_precision() -> None:
    dag = product(16, 64, 16)
    for precision in PRECISIONS:
        _, whole = cases(dag, precision=precision)
        a, b = whole.inputs
        wrong = a[:, :-1].astype(np.float64) @ b[:-1]
        assert not agrees(wrong, whole.expected[0], whole.tolerance[0]).all()
