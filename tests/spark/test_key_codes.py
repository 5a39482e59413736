"""Hashed key codes against Spark's own xxhash64."""

import datetime as dt
import random
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest

from semistream.keys import KeyCodec

pytestmark = pytest.mark.spark

ROWS = 400
_rng = random.Random(20)
_TEXTS = ["", "a", "Spark", "naïve", "日本語", "🦆", "e\u0301", "\0", "x" * 31, "y" * 32, "z" * 33, "ß" * 70]
_EPOCH = dt.date(1970, 1, 1)


def _ints(bits):
    return [0, 1, -1, 2 ** (bits - 1) - 1, -(2 ** (bits - 1))], lambda: _rng.getrandbits(bits) - 2 ** (bits - 1)


def _decimals(precision, scale):
    def exact(unscaled):
        return Decimal((int(unscaled < 0), tuple(map(int, str(abs(unscaled)))), -scale))

    top = 10**precision - 1
    edges = [0, 1, -1, 127, 128, -128, -129, 255, 256, -256, top, -top, min(top, 2**63), max(-top, -(2**63))]

    def draw():
        return exact(_rng.randint(-top, top) // 10 ** _rng.randrange(precision))

    return [exact(v) for v in edges], draw


def _bits_to(dtype, unsigned):
    return lambda: np.array([_rng.getrandbits(8 * np.dtype(dtype).itemsize)], unsigned).view(dtype)[0]


def _raw(type_, storage):
    """Values given as the int that Arrow stores, for types whose Python objects are narrower."""
    edges, draw = _ints(32 if storage == pa.int32() else 50)
    return lambda: pa.array(_fill(edges, draw), storage).view(type_)


def _fill(edges, draw):
    return [*edges, *(draw() for _ in range(ROWS - len(edges)))]


_FLOATS = [0.0, -0.0, float("nan"), -float("nan"), float("inf"), -float("inf"), 1.5, -1.5, 1e-45]
COLUMNS = {
    "boolean": lambda: pa.array(_fill([True, False], lambda: _rng.random() < 0.5)),
    "byte": lambda: pa.array(_fill(*_ints(8)), pa.int8()),
    "short": lambda: pa.array(_fill(*_ints(16)), pa.int16()),
    "int": lambda: pa.array(_fill(*_ints(32)), pa.int32()),
    "long": lambda: pa.array(_fill(*_ints(64)), pa.int64()),
    "float": lambda: pa.array(np.array(_fill(_FLOATS, _bits_to(np.float32, np.uint32)), np.float32)),
    "double": lambda: pa.array(np.array(_fill(_FLOATS, _bits_to(np.float64, np.uint64)), np.float64)),
    "date": lambda: pa.array(
        _fill([_EPOCH, dt.date.min, dt.date.max], lambda: _EPOCH + dt.timedelta(_rng.randint(-9999, 9999))),
        pa.date32(),
    ),
    "instant": _raw(pa.timestamp("us", "UTC"), pa.int64()),
    "local": _raw(pa.timestamp("us"), pa.int64()),
    "interval": _raw(pa.duration("us"), pa.int64()),
    "decimal5": lambda: pa.array(_fill(*_decimals(5, 2)), pa.decimal128(5, 2)),
    "decimal18": lambda: pa.array(_fill(*_decimals(18, 4)), pa.decimal128(18, 4)),
    "decimal19": lambda: pa.array(_fill(*_decimals(19, 0)), pa.decimal128(19, 0)),
    "decimal38": lambda: pa.array(_fill(*_decimals(38, 10)), pa.decimal128(38, 10)),
    "string": lambda: pa.array(_fill(_TEXTS, lambda: "".join(_rng.choices("aé日🦆 ", k=_rng.randrange(60))))),
    "binary": lambda: pa.array(_fill([b"", b"\0", b"\xff" * 40], lambda: _rng.randbytes(_rng.randrange(80)))),
}
HASHED_ALONE = ["decimal19", "decimal38", "string", "binary"]
KEYS = [
    *([name] for name in HASHED_ALONE),
    *(pair for name in COLUMNS for pair in ([name, "string"], ["long", name])),
    list(COLUMNS),
    list(reversed(COLUMNS)),
]


@pytest.fixture(scope="module")
def table():
    return pa.table({name: make() for name, make in COLUMNS.items()})


@pytest.fixture(scope="module")
def spark_codes(spark, table):
    """For each of KEYS, the value that Spark computes in every row."""
    df = spark.createDataFrame(table.append_column("row", pa.array(range(len(table)))))
    hashes = [f"xxhash64({', '.join(key)}) AS h{i}" for i, key in enumerate(KEYS)]
    return df.selectExpr("row", *hashes).toArrow().sort_by("row")


def columns_of(table, key):
    return [table.column(name).combine_chunks() for name in key]


@pytest.mark.parametrize("number", range(len(KEYS)), ids=["+".join(k) if len(k) < 3 else k[0] for k in KEYS])
def test_codes_are_the_values_of_xxhash64(table, spark_codes, number):
    columns = columns_of(table, KEYS[number])
    codec = KeyCodec.of(KEYS[number], [column.type for column in columns])
    codes, possible = codec.encode(columns)
    assert not codec.ordered
    assert possible is None
    assert codes.tolist() == spark_codes.column(f"h{number}").to_pylist()


OTHER_LAYOUTS = {
    "string": [pa.large_string(), pa.string_view(), pa.dictionary(pa.int32(), pa.string())],
    "binary": [pa.large_binary(), pa.binary_view(), pa.dictionary(pa.int32(), pa.binary())],
    "decimal38": [pa.decimal256(38, 10), pa.decimal256(60, 20)],
    "decimal19": [pa.decimal128(30, 4)],
}


@pytest.mark.parametrize("name", OTHER_LAYOUTS)
def test_a_stream_in_another_layout_gets_the_same_codes(table, spark_codes, name):
    column = columns_of(table, [name])[0]
    codec = KeyCodec.of([name], [column.type])
    for type_ in OTHER_LAYOUTS[name]:
        other = column.dictionary_encode() if pa.types.is_dictionary(type_) else column.cast(type_)
        codes, possible = codec.encode([other])
        assert possible is None
        assert codes.tolist() == spark_codes.column(f"h{KEYS.index([name])}").to_pylist()


def test_rows_with_a_null_component_cannot_match_and_the_others_keep_their_code(spark):
    table = pa.table({"a": pa.array(["x", None, "y", None]), "b": pa.array([1, 2, None, None], pa.int32())})
    expected = spark.createDataFrame(table).selectExpr("xxhash64(a, b) AS h").toArrow()["h"].to_pylist()
    codes, possible = KeyCodec.of(["a", "b"], [pa.string(), pa.int32()]).encode(columns_of(table, ["a", "b"]))
    assert possible is not None
    assert possible.tolist() == [True, False, False, False]
    assert codes[0] == expected[0]


def test_times_hash_as_sparks_time_type(spark):
    expected = spark.sql("SELECT xxhash64(TIME'12:34:56.5', 'k') AS h").toArrow()["h"].to_pylist()
    for type_ in (pa.time64("ns"), pa.time32("ms")):
        codec = KeyCodec.of(["t", "k"], [type_, pa.string()])
        codes, _ = codec.encode([pa.array([dt.time(12, 34, 56, 500_000)], type_), pa.array(["k"])])
        assert codes.tolist() == expected
