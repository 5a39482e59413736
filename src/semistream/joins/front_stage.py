"""FrontStage: a cache of R's hottest tuples in front of any operator."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, ClassVar, Unpack

import numpy as np
import pyarrow as pa

from semistream.errors import BudgetError, InvalidArgument
from semistream.joins.base import JoinArguments, Results, SemiStreamJoin
from semistream.joins.emitter import Emitter
from semistream.joins.hot_keys import HotKeys
from semistream.joins.mesh import MeshJoin
from semistream.joins.row_sizes import row_sizes
from semistream.joins.sorted_rows import SortedRows
from semistream.joins.tuple_cache import TupleCache
from semistream.kernels.types import Int32s
from semistream.relation import DiskCounts, PageRun, Relation

_CHUNK_ROWS = 1 << 16
_CHUNK_ROW_BYTES = 64  # a tuple's code, its place in the order, its pair with a cached row, and flags
_LEAST_CHUNK = 64
_BATCH_BYTES = 1 << 20
_LEAST_BATCH = 1 << 13
_WAITING_SHARE = 8  # rows that wait for the cache take one part in so many of it
_AGED_AFTER = 8  # stream tuples for each cached row


class FrontStage(SemiStreamJoin):
    """The generic front stage (FRONT 3): stream tuples with hot keys are joined at once, the others by another join."""

    name = "front_stage"
    wraps: ClassVar[type[SemiStreamJoin]] = MeshJoin

    def __init__(
        self,
        relation: Relation,
        stream_schema: pa.Schema,
        *,
        wraps: type[SemiStreamJoin] | None = None,
        cache_share: float = 0.25,
        options: Mapping[str, Any] | None = None,
        **arguments: Unpack[JoinArguments],
    ) -> None:
        super().__init__(relation, stream_schema, **arguments)
        if not 0 <= cache_share <= 0.9:
            raise InvalidArgument(f"cache_share is {cache_share}; give a share of the memory from 0 to 0.9.")
        self.cache_share = cache_share
        self._inner_arguments = {**arguments, **(options or {}), "disk": self._disk}
        self._wraps = wraps or type(self).wraps
        self._arrange(stream_schema)

    def _arrange(self, stream_schema: pa.Schema) -> None:
        """Split the memory between the wrapped join and the cache, which gets less, or nothing, if it is scarce."""
        share = int(self.budget.limit * self.cache_share)
        self._inner = self._make_inner(stream_schema, self.budget.limit - share)
        self._arrange_front(self.budget.free)

    def _make_inner(self, stream_schema: pa.Schema, nbytes: int) -> SemiStreamJoin:
        part = self.budget.part(max(nbytes, 1))
        try:
            return self._wraps(self.relation, stream_schema, **{**self._inner_arguments, "memory": part})
        except BudgetError as error:
            if error.least_bytes is None or error.least_bytes > self.budget.limit:
                raise
            part.resize(error.least_bytes)
            return self._wraps(self.relation, stream_schema, **{**self._inner_arguments, "memory": part})
