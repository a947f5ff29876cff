"""Asynchronous copies and matrix instructions as text."""

from __future__ import annotations

import re

import pytest

from tests.ir import products
from tests.ir.products import Product
from tests.ir.rings import Ring, program
from tilewright.base.errors import InternalError
from tilewright.codegen import generate
from tilewright.codegen.cuda import _multiply
from tilewright.driver import nvrtc
from tilewright.ir.atoms import ATOMS, CROSSED, Atom, Fragment
from tilewright.targets.target import Target

WIDTHS = {4: Ring(wide=1, missing=3), 8: Ring(wide=2), 16: Ring(), 2: Ring(wide=8, dtype="float16")}


def test_cuda_calls_a_function_for_each() -> None:
    text = generate(program(Ring()), Target("cuda -arch=sm_90")).text
    body = text[text.index("__global__") :]
    assert "asm" not in body
    lines = [line.strip() for line in body.splitlines()]
    assert "tw_copy_16(&s[p % 3 * 32 + t * 4], &a[p * 32 + t * 4], p * 32 + t * 4 < 156);" in lines
    assert lines.count("tw_commit();") == 2 and lines.count("tw_wait_copies(1);") == 1


def test_cuda_gives_an_atom_the_elements_of_the_lane() -> None:
    text = generate(products.program(Product()), Target("cuda -arch=sm_90")).text
    body = text[text.index("__global__") :]
    assert "asm" not in body and "tw_mma_m16n8k16_float16(&fc[n_1 * 4], &fa[0], &fb[0]);" in body


@pytest.mark.parametrize("kind", ["opencl", "llvm"])
def test_other_kinds_have_none(kind: str) -> None:
    for whole in (program(Ring()), products.program(Product())):
        with pytest.raises(InternalError, match=re.escape(f"generate({whole.name}, {kind})")):
            generate(whole, Target(kind))


@pytest.mark.slow
@pytest.mark.parametrize("arch", ["sm_75", "sm_80", "sm_90"])
@pytest.mark.parametrize("ring", WIDTHS.values(), ids=map(str, WIDTHS))
def test_nvrtc_accepts(ring: Ring, arch: str) -> None:
    pytest.importorskip("cuda.bindings.nvrtc")
    target = Target(f"cuda -arch={arch}")
    made = nvrtc.build(generate(program(ring), target), target)
    assert "warning" not in made.meta["log"]


@pytest.mark.slow
@pytest.mark.parametrize("atom", ATOMS)
def test_nvrtc_accepts_atoms(atom: str) -> None:
    pytest.importorskip("cuda.bindings.nvrtc")
    target = Target("cuda -arch=sm_90")
    made = nvrtc.build(generate(products.program(Product(atom)), target), target)
    assert "warning" not in made.meta["log"]


@pytest.mark.parametrize(
    "atom", [a for a in (*ATOMS.values(), *CROSSED.values()) if a.a.dtype.bits == 16], ids=str
)
def test_words_of_halves_lie_as_the_instruction_has_them(atom: Atom) -> None:
    """Of 16 rows and 8 columns; which places along k are the same in both is said by the atom."""
    form = r"x\[(\d)\] \| \(unsigned int\)x\[(\d)\] << 16"
    text, left, right = _multiply(atom), atom.a, atom.b
    assert isinstance(left, Fragment) and isinstance(right, Fragment)
    words, others = (
        [tuple(map(int, pair)) for pair in re.findall(form.replace("x", name), text)]
        for name in "ab"
    )
    assert len(words) == 4 and len(others) == 2
    for lane in range(32):
        group, q = divmod(lane, 4)
        for k, (word, pair) in enumerate(
            zip(words, (others[0],) * 2 + (others[1],) * 2, strict=True)
        ):
            for mine, other in zip(word, pair, strict=True):
                row, depth = left.place(lane, mine)
                assert row == group + 8 * (k % 2) and right.place(lane, other) == (depth, group)
                assert right.holder(depth, 0)[0] == q
