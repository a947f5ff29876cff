"""Random numbers of networks: the cipher's known answer, keys, distributions, both ways to run."""

import numpy as np
import pytest

from tilewright import relay
from tilewright.base.errors import ModelError
from tilewright.relay import random

KEY = random.threefry_key(0)


def drawn(value):
    return relay.evaluate(value)


def test_the_cipher_gives_the_answer_that_is_published_for_zeros():
    words = [0x09218EBDE6C85537, 0x55941F5266D86105, 0x4BD25E16282434DC, 0xEE29EC846BD2E40B]
    following, numbers = drawn(random.threefry_generate(KEY, (5,)))
    np.testing.assert_array_equal(numbers[:4], np.array(words, np.uint64))
    assert following.tolist() == [0] * 8 + [1, 0]


def test_keys_that_differ_give_numbers_that_differ():
    keys = [KEY, random.threefry_key(1), random.threefry_key(1 << 255)]
    keys += [*random.threefry_split(KEY), random.threefry_generate(KEY, (3,))[0]]
    found = [drawn(random.threefry_generate(k, (2, 3))[1]) for k in keys]
    flat = np.concatenate([f.reshape(-1) for f in found])
    assert found[0].shape == (2, 3) and len(np.unique(flat)) == flat.size
    again = drawn(random.threefry_generate(random.threefry_key(1), (2, 3))[1])
    np.testing.assert_array_equal(found[1], again)
    longer = drawn(random.threefry_generate(KEY, (9,))[1])
    np.testing.assert_array_equal(longer[:6], found[0].reshape(-1))


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
