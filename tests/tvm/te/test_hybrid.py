"""Hybrid scripts: as stages they give what Python makes of the same text, and so do their texts."""
# ruff: noqa: B007, F821

import numpy as np
import pytest

import tilewright
from tilewright.base.errors import ExpressionError, LoweringError
from tilewright_tvm import nd, te
from tilewright_tvm.te.hybrid import script

RNG = np.random.default_rng(3)


def arrays(args):
    return [
        RNG.integers(-9, 9, a.shape).astype(a.dtype) if a.dtype.is_int
        else RNG.standard_normal(a.shape).astype(a.dtype)
        for a in args if isinstance(a, te.Tensor)
    ]  # fmt: skip


def built(outs, tensors, given, target="llvm"):
    """What a module of these outputs makes of arrays."""
    outs = outs if isinstance(outs, list) else [outs]
    s = te.create_schedule([t.op for t in outs])
    module = tilewright.build(s, [*tensors, *outs], target)
    dev = tilewright.device(target)
    made = [nd.array(np.full(t.shape, 7, t.dtype), dev) for t in outs]
    module(*(nd.array(x, dev) for x in given), *made)
    return [x.numpy() for x in made]


def check(function, *args):
    """A script of tensors, numbers and lists: module, Python, and the schedule's text agree."""
    tensors = [a for a in args if isinstance(a, te.Tensor)]
    given = arrays(args)
    fed = iter(given)
    python = function(*(next(fed) if isinstance(a, te.Tensor) else a for a in args))
    wanted = list(python) if isinstance(python, tuple) else [python]
    outs = function(*args)
    for found, want in zip(built(outs, tensors, given), wanted, strict=True):
        np.testing.assert_allclose(found, want, rtol=1e-5, atol=1e-6)
    listed = outs if isinstance(outs, list) else [outs]
    again = te.hybrid.build(te.create_schedule([t.op for t in listed]), tensors, listed)
    text = again(*given)
    for found, want in zip(text if isinstance(text, tuple) else [text], wanted, strict=True):
        np.testing.assert_allclose(found, want, rtol=1e-5, atol=1e-6)
    for found, want in zip(built(again(*tensors), tensors, given), wanted, strict=True):
        np.testing.assert_allclose(found, want, rtol=1e-5, atol=1e-6)
    return outs


def tensor(*shape, dtype="float32", name="a"):
    return te.placeholder(shape, dtype, name)


@script
def outer_product(a, b):
    """A docstring is no statement."""
    c = output_tensor((len(a), len(b)), a.dtype)
    for i in range(a.shape[0]):
        for j in parallel(b.shape[0]):
            assert i < len(a) and j < len(b), "outside"
            c[i, j] = a[i] * b[j]
    return c


def test_loops_and_stores():
    c = check(outer_product, tensor(5), tensor(7, name="b"))
    assert c.name == "outer_product" and c.shape == (5, 7) and c.op.num_outputs == 1


def test_numbers_that_change_and_numbers_that_do_not():
    @script
    def blur(a):
        three = 3.0
        b = output_tensor((a.shape[0] - 2,), a.dtype)
        for i in range(a.shape[0] - 2):
            total = 0.0
            for j in range(3):
                total += a[i + j]
            mean = total / three
            total = 0.0
            b[i] = mean + total
        return b

    check(blur, tensor(12))


def test_conditions():
    @script
    def chosen(a):
        b = output_tensor(a.shape, a.dtype)
        c = output_tensor(a.shape, "int32")
        for i in range(a.shape[0]):
            if 1 <= i < 5 and not a[i] > 0.5:
                b[i] = -a[i]
            elif i == 0 or i % 3 == 2:
                b[i] = 2.0
            else:
                b[i] = a[i] if a[i] < 0 else 0.25
            if a.shape[0] > 100:
                b[i] = a[i, i]  # never looked at
        for i in unroll(10):
            c[i] = -1 if i % 2 == 0 else i // 2
        return b, c

    outs = check(chosen, tensor(10))
    assert isinstance(outs, list) and outs[0].op.num_outputs == 2


