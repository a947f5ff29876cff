"""Complex numbers of PyTorch's programs are two tensors; only real ones come in and go out."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from models.test_torch_import import program
from tilewright.base.errors import ModelError
from tilewright.models.limits import Limits
from tilewright.models.torch.importer import Blocked, import_program
from tilewright.models.torch.program import Program, Ref, Spec, Step
from tilewright_tvm import relay

RNG = np.random.default_rng(0)
X = RNG.standard_normal((2, 6, 5))
Z = X + 1j * RNG.standard_normal(X.shape)
W = RNG.standard_normal(5) + 1j * RNG.standard_normal(5)


def run(op: str, wanted: np.ndarray, *, values: dict[str, np.ndarray], **args: Any) -> None:
    """The operator on `values`, which come as pairs where they are complex, against `wanted`."""
    steps, inputs, given = [], [], {}
    for name, value in values.items():
        pairs = np.iscomplexobj(value)
        given[name] = np.stack([value.real, value.imag], -1) if pairs else value
        inputs.append((name, Spec(given[name].shape, "float64")))
        if pairs:
            spec = Spec(value.shape, "complex128")
            steps.append(Step(f"{name}.z", "view_as_complex.default", {"self": Ref(name)}, (spec,)))
    refs = {k: Ref(f"{v.name}.z" if np.iscomplexobj(values[v.name]) else v.name)
            if isinstance(v, Ref) else v for k, v in args.items()}  # fmt: skip
    kind = "complex128" if np.iscomplexobj(wanted) else "float64"
    steps.append(Step("made", op, refs, (Spec(wanted.shape, kind),)))
    if np.iscomplexobj(wanted):
        shape = (*wanted.shape, 2)
        steps.append(
            Step("y", "view_as_real.default", {"self": Ref("made")}, (Spec(shape, "float64"),))
        )
        wanted = np.stack([wanted.real, wanted.imag], -1)
    made = Program(tuple(inputs), {}, tuple(steps), (Ref(steps[-1].name),))
    mod, params = import_program(made, "test")
    read = {p.name_hint for p in mod["main"].params}
    found = relay.evaluate(mod, {**{k: v for k, v in given.items() if k in read}, **params})
    np.testing.assert_allclose(found, wanted, atol=1e-12)


A, B = Ref("a"), Ref("b")
CASES = {
    "add": lambda: run("add.Tensor", Z + 2 * W, values={"a": Z, "b": W}, self=A, other=B, alpha=2),
    "add-real": lambda: run("add.Tensor", W + X, values={"a": W, "b": X}, self=A, other=B, alpha=1),
    "sub-number": lambda: run("sub.Tensor", Z - 3, values={"a": Z}, self=A, other=3, alpha=1),
    "mul": lambda: run("mul.Tensor", Z * W, values={"a": Z, "b": W}, self=A, other=B),
    "mul-real": lambda: run("mul.Tensor", X * W, values={"a": X, "b": W}, self=A, other=B),
    "mul-by-real": lambda: run("mul.Tensor", W * X, values={"a": W, "b": X}, self=A, other=B),
    "div": lambda: run("div.Tensor", Z / W, values={"a": Z, "b": W}, self=A, other=B),
    "div-real": lambda: run("div.Tensor", X / W, values={"a": X, "b": W}, self=A, other=B),
    "div-number": lambda: run("div.Tensor", Z / 2, values={"a": Z}, self=A, other=2),
    "neg": lambda: run("neg.default", -Z, values={"a": Z}, self=A),
    "conj": lambda: run("_conj.default", Z.conj(), values={"a": Z}, self=A),
    "conj-physical": lambda: run("_conj_physical.default", Z.conj(), values={"a": Z}, self=A),
    "abs": lambda: run("abs.default", np.abs(Z), values={"a": Z}, self=A),
    "real": lambda: run("real.default", Z.real, values={"a": Z}, self=A),
    "imag": lambda: run("imag.default", Z.imag, values={"a": Z}, self=A),
    "complex": lambda: run("complex.default", X + 2j * X, values={"a": X, "b": 2 * X}, real=A,
                           imag=B),
    "polar": lambda: run("polar.default", X * np.exp(2j * X), values={"a": X, "b": 2 * X}, abs=A,
                         angle=B),
    "cast": lambda: run("_to_copy.default", X.astype("complex128"), values={"a": X}, self=A),
    "cast-back": lambda: run("_to_copy.default", Z.real, values={"a": Z}, self=A),
    "select": lambda: run("select.int", Z[:, :, 1], values={"a": Z}, self=A, dim=-1, index=1),
    "slice": lambda: run("slice.Tensor", Z[:, 1:5:2], values={"a": Z}, self=A, dim=1, start=1,
                         end=5, step=2),
    "view": lambda: run("view.default", Z.reshape(2, 30), values={"a": Z}, self=A, size=[2, 30]),
    "permute": lambda: run("permute.default", Z.transpose(2, 0, 1), values={"a": Z}, self=A,
                           dims=[2, 0, 1]),
    "sum": lambda: run("sum.dim_IntList", Z.sum(-1), values={"a": Z}, self=A, dim=[-1],
                       keepdim=False),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_arithmetic_is_numpys(case):
    CASES[case]()


@pytest.mark.parametrize("axes", [[1], [2, 1], [0, 1, 2], [-1]])
@pytest.mark.parametrize("norm", ["backward", "ortho", "forward"])
@pytest.mark.parametrize("forward", [True, False])
@pytest.mark.parametrize("x", [X, Z], ids=["real", "complex"])
def test_whole_transforms_are_numpys(x, forward, norm, axes):
    wanted = (np.fft.fftn if forward else np.fft.ifftn)(x, axes=axes, norm=norm)
    run("_fft_c2c.default", wanted, values={"a": x}, self=A, dim=axes, forward=forward,
        normalization=normalization(norm, forward))  # fmt: skip


def normalization(norm: str, forward: bool) -> int:
    """As ATen numbers it: by nothing, the root of the size, the size."""
    if norm == "ortho":
        return 1
    return 0 if (norm == "backward") == forward else 2


@pytest.mark.parametrize("axes", [[1], [0, 2]])
@pytest.mark.parametrize("norm", ["backward", "ortho", "forward"])
def test_transforms_of_real_signals_and_back_are_numpys(norm, axes):
    wanted = np.fft.rfftn(X, axes=axes, norm=norm)
    run("_fft_r2c.default", wanted, values={"a": X}, self=A, dim=axes, onesided=True,
        normalization=normalization(norm, True))  # fmt: skip
    for size in (2 * Z.shape[axes[-1]] - 2, 2 * Z.shape[axes[-1]] - 1, 4):
        sizes = [Z.shape[a] for a in axes[:-1]] + [size]
        back = np.fft.irfftn(Z, sizes, axes=axes, norm=norm)
        run("_fft_c2r.default", back, values={"a": Z}, self=A, dim=axes, last_dim_size=size,
            normalization=normalization(norm, False))  # fmt: skip


def test_both_sides_of_a_real_signal():
    run("_fft_r2c.default", np.fft.fft(X, axis=1), values={"a": X}, self=A, dim=[1],
        onesided=False, normalization=0)  # fmt: skip


def test_complex_weights_are_two_parameters():
    steps = (
        Step("z", "mul.Tensor", {"self": Ref("x"), "other": Ref("w")}, (Spec((3,), "complex64"),)),
        Step("y", "view_as_real.default", {"self": Ref("z")}, (Spec((3, 2), "float32"),)),
    )
    weight = np.array([1 + 2j, 3j, 4], "complex64")
    made = Program((("x", Spec((3,), "float32")),), {"w": weight}, steps, (Ref("y"),))
    mod, params = import_program(made, "test")
    assert set(params) == {"w.real", "w.imag"}
    x = np.array([1, 2, 3], "float32")
    found = relay.evaluate(mod, {"x": x, **params})
    np.testing.assert_array_equal(found[..., 0] + 1j * found[..., 1], x * weight)


def complex_step(op: str, **args: Any) -> Step:
    return Step("z", op, args, (Spec((2, 3), "complex64"),))


def test_what_is_refused():
    cast = complex_step("_to_copy.default", self=Ref("x"))
    with pytest.raises(ModelError, match="output 0.*complex.*view_as_real"):
        import_program(program(cast), "test")
    strange = Step("y", "sin.default", {"self": Ref("z")}, (Spec((2, 3), "complex64"),))
    back = Step("r", "abs.default", {"self": Ref("y")}, (Spec((2, 3), "float32"),))
    with pytest.raises(Blocked, match=r"1 x sin\.default \(y\): no converter for complex") as told:
        import_program(program(cast, strange, back), "test")
    assert told.value.steps == {"y"}
    with pytest.raises(ModelError, match="input 'x'.*complex64.*view_as_real"):
        import_program(Program((("x", Spec((2,), "complex64")),), {}, (), (Ref("x"),)), "test")
    mixed = complex_step("complex.default", real=Ref("z0"), imag=Ref("x"))
    first = Step("z0", "_to_copy.default", {"self": Ref("x")}, (Spec((2, 3), "complex64"),))
    with pytest.raises(Blocked, match="argument real is complex"):
        import_program(program(first, mixed), "test")


def test_a_table_beyond_the_limit_is_refused_before_it_is_made():
    spec = Spec((1 << 20,), "complex64")
    steps = (
        Step("z", "_fft_c2c.default",
             {"self": Ref("x"), "dim": [0], "normalization": 0, "forward": True}, (spec,)),
        Step("y", "view_as_real.default", {"self": Ref("z")}, (Spec((1 << 20, 2), "float32"),)),
    )  # fmt: skip
    made = Program((("x", Spec((1 << 20,), "float32")),), {}, steps, (Ref("y"),))
    with pytest.raises(ModelError, match="bytes of computed constants"):
        import_program(made, "test", Limits())
