"""Spark's connector for Kafka: whether it is there, and what to do if it is not."""

from __future__ import annotations

from collections.abc import Mapping

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from semistream.errors import PipelineError

CONNECTOR = "org.apache.spark:spark-sql-kafka-0-10_2.13"
FAILURES = (PySparkException, Py4JJavaError)
"""What comes out of Spark when it has trouble with Kafka."""

FOR_KAFKA = "kafka."
"""What names of options begin with that the connector hands to the Kafka client."""


def require_connector(spark: SparkSession) -> None:
    """Refuse a Spark that does not know Kafka. No broker is asked anything."""
    options = {"kafka.bootstrap.servers": "localhost", "subscribe": "any"}
    try:
        spark.read.format("kafka").options(**options).load()
    except FAILURES as error:
        raise PipelineError(
            "Spark has no connector for Kafka on its class path. Start it with "
            f"`--packages {CONNECTOR}:{spark.version}`, or set spark.jars.packages to that."
        ) from error


def client_settings(servers: str, options: Mapping[str, str]) -> dict[str, str]:
    """The settings of a Kafka client among the options of Spark's connector.

    >>> client_settings("a:9092", {"kafka.security.protocol": "SSL", "minPartitions": "4"})
    {'bootstrap.servers': 'a:9092', 'security.protocol': 'SSL'}
    """
    own = {name.removeprefix(FOR_KAFKA): value for name, value in options.items() if name.startswith(FOR_KAFKA)}
    return {"bootstrap.servers": servers, **own}


def failure_text(error: Exception) -> str:
    """The line that says what went wrong: of an error in Java, that of its first cause."""
    if not isinstance(error, Py4JJavaError):
        return str(error).splitlines()[0]
    cause = error.java_exception
    while cause.getCause() is not None:
        cause = cause.getCause()
    return str(cause.toString()).splitlines()[0]
