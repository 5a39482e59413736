"""What a front stage would make of a memory, without being made: a cache, and the join behind it in the rest."""

from __future__ import annotations

import pyarrow as pa

from semistream.budget import MemoryBudget
from semistream.errors import BudgetError
from semistream.joins.base import SemiStreamJoin
from semistream.joins.cache_shape import CacheShape
from semistream.joins.emitter import Emitter
from semistream.joins.front_memory import FrontMemory
from semistream.joins.spec import JoinSpec
from semistream.relation import AnyRelation
from semistream.relation.page_layout import ColumnLayout
from semistream.tuning.front_model import FrontedModel
from semistream.tuning.work import OperatorModel

CACHE = "tuple cache"
"""What the bytes of the cache are charged as."""
LEAST_FRAMES = 2
"""With fewer there is no cache."""
_KEPT_FULL = 0.95  # of the room of a cache, that is in use when it is full
_GUESSED_BYTES = 24  # of a string or nested value of R, more than the least that it counts for


def fronted_model(
    name: str,
    wraps: type[SemiStreamJoin],
    relation: AnyRelation,
    spec: JoinSpec,
    memory: MemoryBudget,
    sample: pa.RecordBatch | None,
    cache_share: float,
) -> OperatorModel:
    """The model of a join behind a cache with as many rows as its share of the memory has room for."""
    free = memory.free
    behind = _model_behind(name, wraps, relation, spec, memory, sample, free - int(free * cache_share))
    layout = FrontMemory.of(memory.free, spec)
    if layout is None:
        return behind
    columns = cached_columns(spec)
    shape = CacheShape.of(columns, layout.cache_bytes)
    row_bytes = shape.least_row + sum(_GUESSED_BYTES for column in columns if not column.width)
    if shape.frames < LEAST_FRAMES:
        return behind
    memory.charge(CACHE, layout.held_bytes)
    cached_rows = _KEPT_FULL * shape.rows(row_bytes)
    return FrontedModel(cached_rows, behind, batch_rows=Emitter.capacity(spec, layout))


def _model_behind(
    name: str,
    wraps: type[SemiStreamJoin],
    relation: AnyRelation,
    spec: JoinSpec,
    memory: MemoryBudget,
    sample: pa.RecordBatch | None,
    nbytes: int,
) -> OperatorModel:
    """The wrapped join in ``nbytes`` of the memory, or in the least that it needs."""
    try:
        return wraps.model(relation, spec, memory.part(max(nbytes, 1)), sample)
    except BudgetError as error:
        if error.least_bytes is None or error.least_bytes <= nbytes:
            raise
        memory.clear()
        memory.require(error.least_bytes, purpose=f"the {name} join with {relation.path}")
        return wraps.model(relation, spec, memory.part(error.least_bytes), sample)


def cached_columns(spec: JoinSpec) -> tuple[ColumnLayout, ...]:
    """The columns of R that results are made of, or checked by."""
    check = spec.condition.check
    return tuple(dict.fromkeys([*spec.payload, *(check.relation_columns if check else ())]))
