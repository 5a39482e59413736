"""Spark session of the benchmarks: two local cores, with the local settings of `semistream run`."""

from __future__ import annotations

from collections.abc import Mapping

from pyspark.sql import SparkSession

from semistream.spark.session import LOCAL_SETTINGS

CORES = 2


def start_spark(settings: Mapping[str, str]) -> SparkSession:
    """Start a session with additional ``settings``."""
    builder = SparkSession.builder.master(f"local[{CORES}]")
    for name, value in {**LOCAL_SETTINGS, "spark.driver.memory": "6g", **settings}.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    return spark
