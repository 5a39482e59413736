"""KeyCodec against brute force over every accepted pair of types, and its contract by example."""

import pickle
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from semistream.errors import InvalidArgument, KeyTypeError
from semistream.keys import KeyCodec
from tests.keys.key_oracle import GROUPS, HASHED, PAIRS, array_of, holds, meaning, raw_values


@st.composite
def columns(draw, group, type_, rows=None):
    """A column, sliced out of a longer one and sometimes dictionary-encoded, and its exact meanings."""
    values = raw_values(group, type_) | (st.none() if draw(st.booleans()) else st.nothing())
    size = rows if rows is not None else draw(st.integers(0, 8))
    before = draw(st.integers(0, 9))
    raw = draw(st.lists(values, min_size=size + before, max_size=size + before + 2))
    array = array_of(raw, type_)
    if draw(st.integers(0, 4)) == 0:
        array = pa.DictionaryArray.from_arrays(np.arange(len(array), dtype=np.int32), array)
    return array.slice(before, size), [meaning(v, type_) for v in raw[before : before + size]]


def all_pairs(left, right):
    """Every row of left beside every row of right, as two arrays."""
    i, j = np.divmod(np.arange(len(left) * len(right)), max(1, len(right)))
    # take has no kernel for views
    plain = {pa.string_view(): pa.large_string(), pa.binary_view(): pa.large_binary()}
    return (
        left.cast(plain.get(left.type, left.type)).take(pa.array(i)),
        right.cast(plain.get(right.type, right.type)).take(pa.array(j)),
    )


ALL_TYPES = [(group, type_) for group, types in GROUPS.items() for type_ in types]


@pytest.mark.slow
@pytest.mark.parametrize(("group", "relation"), ALL_TYPES, ids=str)
@settings(deadline=None, max_examples=60)
@given(data=st.data())
def test_one_key_matches_exactly_where_the_values_are_equal(group, relation, data):
    stream = data.draw(st.sampled_from(GROUPS[group]))
    codec = KeyCodec.of(["r"], [relation])
    codec.accept(["s"], [stream])
    left, s_means = data.draw(columns(group, stream))
    right, r_means = data.draw(columns(group, relation))
    s_codes, s_possible = codec.encode([left])
    r_codes, r_possible = codec.encode([right])
    s_can = [v is not None and holds(relation, v) for v in s_means]
    assert (s_possible is None) == all(s_can)
    assert s_possible is None or s_possible.tolist() == s_can
    assert r_possible is None or r_possible.tolist() == [v is not None for v in r_means]
    equal = np.array([[v is not None and v == w for w in r_means] for v in s_means], dtype=bool)
    can = np.outer(s_can, [v is not None for v in r_means]).astype(bool)
    same_code = s_codes[:, None] == r_codes[None, :]
    assert (equal.ravel() == (same_code & can).ravel()).all()
    assert codec.equal(*[[side] for side in all_pairs(left, right)]).tolist() == equal.ravel().tolist()
    if codec.ordered:
        rows = list(zip(r_codes.tolist(), r_means, strict=True))
        rows += [row for row, can in zip(zip(s_codes.tolist(), s_means, strict=True), s_can, strict=True) if can]
        rows = [(code, v) for code, v in rows if v is not None]
        assert all((a < b) == (v < w) for a, v in rows for b, w in rows)


@settings(deadline=None, max_examples=150)
@given(data=st.data())
def test_a_composite_matches_exactly_where_every_component_is_equal(data):
    pairs = data.draw(st.lists(st.sampled_from(PAIRS), min_size=2, max_size=3))
    codec = KeyCodec.of([f"r{i}" for i in range(len(pairs))], [r for _, _, r in pairs])
    rows, others = data.draw(st.integers(0, 6)), data.draw(st.integers(0, 6))
    left = [data.draw(columns(group, stream, rows)) for group, stream, _ in pairs]
    right = [data.draw(columns(group, relation, others)) for group, _, relation in pairs]
    s_codes, s_possible = codec.encode([array for array, _ in left])
    r_codes, r_possible = codec.encode([array for array, _ in right])
    equal = np.ones((rows, others), dtype=bool)
    for (_, s_means), (_, r_means) in zip(left, right, strict=True):
        one = [[v is not None and v == w for w in r_means] for v in s_means]
        equal &= np.array(one, dtype=bool).reshape(rows, others)
    s_can = np.ones(rows, dtype=bool) if s_possible is None else s_possible
    r_can = np.ones(others, dtype=bool) if r_possible is None else r_possible
    matched = (s_codes[:, None] == r_codes[None, :]) & np.outer(s_can, r_can)
    assert not codec.ordered
    assert matched.tolist() == equal.tolist()
    crossed = [all_pairs(a, b) for (a, _), (b, _) in zip(left, right, strict=True)]
    verified = codec.equal([a for a, _ in crossed], [b for _, b in crossed])
    assert verified.tolist() == equal.ravel().tolist()


@pytest.mark.parametrize(("group", "type_"), ALL_TYPES, ids=str)
def test_single_columns_with_an_order_are_ordered(group, type_):
    wide = pa.types.is_decimal(type_) and type_.precision > 18
    assert KeyCodec.of(["k"], [type_]).ordered == (group not in HASHED and not wide)
    assert not KeyCodec.of(["k", "l"], [type_, pa.int64()]).ordered


