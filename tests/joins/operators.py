"""The one list of operators: every check of the conformance suite runs on each of them."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest

from semistream import Relation, SemiStreamJoin
from semistream.errors import BudgetError
from semistream.joins import AdaptiveMeshJoin, HybridJoin, IndexNestedLoopJoin, MeshJoin
from semistream.joins.front_stage import FrontStage
from semistream.joins.mesh_tuner import MeshParameters
from semistream.joins.sweep import SweepJoin
from tests.joins.cases import Case
from tests.joins.clocks import TickingClock


@dataclass(frozen=True)
class Maker:
    """Makes operators of one kind, with the options that it is to be tried with."""

    kind: Callable[..., SemiStreamJoin]
    options: dict[str, Any] = field(default_factory=dict)

    def make(self, relation: Relation, case: Case, memory: int | str) -> SemiStreamJoin:
        return self.kind(relation, case.stream_schema, on=case.on, how=case.how, memory=memory, **self.options)

    def least_memory(self, relation: Relation, case: Case) -> int:
        with pytest.raises(BudgetError) as refused:
            self.make(relation, case, 1)
        assert refused.value.least_bytes is not None
        return refused.value.least_bytes


def self_tuning(*arguments: Any, tick_s: float, **options: Any) -> AdaptiveMeshJoin:
    """An AdaptiveMeshJoin on a clock of its own, so that two runs measure the same rates."""
    return AdaptiveMeshJoin(*arguments, clock=TickingClock(tick_s), **options)


class RestlessMeshJoin(AdaptiveMeshJoin):
    """Takes another b and w, drawn at random, for each iteration."""

    def __init__(self, *arguments: Any, seed: int, **options: Any) -> None:
        super().__init__(*arguments, clock=TickingClock(1e-3), **options)
        self._draw = random.Random(seed)

    def _next_parameters(self) -> MeshParameters:
        pages = self._draw.randint(1, max(self.relation.num_pages, 1))
        return MeshParameters(pages, self._draw.choice([1, 2, 7, 100, 10**9]))


OPERATORS = [
    pytest.param(Maker(MeshJoin), id="mesh"),
    pytest.param(Maker(MeshJoin, {"rows_per_step": 3, "pages_per_step": 2}), id="mesh-w3-b2"),
    pytest.param(Maker(MeshJoin, {"disk": "buffered", "pages_per_step": 1}), id="mesh-buffered-b1"),
    pytest.param(Maker(self_tuning, {"tick_s": 1e-3}), id="adaptive_mesh-slow-stream"),
    pytest.param(Maker(self_tuning, {"tick_s": 1e-9}), id="adaptive_mesh-fast-stream"),
    pytest.param(Maker(self_tuning, {"tick_s": 1, "rows_per_step": 3, "pages_per_step": 2}), id="adaptive_mesh-w3-b2"),
    pytest.param(Maker(RestlessMeshJoin, {"seed": 5}), id="adaptive_mesh-restless"),
    pytest.param(Maker(SweepJoin), id="sweep"),
    pytest.param(Maker(FrontStage), id="front-mesh"),
    pytest.param(Maker(FrontStage, {"wraps": SweepJoin, "cache_share": 0.6}), id="front-sweep"),
    pytest.param(Maker(FrontStage, {"wraps": HybridJoin, "cache_share": 0.5}), id="front-hybrid"),
    pytest.param(Maker(HybridJoin), id="hybrid"),
    pytest.param(Maker(HybridJoin, {"pages_per_step": 1, "seek_bytes": 0}), id="hybrid-p1"),
    pytest.param(Maker(HybridJoin, {"disk": "buffered", "pages_per_step": 3, "seek_bytes": 2048}), id="hybrid-p3"),
    pytest.param(Maker(IndexNestedLoopJoin), id="nested_loop"),
]
