"""JoinFacts: the facts about one join that cost models need, each computed once."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import Any, TypeVar

import pyarrow as pa

from semistream.joins.condition.spec import JoinSpec
from semistream.keys import CodeRanges
from semistream.relation import AnyRelation

_Number = TypeVar("_Number")


class JoinFacts:
    """Facts about a join to predict: R with the columns the join reads, the spec, and optional sample rows of S.

    A tuner predicts one join in many memory sizes, and the models need the same numbers each time: the bytes of a
    packed row, the order of R's pages. `once` caches them, so each further prediction takes only arithmetic.
    """

    def __init__(self, relation: AnyRelation, spec: JoinSpec, rows: pa.RecordBatch | None = None) -> None:
        self.relation = relation
        self.spec = spec
        self.rows = rows if rows is not None and rows.num_rows else None
        self._known: dict[object, Any] = {}

    @cached_property
    def ranges(self) -> CodeRanges | None:
        """Code ranges that the sample rows look for; None without a sample."""
        return None if self.rows is None else self.spec.condition.ranges(self.rows)

    def once(self, what: object, measure: Callable[[], _Number]) -> _Number:
        """Return the cached number ``what``; compute it with ``measure`` on the first call."""
        if what not in self._known:
            self._known[what] = measure()
        found: _Number = self._known[what]
        return found
