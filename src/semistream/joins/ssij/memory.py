"""Memory layout of SSIJ: the fixed parts, and the pool shared by stream tuples and cached pages."""

from __future__ import annotations

from dataclasses import dataclass, replace

from semistream.budget import MemoryBudget
from semistream.joins.condition.spec import JoinSpec
from semistream.joins.mesh.window import StreamWindow
from semistream.joins.parts.memory_split import LEAST_SLOTS, MemorySplit, admit_row_bytes
from semistream.joins.ssij.input_buffer import InputBuffer
from semistream.joins.ssij.page_cache import PageCache
from semistream.relation import PageSlots, Relation
from semistream.relation.read.read_plan import plan_memory_bytes

RUN_BUFFERS = 3  # sequences held: the one being joined, the next, and one being read

_MOST_INPUT = 250_000  # SSIJ, Table II
_MOST_STREAM = 1_000_000
_MOST_STREAM_IF_SCARCE = 400_000
_SCARCE = 0.01  # share of R up to which memory is scarce
_MOST_PACKET_BYTES = 32 << 20
_PLANNED_PAGE_BYTES = plan_memory_bytes(1) // 2 + 2 * 8  # plus the wanted pages, before and after planning
_LEAST_PLANNED = 16
_FLAG_BYTES = 1  # of a tuple in the stream buffer: its matched flag


@dataclass(frozen=True)
class IndexMemory:
    """The parts of SSIJ's memory (IV-A); all but ``pool`` are charged to the budget.

    The ``pool`` is shared by cached pages and the tuples in the input and stream buffers, each with its own bytes and
    ``tuple_bytes`` of index. Up to ``input_rows`` (IB_thresh) tuples are looked up at once. ``stream_rows`` (SB_thresh)
    waiting tuples start a join phase, which plans up to ``planned_pages`` at once. ``stream_slots`` bounds the tuples
    in the stream buffer, and ``packet_bytes`` the bytes moved there together.
    """

    split: MemorySplit
    pool: int
    tuple_bytes: int
    input_rows: int
    stream_rows: int
    stream_slots: int
    planned_pages: int
    packet_bytes: int

    @classmethod
    def of(
        cls,
        budget: MemoryBudget,
        relation: Relation,
        spec: JoinSpec,
        *,
        input_threshold: int | None,
        stream_threshold: int | None,
        pages_per_read: int | None,
    ) -> IndexMemory:
        """Lay out ``budget``, which must be unused.

        Thresholds that are None are derived from it: the stream buffer may take half of the pool and the input buffer
        an eighth, up to the values of SSIJ's Table II.
        """
        pages = relation.num_pages
        single = spec.condition.single_codes
        tuple_bytes = StreamWindow.index_bytes(1, single_codes=single) - _FLAG_BYTES
        input_bytes = InputBuffer.index_bytes(1, single_codes=single)
        slot_bytes = input_bytes + tuple_bytes + _FLAG_BYTES
        # `PageSlots` needs temporary memory, which the cache's arrays use afterwards.
        page_bytes = max(PageSlots.memory_bytes(pages), 4 * pages + PageCache.page_index_bytes(pages))
        split = MemorySplit.of(
            budget,
            relation,
            spec,
            purpose=f"a semi-streaming index join with {relation.path}",
            index_bytes=relation.table.memory_bytes + page_bytes + _LEAST_PLANNED * _PLANNED_PAGE_BYTES,
            slots_bytes=lambda slots: slots * slot_bytes,
            run_buffers=RUN_BUFFERS,
            run_pages=pages_per_read,
        )
        budget.recharge("stream index", 0)  # charged per tuple instead
        pool = budget.free - split.staging_bytes
        row_bytes = tuple_bytes + spec.expected_row_bytes
        input_cost = row_bytes + input_bytes + admit_row_bytes(spec)
        most_input = max(pool // 2 // input_cost, 1)
        input_rows = input_threshold or min(_MOST_INPUT, max(pool // 8 // input_cost, LEAST_SLOTS))
        input_rows = min(input_rows, most_input)
        most = _MOST_STREAM_IF_SCARCE if budget.limit <= _SCARCE * relation.nbytes else _MOST_STREAM
        stream_rows = stream_threshold or max(min(most, pool // 2 // row_bytes), 1)
        stream_slots = min(stream_rows + input_rows, pool // (tuple_bytes + spec.row_bytes) + 1)
        planned = min(pages, _LEAST_PLANNED + pool // 16 // _PLANNED_PAGE_BYTES)
        admit_rows = min(split.admit_rows, input_rows)
        budget.charge("page index", max(planned - _LEAST_PLANNED, 0) * _PLANNED_PAGE_BYTES)
        budget.charge(
            "stream index",
            input_rows * input_bytes + admit_rows * admit_row_bytes(spec) + stream_slots * _FLAG_BYTES,
        )
        return cls(
            split=replace(split, admit_rows=admit_rows),
            pool=budget.free - split.staging_bytes,
            tuple_bytes=tuple_bytes,
            input_rows=input_rows,
            stream_rows=stream_rows,
            stream_slots=stream_slots,
            planned_pages=planned,
            packet_bytes=min(split.staging_bytes // 2, _MOST_PACKET_BYTES),
        )

    def waiting_bytes(self, row_bytes: int) -> int:
        """Return the bytes of the pool that the stream takes as a join phase begins, with tuples of ``row_bytes``."""
        return min(self.stream_rows + self.input_rows, self.stream_slots) * (self.tuple_bytes + row_bytes)