def test_outputs_hold_zeros_where_they_are_read():
    @script
    def summed(inputs):
        out = output_tensor((10,), inputs[0].dtype)
        for i in range(10):
            for j in const_range(len(inputs)):
                out[i] += inputs[j][i]
        return out

    tensors = [tensor(10, name=f"t{k}") for k in range(3)]
    given = arrays(tensors)
    out = summed(tensors)
    assert list(out.op.inputs) == tensors
    np.testing.assert_allclose(built(out, tensors, given)[0], sum(given), rtol=1e-6)


def lowered(c, *inputs):
    return tilewright.lower(te.create_schedule(c.op), [*inputs, c]).kernels


def test_zeros_are_stored_only_where_something_may_be_left():
    a, b = tensor(5), tensor(7, name="b")
    loops = [len(str(k.body).split("for ")) - 1 for k in lowered(outer_product(a, b), a, b)]
    assert loops == [2]
    n = te.size_var("n")
    a = te.placeholder((n,), name="a")
    assert len(str(lowered(outer_product(a, b), a, b)[0].body).split("for ")) == 3

    @script
    def some(a):
        b = output_tensor(a.shape, a.dtype)
        c = output_tensor(a.shape, a.dtype)
        d = output_tensor((4, 4), a.dtype)
        for i in range(a.shape[0]):
            if a[i] > 0:
                b[i] = a[i]
        for i in range(3):
            c[i] = a[i]
        for i in range(4):
            d[i, i] = 1.0
        return b, c, d

    check(some, tensor(5))


def test_memory_of_a_loop():
    @script
    def blur2d(a):
        b = output_tensor((6, 6), "float32")
        for i in range(6):
            rows = allocate((3, 6), "float32")
            for j in range(3):
                for k in vectorize(6):
                    rows[j, k] = a[i + j][k] + a[i + j, k + 1] + a[i + j, k + 2]
            for j in range(6):
                b[i, j] = (rows[0, j] + rows[1, j] + rows[2, j]) / 9.0
        return b

    check(blur2d, tensor(8, 8))


def test_loops_that_begin_elsewhere_go_in_steps_or_end_by_data():
    @script
    def triangle(a, b):
        c = output_tensor((10, 10), dtype="float32")
        d = output_tensor((10,), "int32")
        for i in range(10):
            for j in range(i, 10, 2):
                c[i, j] = a[i] * b[j]
            k = 1
            while k * k < i + 3:
                k += 2
            d[i] = k
        for i in range(10):
            for j in range(d[i]):
                d[i] += j
        return c, d

    c, d = triangle(tensor(10), tensor(10, name="b"))
    given = arrays([tensor(10)] * 2)
    found = built([c, d], c.op.inputs, given)
    for one, want in zip(found, triangle(*given), strict=True):
        np.testing.assert_allclose(one, want, rtol=1e-6)


def test_names_from_outside_lists_and_casts():
    table, scale = [[1, 2], [3, 8]], (10, 2)
    half = te.const(3, "int32")

    @script
    def shifted(a, weights, k):
        c = output_tensor(a.shape, a.dtype)
        for i in range(scale[1] * 4):
            c[i] = int32(float32(a[i]) / 2.0) + table[1][1] * weights[1, 0] + k
        return c

    a = tensor(8, dtype="int32")
    given = arrays([a])
    found = built(shifted(a, [[1, 2], [3, 4]], half), [a], given)
    np.testing.assert_array_equal(found[0], shifted(given[0], np.array([[1, 2], [3, 4]]), 3))


def test_functions():
    @script
    def many(a):
        b = output_tensor((9,), "float32")
        b[0] = sqrt(a[0])
        b[1] = log(a[1])
        b[2] = exp(a[2])
        b[3] = sigmoid(a[3])
        b[4] = power(a[4], a[5])
        b[5] = tanh(a[5])
        b[6] = min(a[4], a[5], a[6])
        b[7] = max(a[5], round(a[6]))
        b[8] = likely(a[8]) * ceil_div(len(a), 2)
        return b

    a = tensor(9)
    given = [np.linspace(0.5, 4, 9, dtype="float32")]
    np.testing.assert_allclose(built(many(a), [a], given)[0], many(given[0]), rtol=1e-5)

    @script
    def ones(a):
        b = output_tensor(a.shape, "int32")
        for i in range(a.shape[0]):
            b[i] = popcount(a[i])
        return b

    check(ones, tensor(6, dtype="int32"))


