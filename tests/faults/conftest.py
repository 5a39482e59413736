"""One Spark for all kills in a process."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

pytest.importorskip("pyspark", reason="pip install 'semistream[spark]' to run these")

from tests.faults.spark_world import SparkWorld


@pytest.fixture(scope="session")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkWorld]:
    """A Spark whose drivers are killed."""
    with SparkWorld(tmp_path_factory.mktemp("faults") / "spark.log") as world:
        yield world
