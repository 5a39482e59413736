"""All scenarios, by name."""

from __future__ import annotations

from collections.abc import Callable

from tests.crash.cuts import Scenario, failures
from tests.crash.relation_scenario import RelationScenario

SCENARIOS: dict[str, Callable[[], Scenario]] = {each.name: each for each in (RelationScenario,)}


def run_states(name: str, seed: int, states: int) -> tuple[int, list[str]]:
    """Check states of a scenario; return their number, and what failed."""
    outcomes = list(failures(SCENARIOS[name](), seed, states))
    return len(outcomes), [str(each) for each in outcomes if each is not None]
