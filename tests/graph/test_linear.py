"""Products of every rank and sums of products mean what numpy's do."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from graph.case import function, tensor
from tests.tiers import examples
from tilewright.base.errors import ModelError
from tilewright.graph.expr import post_order
from tilewright.graph.functions.linear import LETTERS, product
from tilewright.graph.traversal import op_name
from tilewright_tvm import relay
from tilewright_tvm.relay import nn

EQUATIONS = (
    ("ij,jk->ik", (3, 4), (4, 5)),
    ("ji,jk", (4, 3), (4, 5)),
    ("bij,bkj->bik", (2, 3, 4), (2, 5, 4)),
    ("bhqd,bkhd->bhqk", (2, 3, 4, 5), (2, 6, 3, 5)),
    ("bgqd,bkd->bgqk", (2, 3, 4, 5), (2, 6, 5)),
    ("i,j->ji", (3,), (4,)),
    ("i,i->", (3,), (3,)),
    ("i,i->i", (3,), (3,)),
    ("ij->", (3, 4)),
    ("ij->ji", (3, 4)),
    ("ii->i", (3, 3)),
    ("iij->j", (3, 3, 4)),
    ("...ii->...i", (2, 3, 3)),
    ("...ij,...jk->...ik", (2, 1, 3, 4), (5, 4, 6)),
    ("i...,j...->ij...", (2, 4), (3, 4)),
    ("ij,jk,kl->il", (2, 3), (3, 4), (4, 5)),
    ("ab,cb,b->ca", (2, 3), (4, 3), (3,)),
    ("ab,bc->", (2, 3), (3, 4)),
    ("ij,jk->ik", (3, 1), (4, 5)),
)


def value_of(body, **inputs) -> np.ndarray:
    return relay.evaluate(function(body), inputs)


def drawn(*shapes, dtype="float64") -> dict[str, np.ndarray]:
    rng = np.random.default_rng(0)
    return {f"x{k}": (rng.standard_normal(s) * 4).astype(dtype) for k, s in enumerate(shapes)}


def variables(inputs) -> list[relay.Var]:
    return [tensor(n, *v.shape, dtype=v.dtype.name) for n, v in inputs.items()]


@pytest.mark.parametrize("dtype", ["float64", "int32"])
@pytest.mark.parametrize(("equation", "shapes"), [(e, s) for e, *s in EQUATIONS])
def test_einsum_means_what_numpys_does(equation, shapes, dtype):
    inputs = drawn(*shapes, dtype=dtype)
    found = value_of(relay.einsum(variables(inputs), equation), **inputs)
    wanted = np.einsum(equation, *inputs.values())
    assert found.dtype == wanted.dtype
    np.testing.assert_allclose(found, wanted, atol=1e-12)


@st.composite
def equations(draw) -> tuple[str, list[tuple[int, ...]]]:
    """Two or three operands of distinct letters, a result of some of them in any order."""
    extents = {c: draw(st.integers(1, 3)) for c in LETTERS[:5]}
    terms = [
        "".join(draw(st.permutations(LETTERS[:5]))[: draw(st.integers(1, 4))])
        for _ in range(draw(st.integers(1, 3)))
    ]
    named = sorted(set("".join(terms)))
    result = "".join(draw(st.permutations(named))[: draw(st.integers(0, len(named)))])
    return f"{','.join(terms)}->{result}", [tuple(extents[c] for c in t) for t in terms]


@pytest.mark.slow
@given(equations())
@examples(40)
def test_einsum_of_any_letters_means_what_numpys_does(drawn_equation):
    equation, shapes = drawn_equation
    inputs = drawn(*shapes)
    found = value_of(relay.einsum(variables(inputs), equation), **inputs)
    np.testing.assert_allclose(found, np.einsum(equation, *inputs.values()), atol=1e-10)


@pytest.mark.parametrize(
    ("equation", "shapes"),
    [
        ("ij,jk->ik", [(3, 4)]),
        ("ij->i", [(3,)]),
        ("ij,jk->ik", [(3, 4), (5, 6)]),
        ("ij->ik", [(3, 4)]),
        ("ij->ii", [(3, 4)]),
        ("i1->i", [(3, 4)]),
        ("...i->i", [()]),
        ("", []),
    ],
)
def test_an_equation_that_does_not_fit_is_refused(equation, shapes):
    with pytest.raises(ModelError, match="einsum"):
        relay.einsum(variables(drawn(*shapes)), equation)


@given(st.data())
@examples(40)
def test_products_of_every_rank_mean_what_numpys_do(data):
    inner = data.draw(st.integers(1, 3))
    batch = data.draw(st.lists(st.integers(1, 3), max_size=3))

    def operand(matrix: tuple[int, ...]) -> tuple[int, ...]:
        own = batch[data.draw(st.integers(0, len(batch))) :]
        own = [n if data.draw(st.booleans()) else 1 for n in own]
        vector = not own and data.draw(st.booleans())
        return (inner,) if vector else (*own, *matrix)

    inputs = drawn(
        operand((data.draw(st.integers(1, 4)), inner)),
        operand((inner, data.draw(st.integers(1, 4)))),
    )
    found = value_of(product(*variables(inputs)), **inputs)
    np.testing.assert_allclose(found, np.matmul(*inputs.values()), atol=1e-12)


def test_batches_that_broadcast_on_both_sides_are_not_copied():
    made = product(tensor("x", 2, 1, 3, 4), tensor("y", 5, 4, 6))
    assert "broadcast_to" not in {op_name(n) for n in post_order(made)}


@pytest.mark.parametrize("flip_a", [False, True])
@pytest.mark.parametrize("flip_b", [False, True])
def test_nn_matmul_reads_transposed_operands(flip_a, flip_b):
    a, b = (np.random.default_rng(k).standard_normal(s) for k, s in enumerate([(3, 4), (4, 5)]))
    inputs = {"x0": a.T if flip_a else a, "x1": b.T if flip_b else b}
    made = nn.matmul(*variables(inputs), units=5, transpose_a=flip_a, transpose_b=flip_b)
    np.testing.assert_allclose(value_of(made, **inputs), a @ b)


def test_nn_matmul_reads_several_matrices_and_gives_a_weight_its_shape():
    x = tensor("x", 2, 3, 5, 4)
    made = nn.matmul(x, relay.var("w"), units=6, transpose_a=True)
    assert made.shape == (2, 3, 4, 6)
    values = np.random.default_rng(0).random((2, 3, 5, 4)), np.random.default_rng(1).random((5, 6))
    a, b = (v.astype("float32") for v in values)
    found = relay.evaluate(made, {"x": a, "w": b})
    np.testing.assert_allclose(found, np.swapaxes(a, 2, 3) @ b, rtol=1e-5)


def test_what_nn_matmul_refuses():
    with pytest.raises(ModelError, match="a matrix"):
        nn.matmul(tensor("x", 3, 4), tensor("y", 2, 4, 5))
    with pytest.raises(ModelError, match="units"):
        nn.matmul(tensor("x", 3, 4), tensor("y", 4, 5), units=4)
    with pytest.raises(ModelError, match="number"):
        product(tensor("x"), tensor("y", 4, 5))
