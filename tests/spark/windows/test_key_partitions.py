"""Key partitions: even, the same for equal keys, and each in a task of its own on Spark."""

import numpy as np
import pytest

pytest.importorskip("pyspark", reason="pip install 'semistream[spark]' to run these")

from pyspark.sql import functions as sf

from semistream.spark.windows.key_partitions import group_numbers, partition_of, spark_hash


@pytest.mark.spark
def test_hashes_are_sparks_own_and_groups_fall_into_tasks_of_their_own(spark):
    numbers = np.random.default_rng(1).integers(-(2**31), 2**31, 500).astype(np.int32)
    rows = spark.createDataFrame([(int(number),) for number in numbers], "number int")
    assert [row[0] for row in rows.select(sf.hash("number")).collect()] == spark_hash(numbers).tolist()
    groups = [(count, number) for count in (1, 2, 7, 200) for number in group_numbers(count)]
    tasks = spark.createDataFrame(groups, "count int, number int").select("count", sf.expr("pmod(hash(number), count)"))
    assert sorted(map(tuple, tasks.collect())) == [(count, task) for count in (1, 2, 7, 200) for task in range(count)]


@pytest.mark.parametrize("codes", [np.arange(40_000), np.arange(40_000) * 2**32, -np.arange(40_000) * 1000])
def test_keys_are_spread_evenly(codes):
    sizes = np.bincount(partition_of(codes.astype(np.int64), None, 8), minlength=8)
    assert sizes.size == 8
    assert sizes.min() > 4600
    assert sizes.max() < 5400
