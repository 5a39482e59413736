"""Fixtures of all tests: no machine profile, no waiting for the disk, and one quiet local Spark."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest

from tests.spark.kafka.jars import connector_jars
from tests.spark.quick_jvm import QUICK_START

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


os.environ.setdefault("SPARK_SUBMIT_OPTS", QUICK_START)


_SHARED = {
    "tests/faults/": "faults",
    "tests/spark/test_cluster.py": "faults",
    "tests/spark/": "spark",
    "tests/cli/test_pipeline.py": "spark",
    "tests/cli/test_reconcile.py": "spark",
    "tests/docs/test_examples.py": "spark",
    "tests/docs/test_readme.py": "spark",
    "tests/docs/test_windows_doc.py": "spark",
}
"""Tests that one worker runs, by path: killers of JVMs share one JVM, the others a session and a broker."""
_LONGEST_FIRST = ["spark", "faults"]


def _group(nodeid: str) -> str:
    file = nodeid.partition("::")[0]
    return next((name for path, name in _SHARED.items() if file.startswith(path)), file)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Start with the longest groups."""
    items.sort(key=lambda item: [*_LONGEST_FIRST, group := _group(item.nodeid)].index(group))


def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Give each group to one worker; other tests go by file, as their fixtures do."""
    from xdist.scheduler import LoadScopeScheduling

    class ByGroup(LoadScopeScheduling):
        def _split_scope(self, nodeid: str) -> str:
            return _group(nodeid)

    return ByGroup(config, log)


@pytest.fixture(scope="session", autouse=True)
def not_calibrated(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Hide the machine's profile: the machine may be calibrated, and tests must not depend on it."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SEMISTREAM_CACHE", str(tmp_path_factory.mktemp("profiles")))
        yield


@pytest.fixture(scope="session", autouse=True)
def not_synced() -> Iterator[None]:
    """Skip waiting for the disk: tests kill processes, not the machine, so written data survives.

    Tests of syncing replace `os.fsync` themselves, or run in their own processes.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", os.fstat)
        yield


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """A session on two local cores, in UTC, quiet, and with the connector for Kafka if its jars are there."""
    pyspark_sql = pytest.importorskip("pyspark.sql", reason="pip install 'semistream[spark]' to run these")
    from semistream.spark.sent_kernels import ISOLATION
    from semistream.spark.session import CLUSTER_SETTINGS

    builder = (
        pyspark_sql.SparkSession.builder.master("local[2]")
        .appName("semistream tests")
        .config("spark.driver.memory", "2g")
        .config("spark.pyspark.python", sys.executable)
        .config(ISOLATION, CLUSTER_SETTINGS[ISOLATION])
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
    )
    if jars := connector_jars():
        builder = builder.config("spark.jars", ",".join(jars))
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    yield session
    session.stop()
