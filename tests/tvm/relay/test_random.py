"""Random numbers of networks: the cipher's known answer, keys, distributions, both ways to run."""

import numpy as np
import pytest

from tilewright import build, device, te
from tilewright.base.errors import ExpressionError, ModelError
from tilewright_tvm import nd, relay, topi
from tilewright_tvm.relay import random

KEY = random.threefry_key(0)
ZEROS = np.zeros(10, np.uint64)
FULL = (1 << 64) - 1
STATES = {
    "new": KEY.data,
    "seed": random.threefry_key(3 << 200).data,
    "full path": ZEROS,
    "second word": np.array([1, 2, 3, 4, 1 << 63, 9, 0, 7, 0, 1 << 5], np.uint64),
    "between the words": np.array([1, 2, 3, 4, 8, 0, 0, 7, 1, 0], np.uint64),
    "counted out": np.array([0, 0, 0, 0, 5, 0, 0, FULL - 3, 1 << 4, 0], np.uint64),
    "all is full": np.array([9, 0, 0, 0, 5, 6, 0, FULL - 1, 0, 0], np.uint64),
}


def drawn(value):
    return relay.evaluate(value)


def test_the_cipher_gives_the_answer_that_is_published_for_zeros():
    words = [0x09218EBDE6C85537, 0x55941F5266D86105, 0x4BD25E16282434DC, 0xEE29EC846BD2E40B]
    following, numbers = drawn(random.threefry_generate(KEY, (5,)))
    assert following.tolist() == [*[0] * 7, 8, 1 << 63, 0]
    end = np.array([0, 0, 0, 5], np.uint64)  # which the published cipher adds at last
    np.testing.assert_array_equal(numbers[:4] + end, np.array(words, np.uint64))


@pytest.mark.slow
def test_keys_that_differ_give_numbers_that_differ():
    keys = [random.threefry_key(seed) for seed in (0, 1, 1 << 255, 7)]
    keys += [*random.threefry_split(keys.pop()), *random.threefry_split(random.threefry_key(8))]
    following = random.threefry_generate(random.threefry_key(9), (3,))[0]
    keys += [following, random.threefry_generate(following, (8,))[0]]
    found = [drawn(random.threefry_generate(k, (2, 3))[1]) for k in keys]
    flat = np.concatenate([f.reshape(-1) for f in found])
    assert found[0].shape == (2, 3) and len(np.unique(flat)) == flat.size
    again = drawn(random.threefry_generate(random.threefry_key(1), (2, 3))[1])
    np.testing.assert_array_equal(found[1], again)
    longer = drawn(random.threefry_generate(KEY, (9,))[1])
    np.testing.assert_array_equal(longer[:4], found[0].reshape(-1)[:4])


@pytest.mark.sampled(4)
@pytest.mark.slow
@pytest.mark.parametrize("name", STATES)
@pytest.mark.parametrize("shape", [(8,), (7,), (2, 1)])
def test_topi_draws_what_a_network_draws(name, shape):
    key = te.placeholder((10,), "uint64", name="key")
    made = [*topi.random.threefry_generate(key, shape), *topi.random.threefry_split(key)]
    kernel = build(topi.generic.schedule_extern(made), [key, *made], "llvm")
    found = [nd.empty(t.shape, "uint64") for t in made]
    kernel(nd.array(STATES[name]), *found)
    state = relay.const(STATES[name])
    wanted = [*drawn(random.threefry_generate(state, shape)), *drawn(random.threefry_split(state))]
    for ours, want in zip(found, wanted, strict=True):
        np.testing.assert_array_equal(ours.numpy(), want)


@pytest.mark.long
def test_keys_as_tvm_has_them():
    left, right = drawn(random.threefry_split(KEY))
    assert left.tolist() == [0] * 8 + [1 << 62, 0]
    assert right.tolist() == [0, 0, 0, 0, 1 << 63, 0, 0, 0, 1 << 62, 0]
    right = right.copy()
    for _ in range(127):
        right = drawn(random.threefry_split(relay.const(right)))[1]
    assert right.tolist() == [0, 0, 0, 0, FULL, FULL, 0, 0, 0, 0]
    left, right = drawn(random.threefry_split(relay.const(right)))
    assert (left[:4] == right[:4]).all() and left[:4].any() and left[8] == 1 << 62
    following = drawn(random.threefry_generate(relay.const(STATES["counted out"]), (9,)))[0]
    assert following.tolist() == [0, 0, 0, 0, 5 | 1 << 4, 0, 0, 12, 1 << 3, 0]


