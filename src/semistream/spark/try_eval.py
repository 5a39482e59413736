"""Expressions of Spark whose failures are told by a null, for which Spark has no function of its own."""

from __future__ import annotations

from typing import Any

from pyspark.sql import Column, DataFrame
from pyspark.sql.classic.column import Column as ClassicColumn


def attempted(column: Any, rows: DataFrame) -> Column:
    """Return a column that is null in those of the ``rows`` for which its evaluation fails, whatever the error."""
    jvm: Any = rows.sparkSession._jvm
    expressions = jvm.org.apache.spark.sql.classic.ExpressionUtils
    attempt = jvm.org.apache.spark.sql.catalyst.expressions.TryEval(expressions.expression(column._jc))
    return ClassicColumn(expressions.column(attempt))
