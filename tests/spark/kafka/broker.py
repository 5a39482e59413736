"""A real broker of Kafka: one JVM in KRaft mode on this machine, with its topics in a folder that goes with it."""

from __future__ import annotations

import os
import socket
import subprocess
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from confluent_kafka import Consumer, KafkaException, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewPartitions, NewTopic

from tests.spark.kafka.jars import broker_jars

_SETTINGS = """
process.roles=broker,controller
node.id=1
controller.quorum.voters=1@127.0.0.1:{control}
listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{control}
advertised.listeners=PLAINTEXT://127.0.0.1:{port}
controller.listener.names=CONTROLLER
log.dirs={folder}/log
auto.create.topics.enable=false
offsets.topic.replication.factor=1
offsets.topic.num.partitions=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
transaction.state.log.num.partitions=1
group.initial.rebalance.delay.ms=0
log.cleaner.backoff.ms=50
log.initial.task.delay.ms=0
message.max.bytes=20000000
"""
_JAVA = ["java", "-Xmx384m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xshare:auto"]
_START_S, _ANSWER_S = 120, 30


@dataclass(frozen=True)
class Broker:
    """A broker that runs at ``servers``."""

    servers: str

    def create(self, topic: str, partitions: int = 1, **config: Any) -> str:
        """A new topic; settings are Kafka's with ``_`` for dots. Gives its name."""
        settings = {name.replace("_", "."): str(value) for name, value in config.items()}
        admin = self._admin()
        admin.create_topics([NewTopic(topic, partitions, 1, config=settings)])[topic].result(_ANSWER_S)
        return topic

    def add_partitions(self, topic: str, total: int) -> None:
        """Let a topic have more partitions."""
        admin = self._admin()
        admin.create_partitions([NewPartitions(topic, total)])[topic].result(_ANSWER_S)

    def delete_before(self, topic: str, offset: int) -> None:
        """Let the first messages of a topic with one partition be gone."""
        place, admin = TopicPartition(topic, 0, offset), self._admin()
        admin.delete_records([place])[place].result(_ANSWER_S)

    def send(
        self, topic: str, messages: Iterable[tuple[Any, Any]], partition: int = -1, *, at_ms: int | None = None
    ) -> None:
        """Send messages of key and value, as of now or of ``at_ms``, and wait until the broker has them all."""
        producer = Producer({"bootstrap.servers": self.servers, "message.max.bytes": 20_000_000, "linger.ms": 1})
        refused: list[Any] = []
        for key, value in messages:
            place = {} if partition < 0 else {"partition": partition}
            place |= {} if at_ms is None else {"timestamp": at_ms}
            producer.produce(topic, value, key, on_delivery=lambda error, _: error and refused.append(error), **place)
            producer.poll(0)
        assert producer.flush(_ANSWER_S) == 0
        assert not refused

    def abort(self, topic: str, values: Iterable[Any]) -> None:
        """Send messages in a transaction, then abort it."""
        producer = Producer({"bootstrap.servers": self.servers, "transactional.id": f"{topic}-aborted"})
        producer.init_transactions(_ANSWER_S)
        producer.begin_transaction()
        for value in values:
            producer.produce(topic, value)
        producer.flush(_ANSWER_S)
        producer.abort_transaction(_ANSWER_S)

    def messages(self, topic: str) -> list[Message]:
        """All messages that the topic has now, partition by partition."""
        admin = self._admin()
        partitions = admin.list_topics(topic, _ANSWER_S).topics[topic].partitions
        found: list[Message] = []
        consumer = Consumer({"bootstrap.servers": self.servers, "group.id": "tests", "enable.partition.eof": True})
        try:
            consumer.assign([TopicPartition(topic, partition, 0) for partition in partitions])
            ended: set[int] = set()
            while len(ended) < len(partitions):
                message = consumer.poll(_ANSWER_S)
                assert message is not None
                if message.error() is None:
                    found.append(message)
                else:
                    ended.add(message.partition())
        finally:
            consumer.close()
        return sorted(found, key=lambda message: (message.partition(), message.offset()))

    def _admin(self) -> AdminClient:
        return AdminClient({"bootstrap.servers": self.servers})


@contextmanager
def running_broker(folder: Path) -> Iterator[Broker]:
    """A broker until the end of the block."""
    port, control = free_ports(2)
    settings = folder / "server.properties"
    settings.write_text(_SETTINGS.format(port=port, control=control, folder=folder))
    java = [*_JAVA, "-cp", os.pathsep.join(broker_jars())]
    named = ["--config", str(settings), "--cluster-id", "c2VtaXN0cmVhbS10ZXN0cw"]
    log = folder / "broker.log"
    with log.open("wb") as output:
        streams: Mapping[str, Any] = {"stdout": output, "stderr": output, "stdin": subprocess.DEVNULL}
        subprocess.run([*java, "kafka.tools.StorageTool", "format", *named], check=True, **streams)
        process = subprocess.Popen([*java, "kafka.Kafka", str(settings)], **streams)
    try:
        broker = Broker(f"127.0.0.1:{port}")
        _wait(broker, process, log)
        yield broker
    finally:
        process.kill()
        process.wait()


def _wait(broker: Broker, process: subprocess.Popen[bytes], log: Path) -> None:
    """Until the broker answers."""
    client = AdminClient({"bootstrap.servers": broker.servers, "log_level": 0, "reconnect.backoff.max.ms": 200})
    end = time.monotonic() + _START_S
    while process.poll() is None and time.monotonic() < end:
        with suppress(KafkaException):
            client.list_topics(timeout=1)
            return
    raise RuntimeError(f"the broker does not answer: {log.read_text()}")


def free_ports(count: int) -> list[int]:
    """Ports of this machine that nobody listens at."""
    with ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [each.getsockname()[1] for each in sockets]
