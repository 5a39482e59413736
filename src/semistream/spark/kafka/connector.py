"""Spark's connector for Kafka: whether it is there, and what to do if it is not.

Where a topic of Kafka begins and ends now, without reading it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

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


@dataclass(frozen=True)
class TopicRange:
    """The offsets that a partition has messages from, and up to which they are committed."""

    first: int
    end: int


def topic_ranges(spark: SparkSession, servers: str, topic: str, options: Mapping[str, str]) -> dict[int, TopicRange]:
    """The ranges of all partitions by their numbers, in order.

    Messages of a transaction that is not ended are not counted, nor those behind them. It asks by the Kafka client that
    comes with Spark's connector.
    """
    jvm: Any = spark._jvm
    settings = jvm.java.util.Properties()
    for name, value in client_settings(servers, options).items():
        settings.setProperty(name, value)
    try:
        admin = jvm.org.apache.kafka.clients.admin.Admin.create(settings)
        try:
            return _ranges(jvm, admin, topic)
        finally:
            admin.close()
    except FAILURES as error:
        raise PipelineError(
            f"the topic {topic!r} of {servers} cannot be used: {failure_text(error)}. Make it, or give the right "
            "`servers` and `topic`."
        ) from error


def _ranges(jvm: Any, admin: Any, topic: str) -> dict[int, TopicRange]:
    described = admin.describeTopics(jvm.java.util.Collections.singletonList(topic)).allTopicNames().get()
    numbers = sorted(int(each.partition()) for each in described.get(topic).partitions())
    spec = jvm.org.apache.kafka.clients.admin.OffsetSpec
    first = _offsets(jvm, admin, topic, numbers, spec.earliest())
    end = _offsets(jvm, admin, topic, numbers, spec.latest())
    return {number: TopicRange(first[number], end[number]) for number in numbers}


def _offsets(jvm: Any, admin: Any, topic: str, numbers: list[int], which: Any) -> dict[int, int]:
    partitions = {number: jvm.org.apache.kafka.common.TopicPartition(topic, number) for number in numbers}
    wanted = jvm.java.util.HashMap()
    for partition in partitions.values():
        wanted.put(partition, which)
    committed = jvm.org.apache.kafka.common.IsolationLevel.READ_COMMITTED
    options = jvm.org.apache.kafka.clients.admin.ListOffsetsOptions(committed)
    found = admin.listOffsets(wanted, options).all().get()
    return {number: int(found.get(partition).offset()) for number, partition in partitions.items()}
