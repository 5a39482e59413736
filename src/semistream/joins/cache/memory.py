"""FrontMemory: the split of a front stage's memory, and the cost model of a join behind a cache of that size."""

from __future__ import annotations

from collections.abc import Callable
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
_PIECE_ROW_BYTES = 8 + 1 + 1  # a tuple's code, and flags: can it match, does it match
_OUTCOME_BYTES = 1 + 8 + 1  # per tuple of a join other than inner: a flag if answered, its row, a flag if matched
_CHECKED_BYTES = 8  # per pair that passes the check, if pairs are checked
_LEAST_PIECE = 32
_MISSED_ROWS = 1 << 17  # most tuples passed on at once
_BATCH_BYTES = 1 << 20
_LEAST_STAGING = 1 << 13
_PIECE, _STAGING, _COUNTERS, _CHECKS = 12, 5, 12, 8  # each gets 1/n of the memory
_WAITING, _COLLECTED = 8, 3  # waiting rows get 1/8 of the rest, or 1/3 if they are collected over a whole pass


@dataclass(frozen=True)
class FrontMemory:
    """Split of a front stage's memory, in bytes: piece of a batch, results, checks, waiting rows, counters, cache.

    Up to ``piece_rows`` tuples are looked up at once, using ``piece_bytes``. Their results are staged in
    ``staging_bytes``. After the results are emitted, up to ``missed_rows`` missed tuples are copied there and passed
    on. Counters take ``2**counter_bits`` bytes.
    """

    piece_rows: int
    piece_bytes: int
    missed_rows: int
    staging_bytes: int
    check_bytes: int
    waiting_bytes: int
    counter_bits: int
    cache_bytes: int
    row_bytes: int | None  # of a stream tuple; None if sizes vary

    @classmethod
    def of(cls, nbytes: int, spec: JoinSpec) -> FrontMemory | None:
        """Split ``nbytes``; return None if they are too few for a cache."""
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
            waiting_bytes=waiting // 2,  # the other half is for sorting them on their way into the cache
            counter_bits=counter_bits,
            cache_bytes=rest - waiting,
            row_bytes=spec.row_bytes if is_regular(stream) else None,
        )

    @property
    def batch_bytes(self) -> int:
        """Most bytes of a result batch."""
        return min(self.staging_bytes, _BATCH_BYTES)

    @property
    def held_bytes(self) -> int:
        """Bytes held permanently: all except results and passed-on tuples, which are charged as they are made."""
        return (
            self.piece_bytes + self.check_bytes + 2 * self.waiting_bytes + (1 << self.counter_bits) + self.cache_bytes
        )

    def next_sizes(self, tuples: BatchRows, begin: int) -> Int64s:
        """Return the sizes of the tuples to look up next: as many as fit in the staging area, but at least one."""
        if self.row_bytes is not None:
            return tuples.sizes(begin, min(self.piece_rows, max(self.staging_bytes // self.row_bytes, 1)))
        sizes = tuples.sizes(begin, self.piece_rows)
        return sizes[: max(int(sizes.cumsum().searchsorted(self.staging_bytes, "right")), 1)]

    def too_wide(self, row_bytes: int) -> bool:
        """Return True if a stream tuple of ``row_bytes`` is too wide for a result or a check."""
        most = self.staging_bytes // 2
        return row_bytes > (min(most, self.check_bytes // 8) if self.check_bytes else most)

    def total(self, sizes: Int64s) -> int:
        """Return the total bytes of tuples of these sizes."""
        return int(sizes.sum()) if self.row_bytes is None else self.row_bytes * sizes.size

    def worth_rebuilding(self, cached_bytes: int) -> int:
        """Return the bytes of waiting rows that justify rebuilding a cache of ``cached_bytes`` to admit them."""
        return min(cached_bytes // 8, self.waiting_bytes)


CACHE = "tuple cache"
"""Name under which the cache is charged to the budget."""
LEAST_FRAMES = 2
"""Fewest page frames of a cache; with fewer, the stage runs without one."""
_KEPT_FULL = 0.95  # share of a full cache's room that rows occupy
_GUESSED_BYTES = 24  # expected size of a string or nested value of R, above the minimum that CacheShape assumes


def fronted_model(
    name: str, wraps: type[SemiStreamJoin], facts: JoinFacts, memory: MemoryBudget, cache_share: float
) -> OperatorModel:
    """Return the model of ``wraps`` behind a cache filled to ``cache_share`` of the memory, without building either."""
    spec = facts.spec
    behind = _model_behind(name, wraps, facts, memory, cache_share)
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


def behind_bytes(memory: MemoryBudget, least: int, cache_share: float, purpose: str) -> int:
    """Return the memory of the join behind a cache that gets ``cache_share`` of what the join can do without.

    A share of all of it would leave the join little more than the ``least`` it needs in a small memory: it would read
    R far more often than the cache could make up for. Raises `BudgetError` if the join alone does not fit.
    """
    memory.require(memory.used + least, purpose=purpose)
    return max(memory.free - int((memory.free - least) * cache_share), 1)


def least_bytes(attempt: Callable[[], object]) -> int:
    """Return the least memory of a join that ``attempt`` opens, or predicts, in a memory of one byte."""
    try:
        attempt()
    except BudgetError as error:
        if error.least_bytes is None:
            raise
        return error.least_bytes
    return 1


def _model_behind(
    name: str, wraps: type[SemiStreamJoin], facts: JoinFacts, memory: MemoryBudget, cache_share: float
) -> OperatorModel:
    """Return the model of the wrapped join behind a cache of ``cache_share``."""
    least = facts.once(f"least bytes of {wraps.name}", lambda: least_bytes(lambda: wraps.model(facts, MemoryBudget(1))))
    purpose = f"the {name} join with {facts.relation.path}"
    return wraps.model(facts, memory.part(behind_bytes(memory, least, cache_share, purpose)))


def cached_columns(spec: JoinSpec) -> tuple[ColumnLayout, ...]:
    """Return the columns of R that the results contain or that pair checks read."""
    check = spec.condition.check
    return tuple(dict.fromkeys([*spec.payload, *(check.relation_columns if check else ())]))
