"""Refusals of window_join() on the driver, before a query starts."""

import re

import pytest

from semistream.errors import BudgetError, ColumnNotFound, InvalidArgument, KeyTypeError, SemistreamError
from semistream.spark import repair_window_join, window_join
from semistream.windows import Tuples
from tests.spark.windows.window_streams import PROVIDER, ROCKSDB

pytestmark = pytest.mark.spark


@pytest.fixture
def rate(spark):
    return spark.readStream.format("rate").load()  # timestamp, value


@pytest.fixture
def stream(rate, rocksdb):
    return rate.withWatermark("timestamp", "1 second")


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"window": "0 seconds"}, InvalidArgument, "window is '0 seconds'"),
        ({"window": "soon"}, InvalidArgument, "window is 'soon'"),
        ({"window": Tuples(5)}, InvalidArgument, "on Spark windows are durations such as '10 minutes'"),
        ({"window": {"left": "1 minute", "right": None}}, InvalidArgument, "the right window is None"),
        ({"window": {"left": "1 minute"}}, InvalidArgument, "the right window is None"),
        ({"memory": 0}, BudgetError, "memory is 0"),
        ({"memory": "0MB"}, BudgetError, "memory is '0MB'"),
        ({"memory": 5}, BudgetError, "memory is 5 for 2 key partitions, which is 2 for each"),
        ({"memory": "1kB"}, BudgetError, "memory is '1kB' for 2 key partitions, which is '500B' for each"),
        ({"policy": "best"}, InvalidArgument, "policy is 'best'; give one of 'prob', 'life', 'expected', 'random'"),
        ({"allocation": "half"}, InvalidArgument, "allocation is 'half'"),
        ({"on": "key"}, ColumnNotFound, "the left stream has no column 'key'"),
        ({"on": {"value": "timestamp"}}, KeyTypeError, "they cannot be compared without loss"),
        ({"on": []}, InvalidArgument, "give at least one pair of columns"),
        ({"partitions": 0}, SemistreamError, "partitions is 0"),
        ({"max_waiting": 0}, SemistreamError, "max_waiting is 0"),
        ({"suffix": ""}, InvalidArgument, "Rename them, or give a suffix"),
    ],
)
def test_arguments_that_cannot_work(stream, arguments, error, message):
    usual = {"on": "value", "window": "1 minute", "memory": 1000}
    with pytest.raises(error, match=re.escape(message)):
        window_join(stream, stream, **{**usual, **arguments})


@pytest.mark.parametrize("policy", ["prob", "life", "expected", "random"])
def test_every_policy_is_taken(stream, policy):
    df = window_join(stream, stream, on="value", window="1 minute", memory="1MB", policy=policy, partitions=4)
    assert df.isStreaming
    assert df.columns == ["timestamp", "value", "timestamp_right"]


def test_streams_must_have_a_watermark_on_a_timestamp(spark, rate, stream):
    with pytest.raises(InvalidArgument, match="the right stream has no watermark; give it one"):
        window_join(stream, rate, on="value", window="1 minute", memory=100)
    table = spark.createDataFrame([(1,)], "value long")
    with pytest.raises(InvalidArgument, match="the left DataFrame is not a stream"):
        window_join(table, stream, on="value", window="1 minute", memory=100)
    from pyspark.sql import functions as sf

    tumbling = rate.select(sf.window("timestamp", "1 minute").alias("w"), "value").withWatermark("w", "1 second")
    with pytest.raises(InvalidArgument, match="put it on a column of timestamps"):
        window_join(tumbling, stream, on="value", window="1 minute", memory=100)


def test_a_state_store_that_cannot_be_used_is_named_with_the_setting(spark, rate):
    marked = rate.withWatermark("timestamp", "1 second")
    with pytest.raises(InvalidArgument, match=re.escape(f"spark.conf.set('{PROVIDER}', '{ROCKSDB}')")):
        window_join(marked, marked, on="value", window="1 minute", memory=100)


def test_the_archive_of_another_join_is_refused(stream, tmp_path):
    window_join(stream, stream, on="value", window="1 minute", memory=100, archive=tmp_path / "a")
    with pytest.raises(InvalidArgument, match="has the archive of another window join"):
        window_join(stream, stream, on="value", window="2 minutes", memory=100, archive=tmp_path / "a")
    with pytest.raises(InvalidArgument, match="has no archive of a window join"):
        next(repair_window_join(tmp_path))


def test_a_column_is_refused_where_a_name_is_wanted(stream):
    for on in (stream["value"], [stream["value"]]):
        with pytest.raises(InvalidArgument, match=r"on is a (list with a )?Column; give the name of a column"):
            window_join(stream, stream, on=on, window="1 minute", memory=1000)
