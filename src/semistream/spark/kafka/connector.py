"""Spark's Kafka connector: check that it is installed, and ask brokers for the offsets of a topic."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from semistream.errors import PipelineError
from semistream.pipelines.updates.update_reader import TopicRange

CONNECTOR = "org.apache.spark:spark-sql-kafka-0-10_2.13"
FAILURES = (PySparkException, Py4JJavaError)
"""Exceptions that Spark raises when Kafka fails."""

FOR_KAFKA = "kafka."
"""Prefix of options that the connector passes to the Kafka client."""


def require_connector(spark: SparkSession) -> None:
    """Raise `PipelineError` if Spark has no Kafka connector. No broker is contacted."""
    options = {"kafka.bootstrap.servers": "localhost", "subscribe": "any"}
    try:
        spark.read.format("kafka").options(**options).load()
    except FAILURES as error:
        raise PipelineError(
            "Spark has no Kafka connector on its class path. Start it with "
            f"`--packages {CONNECTOR}:{spark.version}`, or set spark.jars.packages to that."
        ) from error


def client_settings(servers: str, options: Mapping[str, str]) -> dict[str, str]:
    """Return the Kafka client's settings among the options of Spark's connector.

    >>> client_settings("a:9092", {"kafka.security.protocol": "SSL", "minPartitions": "4"})
    {'bootstrap.servers': 'a:9092', 'security.protocol': 'SSL'}
    """
    own = {name.removeprefix(FOR_KAFKA): value for name, value in options.items() if name.startswith(FOR_KAFKA)}
    return {"bootstrap.servers": servers, **own}


def failure_text(error: Exception) -> str:
    """Return the first line of an error's message; for a Java error, that of its root cause."""
    if not isinstance(error, Py4JJavaError):
        return str(error).splitlines()[0]
    cause = error.java_exception
    while cause.getCause() is not None:
        cause = cause.getCause()
    return str(cause.toString()).splitlines()[0]


def topic_ranges(spark: SparkSession, servers: str, topic: str, options: Mapping[str, str]) -> dict[int, TopicRange]:
    """Return the offset range of every partition, by number, in ascending order.

    Ranges end before the first message of an open transaction. The brokers are asked through the Kafka client that
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
            f"the topic {topic!r} of {servers} cannot be used: {failure_text(error)}. Create it, or correct "
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
