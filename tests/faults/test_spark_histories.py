"""Histories on a real Spark."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("pyspark", reason="pip install 'semistream[spark]' to run these")

from tests.faults.spark_world import SparkWorld
from tests.simulation.history import History
from tests.simulation.spark_runner import SparkRunner

pytestmark = [pytest.mark.spark, pytest.mark.slow]


def test_a_history_is_the_same_on_spark(world: SparkWorld, tmp_path: Path) -> None:
    drawn = [each for each in map(History.draw, range(100)) if each.plot == "orders"]
    history = min(drawn, key=lambda each: abs(sum(event.kind == "run" for event in each.events) - 2))
    history.run(tmp_path / "history", lambda _: SparkRunner(world))
