"""How SSIJ lays out its memory: what is fixed, and the pool that stream and cached pages share."""

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

RUN_BUFFERS = 3  # sequences: the one that is joined, the next, and one that is being read

_MOST_INPUT = 250_000  # SSIJ, Table II
_MOST_STREAM = 1_000_000
_MOST_STREAM_IF_SCARCE = 400_000
_SCARCE = 0.01  # of R
_MOST_PACKET_BYTES = 32 << 20
_PLANNED_PAGE_BYTES = plan_memory_bytes(1) // 2 + 2 * 8  # and the wanted pages, before and after
_LEAST_PLANNED = 16
_FLAG_BYTES = 1  # of a tuple in the stream buffer: whether it met a partner


@dataclass(frozen=True)
class IndexMemory:
    """The parts of SSIJ's memory (IV-A), of which all but ``pool`` are charged.

    ``pool`` bytes are for whoever needs them: tuples in the input buffer and in the stream buffer, each with its bytes
    and ``tuple_bytes`` for finding it, and cached pages. Up to ``input_rows`` (IB_thresh) are looked up at once, and
    ``stream_rows`` (SB_thresh) that wait start a join phase, which plans for up to ``planned_pages`` at once.
    ``stream_slots`` bounds the tuples in the stream buffer; ``packet_bytes`` those that are moved there together.
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
        """Lay out ``budget``, of which nothing may be in use. What is not given is derived from it: the stream buffer
        may come to take half of the pool, the input buffer an eighth, up to the values of SSIJ's Table II.
        """
        pages = relation.num_pages
        single = spec.condition.single_codes
        tuple_bytes = StreamWindow.index_bytes(1, single_codes=single) - _FLAG_BYTES
        input_bytes = InputBuffer.index_bytes(1, single_codes=single)
        slot_bytes = input_bytes + tuple_bytes + _FLAG_BYTES
        # Numbering the places of pages takes memory once, which then serves the cache's arrays.
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
        budget.recharge("stream index", 0)  # it is charged by the tuple
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
        """What the stream takes of the pool when a join phase begins, if a tuple has so many bytes."""
        return min(self.stream_rows + self.input_rows, self.stream_slots) * (self.tuple_bytes + row_bytes)
