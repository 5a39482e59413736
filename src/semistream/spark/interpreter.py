"""Python workers run the driver's interpreter, without the user setting anything."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.classic.dataframe import DataFrame as ClassicDataFrame

from semistream.errors import InvalidArgument

_PYSPARK_DEFAULT = "python3"  # what pyspark starts workers with when PYSPARK_PYTHON was not set


@contextmanager
def worker_interpreter(df: DataFrame) -> Iterator[None]:
    """Functions given to Spark within the block run on the interpreter that the driver runs on.

    pyspark would start ``python3``, which in a virtual environment is often another Python without semistream in it,
    and it reads ``spark.pyspark.python`` only in spark-submit. What the user chose explicitly stays: the variable
    ``PYSPARK_PYTHON``, then the setting ``spark.pyspark.python`` of the session. Works on a session that runs already,
    since pyspark takes the interpreter's name at the moment when it wraps a function; functions outside the block are
    not touched.
    """
    with session_interpreter(df.sparkSession):
        yield


@contextmanager
def session_interpreter(spark: SparkSession) -> Iterator[None]:
    """The same for functions and data sources that are given to a session within the block."""
    context = spark.sparkContext
    before = context.pythonExec
    context.pythonExec = choose_interpreter(context)
    try:
        yield
    finally:
        context.pythonExec = before


def choose_interpreter(context: Any) -> str:
    """The interpreter for a Spark context's workers."""
    if os.environ.get("PYSPARK_PYTHON") or context.pythonExec != _PYSPARK_DEFAULT:
        return str(context.pythonExec)
    return str(context.getConf().get("spark.pyspark.python") or sys.executable)


def require_classic(df: Any) -> DataFrame:
    """Refuse what is not a DataFrame of a session with a driver in this process."""
    if not isinstance(df, ClassicDataFrame):
        kind = f"{type(df).__module__}.{type(df).__name__}"
        raise InvalidArgument(
            f"df is a {kind}; give a pyspark DataFrame of a session that runs in this process "
            "(Spark Connect is not supported: the relation must be seen by the driver)."
        )
    return df
