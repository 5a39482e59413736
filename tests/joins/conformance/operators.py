"""The one list of operators, and how a check is run on each of them."""

from __future__ import annotations

import os
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from semistream import (
    AdaptiveMeshJoin,
    HybridJoin,
    IndexNestedLoopJoin,
    MeshJoin,
    Relation,
    ResidentJoin,
    SemiStreamingIndexJoin,
    SemiStreamJoin,
)
from semistream.errors import BudgetError
from semistream.joins.cache.front_stage import FrontStage
from semistream.joins.engine.operator import EngineJoin
from semistream.joins.mesh.cost_model import MeshParameters
from semistream.joins.sweep.operator import SweepJoin
from tests.joins.cases import Case
from tests.joins.clocks import TickingClock


@dataclass(frozen=True)
class Maker:
    """Maker of operators of one kind, with options to test."""

    kind: Callable[..., SemiStreamJoin]
    options: dict[str, Any] = field(default_factory=dict)

    @property
    def takes_ranges(self) -> bool:
        """True if it takes a range of R's key as well as equality."""
        return not (isinstance(self.kind, type) and issubclass(self.kind, SemiStreamJoin) and self.kind.needs_equality)

    @property
    def lets_tuples_wait(self) -> bool:
        """True if tuples may wait between two calls, so that deadlines matter."""
        return self.kind is not ResidentJoin

    def make(self, relation: Relation, case: Case, memory: int | str, **more: Any) -> SemiStreamJoin:
        options = {**self.options, **more}
        return self.kind(relation, case.stream_schema, on=case.on, how=case.how, memory=memory, **options)

    def least_memory(self, relation: Relation, case: Case, **more: Any) -> int:
        return least_memory(lambda memory: self.make(relation, case, memory, **more))


def least_memory(make: Callable[[int], SemiStreamJoin]) -> int:
    """The least budget that a join says it needs."""
    with pytest.raises(BudgetError) as refused:
        make(1)
    assert refused.value.least_bytes is not None
    return refused.value.least_bytes


def self_tuning(*arguments: Any, tick_s: float, **options: Any) -> AdaptiveMeshJoin:
    """An AdaptiveMeshJoin on a clock of its own, so that two runs measure the same rates."""
    return AdaptiveMeshJoin(*arguments, **{"clock": TickingClock(tick_s), **options})


class RestlessMeshJoin(AdaptiveMeshJoin):
    """Takes another b and w, drawn at random, for each iteration."""

    def __init__(self, *arguments: Any, seed: int, **options: Any) -> None:
        self._draw = random.Random(seed)
        super().__init__(*arguments, **{"clock": TickingClock(1e-3), **options})

    def _next_parameters(self) -> MeshParameters:
        pages = self._draw.randint(1, max(self.relation.num_pages, 1))
        return MeshParameters(pages, self._draw.choice([1, 2, 7, 100, 10**9]))


class TrimmingSweepJoin(SweepJoin):
    """Lets tuples leave before their level whenever room is needed, however few they are."""

    def _worth_trimming(self, *_: int) -> bool:
        return self._pace.trims


class RestlessEngineJoin(EngineJoin):
    """Takes a cache and lets it go again at random."""

    wraps = TrimmingSweepJoin

    def __init__(self, *arguments: Any, seed: int, **options: Any) -> None:
        self._draw = random.Random(seed)
        super().__init__(*arguments, **options)

    def _best_share(self, *_: object) -> tuple[float, float]:
        return self._draw.choice([0.0, 0.1, 0.5]), 2.0


