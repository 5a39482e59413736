"""All scenarios, by name."""

from __future__ import annotations

from tests.crash.cuts import failures
from tests.crash.orders_pipeline import DeltaOrders, ParquetOrders
from tests.crash.overload_pipeline import DeltaOverload, ParquetOverload
from tests.crash.relation_scenario import RelationScenario
from tests.crash.snapshot_pipeline import SnapshotPipeline

_ALL = (RelationScenario, DeltaOrders, ParquetOrders, DeltaOverload, ParquetOverload, SnapshotPipeline)
SCENARIOS = {scenario.name: scenario for scenario in _ALL}


def run_states(name: str, seed: int, states: int) -> tuple[int, list[str]]:
    """Check states of a scenario; return their number, and what failed."""
    outcomes = list(failures(SCENARIOS[name](), seed, states))
    return len(outcomes), [str(each) for each in outcomes if each is not None]
