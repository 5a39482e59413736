"""Data sources of our own, given to Spark so that its Python processes need not import semistream for them."""

from __future__ import annotations

import sys

from pyspark import cloudpickle
from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSource

from semistream.spark.interpreter import worker_interpreter


def register_by_value(spark: SparkSession, source: type[DataSource]) -> None:
    """Register a data source whose module is sent along with it.

    Spark starts a Python process for each step of planning a stream, several in a batch, and to import semistream takes
    each of them more than a second.
    """
    module = sys.modules[source.__module__]
    cloudpickle.register_pickle_by_value(module)
    try:
        with worker_interpreter(spark):
            spark.dataSource.register(source)
    finally:
        cloudpickle.unregister_pickle_by_value(module)
