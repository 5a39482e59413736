"""Routing: send rows to the partition that owns their key range, by key codes computed in the JVM."""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as sf

from semistream.keys import KeyCodec
from semistream.pipelines.plan.join_plan import JoinPlan
from semistream.spark.key_code import key_code


def partition_id(code: Column, cuts: tuple[int, ...]) -> Column:
    """Return the part of a key code as a Spark expression: an unrolled binary search in ``cuts``."""
    return _search(code, cuts, 0, len(cuts))


def _search(code: Column, cuts: tuple[int, ...], low: int, high: int) -> Column:
    if low == high:
        return sf.lit(low)
    middle = (low + high) // 2
    below = _search(code, cuts, low, middle)
    return sf.when(code < sf.lit(cuts[middle]), below).otherwise(_search(code, cuts, middle + 1, high))


def route_rows(df: DataFrame, plan: JoinPlan) -> DataFrame:
    """Repartition rows by the owner of their key range.

    Results do not depend on it: workers look up the part of each row again (`split_rows`).
    """
    columns = [sf.col(quoted(name)) for name in plan.stream_keys]
    codec = KeyCodec.of(plan.key, plan.key_types)
    code = key_code(columns, [df.schema[name].dataType for name in plan.stream_keys], codec)
    if not plan.cuts:
        return df
    return df.repartitionById(len(plan.cuts) + 1, partition_id(code, plan.cuts))


def quoted(name: str) -> str:
    """Quote a column name with backticks for a Spark expression."""
    return "`" + name.replace("`", "``") + "`"
