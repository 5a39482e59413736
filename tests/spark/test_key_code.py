"""Key codes computed by Spark's JVM against those of KeyCodec, for every key type that Spark has."""

import datetime as dt
import random

import pyarrow as pa
import pytest
from pyspark.sql import functions as sf

from semistream.keys import KeyCodec
from semistream.keys.key_types import comparable
from semistream.spark.key_code import key_code
from tests.keys.key_oracle import GROUPS
from tests.spark.frames import frame
from tests.spark.test_key_codes import COLUMNS

pytestmark = pytest.mark.spark

OWN_TYPES = [type_ for types in GROUPS.values() for type_ in types]
UNROUTABLE = [pa.decimal256(76, 30), pa.decimal256(40, 2)]
LIMITS = [2**63 - 1, -(2**63) + 1, 0, 1, -1, 999, 1000, -1000, 10**6, -(10**6), 10**12, 123_456_789_012_345_678]


def wide_moments():
    """Intervals and timestamps out to where microseconds end."""
    rng = random.Random(7)
    return pa.array([*LIMITS, *(rng.randrange(-(2**63), 2**63) for _ in range(50))], pa.int64())


STREAMS = {
    **COLUMNS,
    "wide interval": lambda: wide_moments().view(pa.duration("us")),
    "time": lambda: pa.array([dt.time(0), dt.time(23, 59, 59, 999_999), dt.time(12, 34, 56, 500_000)], pa.time64("ns")),
    "powers of two": lambda: pa.array([s * 2.0**e * f for e in range(-1074, 1024) for s, f in [(1, 1), (-1, 1)]]),
    "next to powers of two": lambda: pa.array(
        [2.0**e * (1 + sign * 2.0**-52) for e in range(-1021, 1024) for sign in (1, -0.5)] + [1.7976931348623157e308]
    ),
}


@pytest.mark.parametrize("name", STREAMS)
def test_the_jvm_computes_the_codes_of_the_codec(spark, name):
    column = STREAMS[name]()
    df = frame(spark, pa.table({"v": column, "n": pa.array(range(len(column)), pa.int16())}))
    codecs = []
    for own in OWN_TYPES:
        if comparable(column.type, own) and own not in UNROUTABLE:
            codecs += [KeyCodec.of(["v"], [own]), KeyCodec.of(["n", "v"], [pa.int64(), own])]
    assert codecs
    columns = {c: [sf.col(name) for name in c.names] for c in codecs}
    types = {c: [df.schema[name].dataType for name in c.names] for c in codecs}
    codes = [key_code(columns[c], types[c], c).alias(str(i)) for i, c in enumerate(codecs)]
    found = df.select("n", *codes).toArrow().sort_by("n")
    values = {"v": column, "n": pa.array(range(len(column)), pa.int16())}
    for i, codec in enumerate(codecs):
        expected, possible = codec.encode([values[n] for n in codec.names])
        given = found.column(str(i)).to_pylist()
        assert all(
            code == given[row] for row, code in enumerate(expected.tolist()) if possible is None or possible[row]
        ), codec


def test_a_null_gives_no_error_and_leaves_the_other_rows_alone(spark):
    df = frame(spark, pa.table({"v": pa.array([1.5, None]), "t": pa.array(["a", None])}))
    for names, types in [(["v"], [pa.float64()]), (["t", "v"], [pa.string(), pa.float32()])]:
        codec = KeyCodec.of(names, types)
        code = key_code([sf.col(n) for n in names], [df.schema[n].dataType for n in names], codec)
        expected, _ = codec.encode([pa.array([{"v": 1.5, "t": "a"}[n]]) for n in names])
        assert df.select(code).collect()[0][0] == expected[0]
