"""XXH64 kernels against the reference C library."""

import numpy as np
import pytest
import xxhash
from hypothesis import given, settings
from hypothesis import strategies as st

from semistream.kernels.xxhash64 import SEED, hash_big_integers, hash_bytes, hash_ints, hash_longs, hash_ranges

INTS = st.integers(-(2**31), 2**31 - 1)
LONGS = st.integers(-(2**63), 2**63 - 1)
SEEDS = st.integers(0, 2**64 - 1)


def reference(data: bytes, seed: int) -> int:
    return xxhash.xxh64_intdigest(data, seed)


def java_bytes(value: int) -> bytes:
    """BigInteger.toByteArray: as many bytes as the bits and one sign bit need."""
    bits = (value if value >= 0 else ~value).bit_length() + 1
    return value.to_bytes((bits + 7) // 8, "big", signed=True)


@settings(deadline=None)
@given(st.lists(st.tuples(INTS, SEEDS)))
def test_ints_hash_as_their_four_bytes_from_each_rows_seed(rows):
    hashes = np.array([seed for _, seed in rows], dtype=np.uint64)
    hash_ints(np.array([value for value, _ in rows], dtype=np.int32), hashes)
    assert hashes.tolist() == [reference(v.to_bytes(4, "little", signed=True), s) for v, s in rows]


@pytest.mark.parametrize("dtype", [np.int8, np.int16, np.int32, np.int64])
def test_ints_of_every_width_hash_as_their_low_32_bits(dtype):
    values = np.array([-128, -1, 0, 1, 127], dtype=dtype)
    hashes, expected = np.full((2, 5), SEED)
    hash_ints(values, hashes)
    hash_ints(values.astype(np.int32), expected)
    assert hashes.tolist() == expected.tolist()


@settings(deadline=None)
@given(st.lists(st.tuples(LONGS, SEEDS)))
def test_longs_hash_as_their_eight_bytes_from_each_rows_seed(rows):
    hashes = np.array([seed for _, seed in rows], dtype=np.uint64)
    hash_longs(np.array([value for value, _ in rows], dtype=np.int64), hashes)
    assert hashes.tolist() == [reference(v.to_bytes(8, "little", signed=True), s) for v, s in rows]


@settings(deadline=None)
@given(
    st.lists(st.tuples(st.binary(max_size=100), SEEDS)),
    st.binary(max_size=9),
    st.sampled_from([np.int32, np.int64]),
)
def test_bytes_hash_from_each_rows_seed_wherever_the_offsets_start(rows, before, dtype):
    offsets = np.cumsum([len(before), *(len(data) for data, _ in rows)]).astype(dtype)
    data = np.frombuffer(before + b"".join(data for data, _ in rows), dtype=np.uint8)
    hashes = np.array([seed for _, seed in rows], dtype=np.uint64)
    hash_bytes(offsets, data, hashes)
    assert hashes.tolist() == [reference(data, seed) for data, seed in rows]


@settings(deadline=None)
@given(st.lists(st.tuples(st.integers(0, 200), st.integers(0, 100), SEEDS)), st.binary(min_size=300, max_size=300))
def test_ranges_hash_from_each_seed_wherever_they_lie(ranges, data):
    hashes = np.array([seed for *_, seed in ranges], dtype=np.uint64)
    starts, lengths = (np.array([r[i] for r in ranges], dtype=np.int64) for i in (0, 1))
    hash_ranges(starts, lengths, np.frombuffer(data, dtype=np.uint8), hashes)
    assert hashes.tolist() == [reference(data[start : start + n], seed) for start, n, seed in ranges]


@pytest.mark.parametrize("length", range(130))
def test_every_length_takes_the_right_path_through_stripes_words_and_tail(length):
    data = (np.arange(length, dtype=np.uint8) * 37 + 200).astype(np.uint8)
    hashes = np.full(1, SEED)
    hash_bytes(np.array([0, length], dtype=np.int32), data, hashes)
    assert hashes[0] == reference(data.tobytes(), 42)


@settings(deadline=None)
@given(
    st.lists(
        st.tuples(
            st.integers(-(2**255), 2**255 - 1)
            | st.builds(
                lambda bit, sign, step: sign * 2**bit + step,
                st.integers(0, 254),
                st.sampled_from([-1, 1]),
                st.integers(-1, 0),
            ),
            SEEDS,
        )
    )
)
def test_big_integers_hash_as_the_bytes_that_java_gives(rows):
    packed = b"".join(value.to_bytes(32, "little", signed=True) for value, _ in rows)
    hashes = np.array([seed for _, seed in rows], dtype=np.uint64)
    hash_big_integers(np.frombuffer(packed, dtype=np.uint32).reshape(-1, 8), hashes)
    assert hashes.tolist() == [reference(java_bytes(value), seed) for value, seed in rows]


def test_columns_chain_each_hash_is_the_seed_of_the_next():
    hashes = np.full(2, SEED)
    hash_ints(np.array([1, 2], dtype=np.int32), hashes)
    hash_longs(np.array([3, 4], dtype=np.int64), hashes)
    first = reference((1).to_bytes(4, "little"), 42)
    assert hashes[0] == reference((3).to_bytes(8, "little"), first)