@pytest.mark.slow
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_distributions_of_topi(dtype):
    key, low = te.placeholder((10,), "uint64", name="key"), te.placeholder((), dtype, name="low")
    made = [
        *topi.random.uniform(key, low, 3.0, (50, 80), dtype),
        *topi.random.normal(key, 2.0, 3.0, (50, 80), dtype),
    ]
    kernel = build(topi.generic.schedule_extern(made), [key, low, *made], "llvm")
    found = [nd.empty(t.shape, t.dtype) for t in made]
    kernel(nd.array(KEY.data), nd.array(np.array(-1, dtype)), *found)
    wanted = [*drawn(random.uniform(KEY, (50, 80), dtype, -1.0, 3.0))]
    wanted += drawn(random.normal(KEY, (50, 80), dtype, 2.0, 3.0))
    for ours, want in zip(found, wanted, strict=True):
        np.testing.assert_allclose(ours.numpy(), want, rtol=1e-5, atol=1e-5)
    assert topi.random.threefry_test_wrapping("llvm", device("llvm"))
    with pytest.raises(ExpressionError, match="10 words of uint64"):
        topi.random.threefry_split(te.placeholder((9,), "uint64", name="short"))
    with pytest.raises(ExpressionError, match="neither float32 nor float64"):
        topi.random.uniform(key, 0.0, 1.0, (4,), "int32")
    with pytest.raises(AttributeError, match="Draw with numpy"):
        _ = topi.random.multinomial


@pytest.mark.slow
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_distributions(dtype):
    even = drawn(random.uniform(KEY, (4000,), dtype, -1.0, 3.0))[1]
    assert even.dtype == dtype and even.min() >= -1 and even.max() < 3
    assert abs(np.mean(even) - 1) < 0.1 and abs(np.var(even) - 16 / 12) < 0.1
    limits = relay.const(1.0), relay.const(1.5)
    within = drawn(random.uniform(KEY, (100,), dtype, *limits))[1]
    assert within.min() >= 1 and within.max() <= 1.5
    bell = drawn(random.normal(KEY, (4000,), dtype, 2.0, 3.0))[1]
    assert bell.dtype == dtype and abs(np.mean(bell) - 2) < 0.2 and abs(np.std(bell) - 3) < 0.2
    assert 0.66 < np.mean(np.abs(bell - 2) < 3) < 0.7


@pytest.mark.long
def test_a_key_may_be_an_input():
    key = relay.var("key", shape=(10,), dtype="uint64")
    mod = relay.IRModule.from_expr(random.threefry_generate(key, (3, 3)))
    following, numbers = relay.create_executor("graph", mod=mod, target="llvm").evaluate()(KEY.data)
    want = relay.evaluate(mod, {"key": KEY.data})
    np.testing.assert_array_equal(following.numpy(), want[0])
    np.testing.assert_array_equal(numbers.numpy(), want[1])


def test_types_are_compared_as_graphs_are():
    kinds = relay.TupleType([relay.TensorType((10,), "uint64"), relay.TensorType((4,), "uint64")])
    made = relay.Function([], random.threefry_generate(KEY, (4,)))
    assert relay.analysis.structural_equal(made.ret_type, kinds)
    assert not relay.analysis.structural_equal(made.ret_type, kinds.fields[0])
    assert not relay.analysis.structural_equal(made, kinds)
    same = relay.analysis.structural_hash(made.ret_type), relay.analysis.structural_hash(kinds)
    assert same[0] == same[1]
    first, second = relay.TupleWrapper(random.threefry_split(KEY), 2)
    assert first.shape == second.shape == (10,)


def test_what_is_no_key_no_seed_or_no_such_number_is_refused():
    with pytest.raises(ModelError, match="10 words of uint64"):
        random.threefry_generate(relay.const(np.zeros(9, np.uint64)), (4,))
    with pytest.raises(ModelError, match="10 words of uint64"):
        random.threefry_split(relay.const(np.zeros(10, np.int64)))
    with pytest.raises(ModelError, match="256 bits"):
        random.threefry_key(-1)
    with pytest.raises(ModelError, match="neither float32 nor float64"):
        random.normal(KEY, (4,), "float16")
    with pytest.raises(AttributeError, match="numpy"):
        _ = random.multinomial
    assert drawn(random.threefry_generate(KEY, (0, 3))[1]).shape == (0, 3)
