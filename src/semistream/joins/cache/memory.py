"""How a front stage splits its share of the budget.

What a front stage would make of a memory, without being made: a cache, and the join behind it in the rest.
"""

from __future__ import annotations

from dataclasses import dataclass

from semistream.budget import MemoryBudget
from semistream.costs.work import OperatorModel
from semistream.errors import BudgetError
from semistream.joins.base import SemiStreamJoin
from semistream.joins.cache.batch_rows import BatchRows
from semistream.joins.cache.cost_model import FrontedModel
from semistream.joins.cache.index import CacheShape, ProbeRoom
from semistream.joins.condition.spec import JoinSpec
from semistream.joins.join_facts import JoinFacts
from semistream.joins.parts.emitter import Emitter
from semistream.kernels.array_types import Int64s
from semistream.relation.format.page_layout import ColumnLayout
from semistream.relation.format.row_sizes import is_regular

_PIECE_ROWS = 1 << 12  # tuples looked up at once: their codes and pairs should stay in the processor's cache
_PIECE_ROW_BYTES = 8 + 1 + 1  # a tuple's code, whether it can match, and whether it does
_OUTCOME_BYTES = 1 + 8 + 1  # if more than pairs come out of it: whether it is answered, its row, whether it matches
_CHECKED_BYTES = 8  # if pairs are checked: of each that passes
_LEAST_PIECE = 32
_MISSED_ROWS = 1 << 17  # passed on at once
_BATCH_BYTES = 1 << 20
_LEAST_STAGING = 1 << 13
_PIECE, _STAGING, _COUNTERS, _CHECKS = 12, 5, 12, 8  # parts of all that they are one of
_WAITING, _COLLECTED = 8, 3  # parts that rows on their way to the cache get one of: those of a pass, if it takes one


