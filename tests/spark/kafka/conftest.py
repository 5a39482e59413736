"""One broker for all tests of a process that need it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from tests.spark.kafka.jars import HOW, broker_jars, connector_jars

if TYPE_CHECKING:
    from tests.spark.kafka.broker import Broker


@pytest.fixture(scope="session")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """A broker of Kafka, without topics."""
    if not broker_jars() or not connector_jars():
        pytest.skip(f"no jars of Kafka: {HOW}")
    from tests.spark.kafka.broker import running_broker

    with running_broker(tmp_path_factory.mktemp("broker")) as running:
        yield running