@pytest.mark.parametrize(("group", "stream"), ALL_TYPES, ids=str)
def test_types_of_different_families_are_refused_by_name_and_type(group, stream):
    for other, relation in ALL_TYPES:
        numbers = {"integer", "unsigned"}
        if group == other or ({group, other} & numbers and {group, other} <= {*numbers, "decimal", "float"}):
            continue
        with pytest.raises(KeyTypeError, match="Cast one side") as caught:
            KeyCodec.of(["theirs"], [relation]).accept(["ours"], [stream])
        assert all(part in str(caught.value) for part in ("theirs", "ours", str(relation), str(stream)))


def test_two_zones_name_the_same_instants():
    codec = KeyCodec.of(["k"], [pa.timestamp("us", "UTC")])
    codec.accept(["k"], [pa.timestamp("us", "Asia/Tokyo")])


@pytest.mark.parametrize(
    "type_",
    [
        pa.list_(pa.month_day_nano_interval()), pa.struct([("a", pa.map_(pa.int8(), pa.int8()))]),
        pa.map_(pa.int64(), pa.int64()),
        pa.month_day_nano_interval(), pa.dictionary(pa.int8(), pa.map_(pa.int8(), pa.int8())),
        pa.sparse_union([pa.field("a", pa.int8())]),
    ],
    ids=str,
)  # fmt: skip
def test_types_that_cannot_be_keys_are_refused_with_the_ones_that_can(type_):
    with pytest.raises(KeyTypeError, match=r"'bad'.*Keys can be integers"):
        KeyCodec.of(["ok", "bad"], [pa.int64(), type_])
    with pytest.raises(KeyTypeError):
        KeyCodec.of(["k"], [pa.int64()]).accept(["k"], [type_])


def test_counts_must_agree():
    codec = KeyCodec.of(["a", "b"], [pa.int64(), pa.int64()])
    with pytest.raises(KeyTypeError, match="1 key columns"):
        codec.accept(["x"], [pa.int64()])
    with pytest.raises(InvalidArgument, match="Give 2"):
        codec.encode([pa.array([1])])
    with pytest.raises(InvalidArgument, match=r"\[1, 2\] rows"):
        codec.encode([pa.array([1]), pa.array([1, 2])])
    with pytest.raises(InvalidArgument, match="1 rows and the right keys 2"):
        codec.equal([pa.array([1])] * 2, [pa.array([1, 2])] * 2)
    with pytest.raises(InvalidArgument, match="at least one"):
        KeyCodec.of([], [])


def test_encode_refuses_columns_it_would_not_accept():
    with pytest.raises(KeyTypeError, match="string"):
        KeyCodec.of(["k"], [pa.int64()]).encode([pa.array(["1"])])


IN_PLACE = [pa.int64(), pa.timestamp("s"), pa.timestamp("ns", "UTC"), pa.time64("ns"), pa.duration("ms")]


@pytest.mark.parametrize(("group", "type_"), ALL_TYPES, ids=str)
def test_in_place_codes_are_the_column_itself(group, type_):
    codec = KeyCodec.of(["k"], [type_])
    is_own = pa.types.is_int64(type_) or group in ("naive", "zoned", "duration") or type_ == pa.time64("ns")
    assert codec.in_place_code == is_own
    if is_own:
        array = array_of([5, 6, 7, 8], type_)
        codes, possible = codec.encode([array[1:]])
        assert (codes.ctypes.data, codes.tolist()) == (array.buffers()[1].address + 8, [6, 7, 8])
        assert possible is None
    assert not KeyCodec.of(["k"], [pa.dictionary(pa.int32(), type_)]).in_place_code
    assert not KeyCodec.of(["k", "l"], [type_, type_]).in_place_code


def test_codes_are_the_documented_ones():
    def code(value, type_):
        return KeyCodec.of(["k"], [type_]).encode([pa.array([value], type_)])[0].tolist()[0]

    assert code(0, pa.uint64()) == -(2**63)
    assert code(86_400_000, pa.date64()) == code(1, pa.date32()) == 1
    assert code(3, pa.time32("s")) == 3 * 10**9
    assert code(Decimal("-1.25"), pa.decimal128(10, 2)) == -125
    assert code(1.0, pa.float32()) == code(1.0, pa.float64()) == np.float64(1.0).view(np.int64)
    assert code(float("nan"), pa.float64()) > code(float("inf"), pa.float64())


def test_every_nan_is_the_same_key():
    bits = np.array([0x7FF8 << 48, -(1 << 51), (0x7FF0 << 48) + 1, -(1 << 52) + 9], dtype=np.int64)
    codes, possible = KeyCodec.of(["k"], [pa.float64()]).encode([pa.array(bits.view(np.float64))])
    assert (len(set(codes.tolist())), possible) == (1, None)


def test_a_codec_survives_pickling_and_compares_by_value():
    codec = KeyCodec.of(["a", "b"], [pa.timestamp("us", "UTC"), pa.decimal128(38, 4)])
    assert pickle.loads(pickle.dumps(codec)) == codec
