"""Plain data to bytes and back, every bit."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from sb3_hrl.checkpoint.tree import is_plain, pack, unpack

numbers = st.one_of(
    st.none(), st.booleans(), st.integers(-(2**130), 2**130), st.floats(), st.text(), st.binary(), st.just(np.float32(0.1))
)
arrays = hnp.arrays(st.sampled_from([np.float32, np.float64, np.int64, np.uint8, np.bool_]), hnp.array_shapes(min_dims=0))
trees = st.recursive(
    st.one_of(numbers, arrays),
    lambda children: st.one_of(
        st.lists(children, max_size=4),
        st.tuples(children, children),
        st.dictionaries(st.one_of(st.text(), st.integers(), st.just("~")), children, max_size=4),
    ),
    max_leaves=20,
)


def same(left: object, right: object) -> bool:
    """Equal in type, structure and every bit; NaN is NaN."""
    if type(left) is not type(right):
        return False
    if isinstance(left, np.ndarray | np.generic):
        assert isinstance(right, np.ndarray | np.generic)
        return left.dtype == right.dtype and left.shape == right.shape and left.tobytes() == right.tobytes()
    if isinstance(left, dict):
        assert isinstance(right, dict)
        return list(left) == list(right) and all(same(left[key], right[key]) for key in left)
    if isinstance(left, list | tuple):
        assert isinstance(right, list | tuple)
        return len(left) == len(right) and all(map(same, left, right))
    if isinstance(left, float):
        return np.float64(left).tobytes() == np.float64(right).tobytes() or (left != left and right != right)  # type: ignore[arg-type]
    return left == right


@settings(max_examples=200, deadline=None)
@given(trees)
def test_every_bit_comes_back(tree: object) -> None:
    assert is_plain(tree)
    assert same(unpack(*pack(tree)), tree)


def test_the_comparison_can_fail() -> None:
    assert not same([1], (1,))
    assert not same(np.float32(1), np.float64(1))
    assert not same({"a": 0.0}, {"a": -0.0})


def test_the_order_in_memory_stays() -> None:
    images = np.arange(48, dtype=np.uint8).reshape(2, 4, 2, 3).transpose(0, 3, 1, 2)
    copied = unpack(*pack(images))
    assert np.array_equal(copied, images)
    assert copied.strides == images.strides


def test_a_random_generator_s_state_comes_back() -> None:
    generator = np.random.default_rng(5)
    state = unpack(*pack(generator.bit_generator.state))
    other = np.random.default_rng(0)
    other.bit_generator.state = state
    assert np.array_equal(generator.random(8), other.random(8))


def test_what_is_not_plain_is_named() -> None:
    for value, name in ((object(), "object"), (np.array([None]), "object"), ({"a": {1, 2}}, "set")):
        assert not is_plain(value)
        with pytest.raises(TypeError, match=name):
            pack(value)


def test_a_structure_that_lies_is_refused() -> None:
    structure, block = pack({"a": np.arange(4)})
    for wrong in (
        structure.replace(b'"shape": [4]', b'"shape": [400]'),
        structure.replace(b'"<i8"', b'"|O"'),
        structure.replace(b'"at": 0', b'"at": -8'),
        structure.replace(b'"array"', b'"object"'),
    ):
        assert wrong != structure
        with pytest.raises(ValueError, match=r"bytes at|not plain|unknown kind"):
            unpack(wrong, block)
