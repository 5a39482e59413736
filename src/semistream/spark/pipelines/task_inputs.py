"""Inputs of the tasks of a phase: rows of the source, and numbers of shares of splits."""

from __future__ import annotations

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf

from semistream.pipelines.plan.join_plan import JoinPlan
from semistream.spark.joins.routing import route_rows

_SPLIT = "__split"


def inputs_of(
    spark: SparkSession, rows: DataFrame | None, shares: int, slots: int, routed: JoinPlan | None = None
) -> DataFrame | None:
    """Return the input of a phase: ``rows`` with a null last column, and one row per share of splits with its number.

    Columns are named by position. With ``routed``, rows are in the partitions that own their keys. None if there is
    no input.
    """
    numbers = spark.range(0, shares, 1, max(shares, 1)).select(sf.col("id").alias(_SPLIT)) if shares else None
    if rows is None:
        return numbers
    own = rows.coalesce(slots) if routed is None else route_rows(rows, routed)
    numbered = own.toDF(*(f"c{i}" for i in range(len(rows.columns))))
    frame = numbered.withColumn(_SPLIT, sf.lit(None).cast("bigint"))
    if numbers is None:
        return frame
    nothing = [sf.lit(None).cast(field.dataType).alias(field.name) for field in numbered.schema]
    return frame.union(numbers.select(*nothing, _SPLIT)).coalesce(slots)
