"""A small warehouse for each test of a pipeline, and the state store of window joins."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.spark.pipelines.warehouse import Warehouse

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture
def warehouse(tmp_path: Path) -> Warehouse:
    """A source, relations, tables and a checkpoint."""
    return Warehouse(tmp_path)


@pytest.fixture
def rocksdb(spark: SparkSession) -> Iterator[None]:
    """State lies in RocksDB, as transformWithState needs it to."""
    from tests.spark.windows.window_streams import PROVIDER, ROCKSDB

    before = spark.conf.get(PROVIDER)
    spark.conf.set(PROVIDER, ROCKSDB)
    yield
    spark.conf.set(PROVIDER, before)