@dataclass(frozen=True)
class FrontMemory:
    """The parts, in bytes: for a piece of a batch, results, checks, rows that wait for the cache, and the cache.

    Up to ``piece_rows`` are looked up at once, with all that it takes in ``piece_bytes``. What they find is staged in
    ``staging_bytes``. When it has been given out, up to ``missed_rows`` are copied there, to be passed on.
    """

    piece_rows: int
    piece_bytes: int
    missed_rows: int
    staging_bytes: int
    check_bytes: int
    waiting_bytes: int
    counter_bits: int
    cache_bytes: int
    row_bytes: int | None  # of a stream tuple, if all are alike

    @classmethod
    def of(cls, nbytes: int, spec: JoinSpec) -> FrontMemory | None:
        """Split ``nbytes``; None if they are too few for anything."""
        check, stream = spec.condition.check, spec.stream_schema
        row_bytes = _PIECE_ROW_BYTES + ProbeRoom.memory_bytes(0, 1)
        row_bytes += (0 if spec.how == "inner" else _OUTCOME_BYTES) + (_CHECKED_BYTES if check else 0)
        piece_rows = min(nbytes // _PIECE // row_bytes, _PIECE_ROWS)
        staging = max(min(nbytes // _STAGING, 2 * _BATCH_BYTES), _LEAST_STAGING)
        missed_rows = max(min(staging // spec.expected_row_bytes, _MISSED_ROWS), piece_rows)
        checked = 0 if check is None or check.same_bytes else min(nbytes // _CHECKS, 2 * _BATCH_BYTES)
        counter_bits = max((nbytes // _COUNTERS).bit_length() - 1, 0)
        piece_bytes = piece_rows * row_bytes + ProbeRoom.memory_bytes(missed_rows, 0)
        rest = nbytes - piece_bytes - staging - checked - (1 << counter_bits)
        result_bytes = spec.row_bytes + sum(column.fixed_bytes for column in spec.payload)
        if piece_rows < _LEAST_PIECE or 2 * result_bytes > staging or rest <= 0:
            return None
        waiting = rest // (_COLLECTED if spec.condition.computes_codes else _WAITING)
        return cls(
            piece_rows=piece_rows,
            piece_bytes=piece_bytes,
            missed_rows=missed_rows,
            staging_bytes=staging,
            check_bytes=checked,
            waiting_bytes=waiting // 2,  # put in order when they go into the cache
            counter_bits=counter_bits,
            cache_bytes=rest - waiting,
            row_bytes=spec.row_bytes if is_regular(stream) else None,
        )

    @property
    def batch_bytes(self) -> int:
        """Bytes of a batch of results."""
        return min(self.staging_bytes, _BATCH_BYTES)

    @property
    def held_bytes(self) -> int:
        """All but results and tuples passed on, which are charged as they are made."""
        return (
            self.piece_bytes + self.check_bytes + 2 * self.waiting_bytes + (1 << self.counter_bits) + self.cache_bytes
        )

    def next_sizes(self, tuples: BatchRows, begin: int) -> Int64s:
        """Sizes of the tuples to look up next: no more than there is room to copy, unless it is a single one."""
        sizes = tuples.sizes(begin, self.piece_rows)
        if self.row_bytes is not None:
            return sizes
        return sizes[: max(int(sizes.cumsum().searchsorted(self.staging_bytes, "right")), 1)]

    def too_wide(self, row_bytes: int) -> bool:
        """Whether a stream tuple is too wide for a result or a check."""
        most = self.staging_bytes // 2
        return row_bytes > (min(most, self.check_bytes // 8) if self.check_bytes else most)

    def total(self, sizes: Int64s) -> int:
        """The bytes of tuples of such sizes."""
        return int(sizes.sum()) if self.row_bytes is None else self.row_bytes * sizes.size

    def worth_rebuilding(self, cached_bytes: int) -> int:
        """Bytes of waiting rows from which the cache, which holds so much, is rebuilt to take them in."""
        return min(cached_bytes // 8, self.waiting_bytes)


CACHE = "tuple cache"
"""What the bytes of the cache are charged as."""
LEAST_FRAMES = 2
"""With fewer there is no cache."""
_KEPT_FULL = 0.95  # of the room of a cache, that is in use when it is full
_GUESSED_BYTES = 24  # of a string or nested value of R, more than the least that it counts for


def fronted_model(
    name: str, wraps: type[SemiStreamJoin], facts: JoinFacts, memory: MemoryBudget, cache_share: float
) -> OperatorModel:
    """The model of a join behind a cache with as many rows as its share of the memory has room for."""
    spec, free = facts.spec, memory.free
    behind = _model_behind(name, wraps, facts, memory, free - int(free * cache_share))
    layout = FrontMemory.of(memory.free, spec)
    if layout is None:
        return behind
    columns = facts.once("cached columns", lambda: cached_columns(spec))
    shape = CacheShape.of(columns, layout.cache_bytes)
    row_bytes = shape.least_row + sum(_GUESSED_BYTES for column in columns if not column.width)
    if shape.frames < LEAST_FRAMES:
        return behind
    memory.charge(CACHE, layout.held_bytes)
    cached_rows = _KEPT_FULL * shape.rows(row_bytes)
    return FrontedModel(cached_rows, behind, batch_rows=Emitter.capacity(spec, layout))


def _model_behind(
    name: str, wraps: type[SemiStreamJoin], facts: JoinFacts, memory: MemoryBudget, nbytes: int
) -> OperatorModel:
    """The wrapped join in ``nbytes`` of the memory, or in the least that it needs."""
    try:
        return wraps.model(facts, memory.part(max(nbytes, 1)))
    except BudgetError as error:
        if error.least_bytes is None or error.least_bytes <= nbytes:
            raise
        memory.clear()
        memory.require(error.least_bytes, purpose=f"the {name} join with {facts.relation.path}")
        return wraps.model(facts, memory.part(error.least_bytes))


def cached_columns(spec: JoinSpec) -> tuple[ColumnLayout, ...]:
    """The columns of R that results are made of, or checked by."""
    check = spec.condition.check
    return tuple(dict.fromkeys([*spec.payload, *(check.relation_columns if check else ())]))