def test_scripts_call_scripts():
    @script
    def twice(a, b):
        c = outer_product(a, b)
        d = output_tensor(c.shape, c.dtype)
        for i in range(c.shape[0]):
            for j in range(c.shape[1]):
                d[i, j] = c[i, j] + outer_product(a, a)[i, i] * i
        return d

    check(twice, tensor(3), tensor(4, name="b"))


def test_values_are_what_they_were():
    @script
    def pick(x, t):
        t[0] = x + 1.0
        y = t[0]
        t[0] = 0.0
        return y + x

    @script
    def moved(a):
        b = output_tensor((5,), "float32")
        t = allocate((2,), "float32")
        t[0] = a[0]
        t[1] = a[1]
        t[0], t[1] = t[1], t[0]
        b[0] = t[0]
        x, y = 1.0, a[2]
        for i in range(3):
            x, y = y, x + y
        b[1] = x
        x = y = y + 1.0
        b[2] = x - y
        b[3] = pick(t[1], t)
        for i in range(2):
            n = t[1]
            for j in range(1, 3, 2):
                t[1] = 5.0
            b[4] = n
        return b

    check(moved, tensor(4))


def test_calls_inside_loops():
    @script
    def row(a, i):
        c = output_tensor((a.shape[1],), a.dtype)
        for j in range(a.shape[1]):
            c[j] = a[i, j] * 2.0
        return c

    @script
    def rows(a):
        d = output_tensor(a.shape, a.dtype)
        for i in range(a.shape[0]):
            c = row(a, i)
            e = row(a, 0)
            for j in range(a.shape[1]):
                d[i, j] = c[j] + e[j]
        return d

    check(rows, tensor(3, 4))


def test_stages_before_and_after():
    a = tensor(20)
    b = te.compute((20,), lambda i: a[i] + 1.0, name="before")
    c = outer_product(b, b)
    d = te.compute((20, 20), lambda i, j: c[j, i] * 2.0, name="after")
    x = arrays([a])[0]
    want = np.outer(x + 1, x + 1).T * 2
    np.testing.assert_allclose(built(d, [a], [x])[0], want, rtol=1e-5)


def test_extents_that_calls_give():
    n = te.size_var("n")
    a, b = te.placeholder((n,), name="a"), tensor(4, name="b")
    c = outer_product(a, b)
    s = te.create_schedule(c.op)
    module = tilewright.build(s, [a, b, c], "llvm")
    text = te.hybrid.build(s, [n, a, b], [c])
    for size in (1, 6):
        x, y = (RNG.standard_normal(k).astype("float32") for k in (size, 4))
        made = nd.array(np.zeros((size, 4), "float32"))
        module(nd.array(x), nd.array(y), made)
        np.testing.assert_allclose(made.numpy(), np.outer(x, y), rtol=1e-6)
        np.testing.assert_allclose(text(size, x, y), np.outer(x, y), rtol=1e-6)


THREADED = """
def threaded(a):
    b = output_tensor(a.shape, a.dtype)
    staged = allocate((8,), a.dtype, "shared")
    for t in bind("threadIdx.x", 8):
        for g in bind("blockIdx.x", 2):
            staged[t] = a[g * 8 + t]
    for t in bind("threadIdx.x", 8):
        for g in bind("blockIdx.x", 2):
            b[g * 8 + t] += staged[7 - t]
    return b
"""


@pytest.mark.opencl
def test_blocks_and_threads():
    threaded = te.hybrid.from_text(THREADED, "threaded")
    a = tensor(16)
    x = arrays([a])[0]
    b = threaded(a)
    np.testing.assert_allclose(built(b, [a], [x], "opencl")[0], x.reshape(2, 8)[:, ::-1].ravel())
    assert "threadIdx.x" in str(tilewright.lower(te.create_schedule(b.op), [a, b]))
    with pytest.raises(LoweringError, match="threads share staged"):
        te.hybrid.build(te.create_schedule(b.op), [a], [b])


@pytest.mark.opencl
def test_kernels_one_after_the_other():
    @script
    def pipeline(a):
        b = output_tensor(a.shape, a.dtype)
        c = allocate(a.shape, a.dtype)
        for t in bind("threadIdx.x", 16):
            c[t] = a[t] + 1.0
        for t in bind("threadIdx.x", 8):
            b[t] = c[15 - t]
            b[t + 8] = c[t]
        return b

    a = tensor(16)
    x = arrays([a])[0]
    np.testing.assert_allclose(built(pipeline(a), [a], [x], "opencl")[0], pipeline(x))


