"""Integer divisions by what may be zero: the process lives, and all other quotients are right, also
in vectors of another type."""

import subprocess
import sys

import numpy as np
import pytest

from tilewright import build, te
from tilewright_tvm import nd

PROGRAM = """
import numpy as np
import tilewright as tw
from tilewright import te

kind, vectors = {kind!r}, {vectors}
k = te.var("k", "int32")
a, b = (te.placeholder((16,), kind, name=n) for n in "ab")
quotient = te.compute((16,), lambda i: a[i] // b[i] + (i // k).astype(kind), name="quotient")
rest = te.compute((16,), lambda i: a[i] % b[i] + (i % k).astype(kind), name="rest")
s = te.create_schedule([quotient.op, rest.op])
if vectors:
    for t in (quotient, rest):
        s[t].vectorize(s[t].split(t.op.axis[0], 8)[1])
module = tw.build(s, [k, a, b, quotient, rest], "llvm")
y = np.array([0, 1, 2, 3] * 4).astype(kind)
x = (np.arange(16) * 7 + 1).astype(kind)
if kind.startswith("int"):
    x[8:], y[4:8] = -x[8:], -y[4:8]
i = np.arange(16)
for divisor in (3, 0):
    out = [tw.nd.array(np.zeros(16, kind)) for _ in range(2)]
    module(divisor, tw.nd.array(x), tw.nd.array(y), *out)
    if divisor:
        known = y != 0
        want = x[known] // y[known] + i[known] // divisor, x[known] % y[known] + i[known] % divisor
        for found, expected in zip(out, want):
            np.testing.assert_array_equal(found.numpy()[known], expected.astype(kind))
print("alive")
"""


@pytest.mark.sampled(2)
@pytest.mark.slow
@pytest.mark.parametrize("kind", ["int32", "int64", "int8", "uint32", "uint8"])
@pytest.mark.parametrize("vectors", [False, True])
def test_a_division_by_zero_ends_nothing(kind: str, vectors: bool) -> None:
    text = PROGRAM.format(kind=kind, vectors=vectors)
    ran = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True)
    assert ran.stdout == "alive\n", f"{ran.returncode}: {ran.stderr}"


@pytest.mark.parametrize("kinds", [("int32", "int64"), ("int64", "int32")])
def test_vectors_of_indices_of_another_type(kinds: tuple[str, str]) -> None:
    kind, own = kinds
    k = te.var("k", own)
    a = te.placeholder((16,), kind, name="a")
    c = te.compute((16,), lambda i: a[i] + (i.astype(own) // k).astype(kind) * 2, name="c")
    s = te.create_schedule(c.op)
    s[c].vectorize(s[c].split(c.op.axis[0], 8)[1])
    x, out = np.arange(16).astype(kind), nd.array(np.zeros(16, kind))
    build(s, [k, a, c], "llvm")(3, nd.array(x), out)
    np.testing.assert_array_equal(out.numpy(), x + np.arange(16) // 3 * 2)
