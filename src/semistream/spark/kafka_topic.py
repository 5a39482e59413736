"""Where a topic of Kafka begins and ends now, without reading it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pyspark.sql import SparkSession

from semistream.errors import PipelineError
from semistream.spark.kafka_connector import FAILURES, client_settings, failure_text


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