def test_a_schedule_as_a_script(tmp_path):
    a, b = tensor(6, 10), tensor(10, 5, name="b")
    k = te.reduce_axis((0, 10), "k")
    c = te.compute((6, 5), lambda i, j: te.sum(a[i, k] * b[k, j], axis=k), name="c.d")
    d = te.compute((6, 5), lambda i, j: te.max(c[i, j], te.const(0.1)), name="for")
    s = te.create_schedule(d.op)
    outer, inner = s[d].split(d.op.axis[0], 4)
    s[d].parallel(outer)
    s[d].vectorize(d.op.axis[1])
    s[c].compute_at(s[d], inner)
    module = te.hybrid.build(s, [a, b], [d], name="product")
    x, y = arrays([a, b])
    want = np.maximum(x @ y, np.float32(0.1))
    np.testing.assert_allclose(module(x, y), want, rtol=1e-5)
    module.save(str(tmp_path / "product"))
    loaded = te.hybrid.HybridModule()
    loaded.load(str(tmp_path / "product.py"))
    assert loaded.name == "product" and loaded.get_source() == module.get_source()
    np.testing.assert_allclose(built(loaded(a, b), [a, b], [x, y])[0], want, rtol=1e-5)


def refused(body, *args, match):
    text = "def f(a):\n    b = output_tensor((4,), 'float32')\n"
    text += "".join(f"    {line}\n" for line in body) + "    return b\n"
    with pytest.raises(ExpressionError, match=match) as caught:
        te.hybrid.from_text(text, "f")(tensor(4), *args)
    assert "hybrid script f, line" in str(caught.value)


@pytest.mark.parametrize(
    ("body", "match"),
    [
        (["a[0] = 1.0"], "line 3: it stores to its input a. Copy"),
        (["for i in range(4):", "    s = a[i]", "b[0] = s"], "s has no value here, or it ended"),
        (["for i in range(4):", "    b[i] = x"], "the name x means nothing"),
        (["b[0] = a"], "a is no number. Index it"),
        (["b[0, 1] = 1.0"], "2 indices for the shape"),
        (["b[0] = a[0, 1]"], "2 indices for the shape"),
        (["for i in [1, 2]:", "    b[i] = 1.0"], "no loop over"),
        (["for i in range(4):", "    break"], "break is no statement of scripts"),
        (["b[0] = [x for x in a]"], "is no expression of scripts"),
        (["for i in range(4):", "    return b"], "it returns before its end"),
        (["s = 0", "for i in range(4):", "    s += a[i]"], "s is int32, and would become"),
        (["for i in const_range(int32(a[0])):", "    b[i] = 1.0"], "not known before it runs"),
        (["for i in range(3):", "    b[i] = [1, 2][i]"], "an index of a list is i"),
        (["assert len(a) == 5, 'five'", "b[0] = 1.0"], "the assertion does not hold: five"),
        (["b[0] = range(3)"], "a loop's word is used outside"),
        (["b[0] = a.strides"], "tensors have no strides in scripts"),
        (["for t in bind('x', 4):", "    b[t] = 1.0"], "no blocks or threads are named x"),
        (["for t in bind('threadIdx.x', 4):", "    b[t] = 1.0", "    for g in "
          "bind('blockIdx.x', 4):", "        b[g] = 2.0"], "stored outside of the loop over"),
        (["b[9] = 1.0"], "outside a dimension of 4"),
        (["c = a", "for i in range(2):", "    c = b"], "c is set inside a block"),
        (["n = len(a)", "for i in range(2):", "    a = n"], "a is set inside a block"),
    ],
)  # fmt: skip
def test_what_scripts_refuse(body, match):
    refused(body, match=match)


def test_what_is_no_script():
    with pytest.raises(ExpressionError, match="its text is nowhere"):
        script(eval("lambda a: a"))
    with pytest.raises(ExpressionError, match="it is no Python"):
        te.hybrid.from_text("def f(:", "f")
    with pytest.raises(ExpressionError, match="something else than its output tensors"):
        te.hybrid.from_text("def f(a):\n    return a\n", "f")(tensor(3))
    with pytest.raises(AttributeError, match="te.hybrid has no attribute"):
        _ = te.hybrid.nothing
