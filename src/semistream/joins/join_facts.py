"""JoinFacts: one join as the cost models see it, with numbers that are worked out once."""

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
    """A join to predict: R with the columns that the join reads, its spec, and rows of the stream if there are any.

    Models ask for the same numbers in many memories: the bytes of a packed row, the order of R's pages. `once` keeps
    them, so that to predict a join in another memory takes arithmetic alone.
    """

    def __init__(self, relation: AnyRelation, spec: JoinSpec, rows: pa.RecordBatch | None = None) -> None:
        self.relation = relation
        self.spec = spec
        self.rows = rows if rows is not None and rows.num_rows else None
        self._known: dict[object, Any] = {}

    @cached_property
    def ranges(self) -> CodeRanges | None:
        """The codes that the sample's rows ask for; None without a sample."""
        return None if self.rows is None else self.spec.condition.ranges(self.rows)

    def once(self, what: object, measure: Callable[[], _Number]) -> _Number:
        """A number of this join, worked out when it is first asked for."""
        if what not in self._known:
            self._known[what] = measure()
        found: _Number = self._known[what]
        return found
