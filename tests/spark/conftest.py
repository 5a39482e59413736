"""A small warehouse for each test of a pipeline."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.spark.warehouse import Warehouse


@pytest.fixture
def warehouse(tmp_path: Path) -> Warehouse:
    """A source, relations, tables and a checkpoint."""
    return Warehouse(tmp_path)