OPERATORS = [
    pytest.param(Maker(EngineJoin), id="engine"),
    pytest.param(Maker(MeshJoin), id="mesh"),
    pytest.param(Maker(MeshJoin, {"rows_per_step": 3, "pages_per_step": 2}), id="mesh-w3-b2"),
    pytest.param(Maker(MeshJoin, {"disk": "buffered", "pages_per_step": 1}), id="mesh-buffered-b1"),
    pytest.param(Maker(self_tuning, {"tick_s": 1e-3}), id="adaptive_mesh-slow-stream"),
    pytest.param(Maker(self_tuning, {"tick_s": 1e-9}), id="adaptive_mesh-fast-stream"),
    pytest.param(
        Maker(self_tuning, {"tick_s": 1, "rows_per_step": 3, "pages_per_step": 2}),
        id="adaptive_mesh-w3-b2",
    ),
    pytest.param(Maker(RestlessMeshJoin, {"seed": 5}), id="adaptive_mesh-restless"),
    pytest.param(Maker(SweepJoin), id="sweep"),
    pytest.param(Maker(FrontStage), id="front-mesh"),
    pytest.param(Maker(FrontStage, {"wraps": TrimmingSweepJoin, "cache_share": 0.6}), id="front-sweep"),
    pytest.param(Maker(FrontStage, {"wraps": HybridJoin, "cache_share": 0.5}), id="front-hybrid"),
    pytest.param(Maker(FrontStage, {"wraps": SemiStreamingIndexJoin, "cache_share": 0.5}), id="front-index"),
    pytest.param(Maker(HybridJoin), id="hybrid"),
    pytest.param(Maker(HybridJoin, {"pages_per_step": 1, "seek_bytes": 0}), id="hybrid-p1"),
    pytest.param(Maker(HybridJoin, {"disk": "buffered", "pages_per_step": 3, "seek_bytes": 2048}), id="hybrid-p3"),
    pytest.param(Maker(SemiStreamingIndexJoin), id="index"),
    pytest.param(
        Maker(SemiStreamingIndexJoin, {"input_threshold": 5, "stream_threshold": 11}),
        id="index-ib5-sb11",
    ),
    pytest.param(
        Maker(
            SemiStreamingIndexJoin,
            {"input_threshold": 9, "pages_per_read": 2, "plan": "greedy", "cache_policy": "lru"},
        ),
        id="index-greedy-lru",
    ),
    pytest.param(Maker(IndexNestedLoopJoin), id="nested_loop"),
    pytest.param(Maker(ResidentJoin), id="resident"),
]

RESTLESS = pytest.param(Maker(RestlessEngineJoin, {"seed": 3}), id="engine-restless")
"""For what must hold however memory is split: its split is another one each time."""

every_operator = pytest.mark.parametrize("maker", OPERATORS)
every_waiting_operator = pytest.mark.parametrize("maker", [p for p in OPERATORS if p.values[0].lets_tuples_wait])
every_range_operator = pytest.mark.parametrize("maker", [p for p in OPERATORS if p.values[0].takes_ranges])


def every_operator_with(
    *, examples: int, ranges: bool = False, **inputs: st.SearchStrategy[Any]
) -> Callable[[Callable[..., None]], Any]:
    """Run a check of a maker and some inputs, drawn by Hypothesis, on every operator, or on all that take ``ranges``.

    All operators get the same inputs: to draw them, to build a relation and to ask the oracle takes far longer than a
    small join. To try one operator alone, name it: ``OPERATOR=sweep pytest ...``.
    """
    named = {str(p.id): p.values[0] for p in [*OPERATORS, RESTLESS]}
    makers = [
        (name, maker)
        for name, maker in named.items()
        if os.environ.get("OPERATOR", name) == name and (maker.takes_ranges or not ranges)
    ]

    def decorate(check: Callable[..., None]) -> Any:
        @settings(max_examples=examples, deadline=None, suppress_health_check=list(HealthCheck))
        @given(**inputs)
        def test(**drawn: Any) -> None:
            for name, maker in makers:
                try:
                    check(maker, **drawn)
                except BaseException as error:
                    error.add_note(f"The operator is {name}.")
                    raise

        test.__name__ = check.__name__  # by which Hypothesis remembers what has failed
        test.__doc__ = check.__doc__
        return test

    return decorate
