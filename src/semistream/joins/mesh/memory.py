"""What MESHJOIN holds in memory for given b and w: MESH (1), in the bytes of this implementation.

Moves the bytes of a running MESHJOIN between page buffers and window as b and w change.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from semistream.budget import MemoryBudget
from semistream.joins.condition.run_codes import COMPUTED_ROW_BYTES
from semistream.joins.condition.spec import JoinSpec
from semistream.joins.mesh.scan import ScanSource
from semistream.joins.mesh.window import StreamWindow
from semistream.joins.parts.intake import Intake
from semistream.joins.parts.memory_split import (
    LEAST_SLOTS,
    MemorySplit,
    admit_row_bytes,
    most_run_rows,
    page_overhead,
)
from semistream.relation import AnyRelation, ParquetRelation, RunReader

_FEW_PACKETS = 8


@dataclass(frozen=True)
class RunCost:
    """Bytes that runs of pages take: so many ``buffers`` of them, and what is noted of them or computed from them.

    ``largest`` is the largest page there is.
    """

    relation: AnyRelation
    buffers: int
    largest: int
    computes_codes: bool

    def __call__(self, run_bytes: int, run_pages: int) -> int:
        """Bytes for runs of up to ``run_bytes`` and ``run_pages``."""
        noted = self.buffers * run_pages * page_overhead(self.relation)
        codes = most_run_rows(self.relation, run_bytes) * COMPUTED_ROW_BYTES + self.largest
        buffers = RunReader.memory_bytes(run_bytes, self.buffers, self.relation.segments)
        return buffers + noted + (codes if self.computes_codes else 0)


@dataclass(frozen=True)
class MeshMemory:
    """The bytes that b and w ask for, and the ``pool`` they must fit.

    ===========================  ==========================================================================
    MESH (1)                     here
    ===========================  ==========================================================================
    M_max                        ``pool``: the budget less what b and w do not change (index of R, matches, output)
    b * v_P                      `buffer_bytes`: several buffers of b pages, as the reader reads ahead (of one page, if
                                 pages come ``one_by_one``: there b does not change the memory)
    w * v_S                      `admit_bytes`: the arrays of tuples that are admitted at once
    w * N_R / b * sizeof(ptr)    `window_bytes`: a slot of the window for each tuple
    w * f * N_R / b * v_S        ``tuple_bytes`` for each of these tuples
    ===========================  ==========================================================================

    ``num_pages`` are those of a scan. ``page_bytes`` is what all but one page in a hundred have at most,
    ``widest_page`` what all have; ``run_cost`` gives the bytes for runs of so many bytes and pages. A stream tuple of
    ``widest_tuple`` must find room whatever b and w are, or the stream would stop at it.
    """

    pool: int
    num_pages: int
    page_bytes: int
    widest_page: int
    run_cost: Callable[[int, int], int]
    slot_bytes: int
    tuple_bytes: int
    widest_tuple: int
    admit_row_bytes: int
    admit_rows: int
    one_by_one: bool = False

    @classmethod
    def of(
        cls,
        budget: MemoryBudget,
        relation: AnyRelation,
        spec: JoinSpec,
        split: MemorySplit,
        source: ScanSource,
        *,
        num_pages: int,
    ) -> MeshMemory:
        """The memory of a join whose budget was split, and charged, by ``split`` for scans of ``source``."""
        changing = sum(budget.by_name.get(name, 0) for name in ("page buffers", "stream index"))
        largest = max(relation.largest_page, source.largest_page)
        return cls(
            pool=budget.free + changing - split.staging_bytes,
            num_pages=num_pages,
            page_bytes=_ordinary_page(relation),
            widest_page=max(largest, 1),
            run_cost=RunCost(relation, source.buffers, largest, spec.condition.computes_codes),
            slot_bytes=StreamWindow.index_bytes(1, single_codes=spec.condition.single_codes),
            tuple_bytes=spec.expected_row_bytes,
            widest_tuple=min(split.payload_bytes, split.staging_bytes - split.widest_row),
            admit_row_bytes=admit_row_bytes(spec),
            admit_rows=split.admit_rows,
            one_by_one=isinstance(relation, ParquetRelation),
        )

    def steps(self, pages: int) -> int:
        """Loops of ``pages`` in which a tuple meets all of R: N_R / b."""
        return -(-self.num_pages // pages)

    def loops(self, pages: int) -> int:
        """How many loops of b = ``pages`` and w tuples to do at once, as one iteration with one packet.

        The results of each iteration are taken from all packets, so that a scan costs the square of their number in
        calls. With sqrt(N_R) / 2 packets this is a call for four pages, however large R is.
        """
        most_packets = max(math.isqrt(self.num_pages) // 2, _FEW_PACKETS)
        return max(-(-self.steps(pages) // most_packets), 1)

    @property
    def fixed_pages(self) -> int | None:
        """b where pages come one by one, and None where it is to be chosen.

        There a larger b takes no more memory, but makes iterations longer: it is the least with few packets.
        """
        return self.loops(1) if self.one_by_one else None

    def slots(self, pages: int, rows: int) -> int:
        """Tuples that the window holds: w * N_R / b, and those of loops that are done at once with one of these."""
        return max(rows * self._loops_held(pages), LEAST_SLOTS)

    def run_bytes(self, pages: int) -> int:
        """Bytes of a buffer for a loop of ``pages``."""
        return max(self._run_pages(pages) * self.page_bytes, self.widest_page)

    def buffer_bytes(self, pages: int) -> int:
        """Bytes of all buffers for loops of ``pages``."""
        return self.run_cost(self.run_bytes(pages), self._run_pages(pages))

    def admit_bytes(self, rows: int) -> int:
        """Bytes that it takes to admit ``rows``, which is done in several pieces if they are many."""
        return min(rows, self.admit_rows) * self.admit_row_bytes

    def window_bytes(self, slots: int) -> int:
        """Bytes of the window's slots, without the tuples in them."""
        return slots * self.slot_bytes

    def total(self, pages: int, rows: int) -> int:
        """M of MESH (1)."""
        return self._held(pages, rows) + self.slots(pages, rows) * self.tuple_bytes

    def fits(self, pages: int, rows: int) -> bool:
        """Whether b = ``pages`` and w = ``rows`` fit the pool."""
        return self.total(pages, rows) <= self.pool and self._held(pages, rows) + self.widest_tuple <= self.pool

    def most_rows(self, pages: int) -> float:
        """The greatest w that fits with b = ``pages``.

        Below 1, it says in how many iterations the window has room for one tuple more; zero or less, that none fits.
        """
        room = self.pool - self.buffer_bytes(pages)
        tuples = self._rows_in(room, pages, self.slot_bytes + self.tuple_bytes)
        return min(tuples, self._rows_in(room - self.widest_tuple, pages, self.slot_bytes))

    def _run_pages(self, pages: int) -> int:
        """How many pages of a loop are read at once."""
        return 1 if self.one_by_one else pages

    def _held(self, pages: int, rows: int) -> int:
        """All but the tuples."""
        window = self.window_bytes(self.slots(pages, rows))
        return self.buffer_bytes(pages) + self.admit_bytes(rows * self.loops(pages)) + window

    def _loops_held(self, pages: int) -> int:
        """Loops whose tuples are in the window together, at most."""
        return self.steps(pages) + self.loops(pages) - 1

    def _rows_in(self, room: int, pages: int, slot_bytes: int) -> float:
        """The greatest w of which all slots fit, with the bytes that it takes to admit the tuples."""
        held, loops = self._loops_held(pages), self.loops(pages)
        rows = room / (held * slot_bytes + loops * self.admit_row_bytes)
        if rows * loops > self.admit_rows:
            rows = (room - self.admit_bytes(self.admit_rows)) / (held * slot_bytes)
        if rows * held < LEAST_SLOTS:
            rows = min((room - LEAST_SLOTS * slot_bytes) / (loops * self.admit_row_bytes), LEAST_SLOTS / held)
        return rows


def _ordinary_page(relation: AnyRelation) -> int:
    """Bytes that all but one page in a hundred have at most; those of plain Parquet are not known before."""
    if isinstance(relation, ParquetRelation):
        return max(relation.largest_page, 1)
    nbytes = relation.table.nbytes
    return int(np.quantile(nbytes, 0.99, method="higher")) if nbytes.size else 1


_BUFFERS, _WINDOW = "page buffers", "stream index"
_SLACK = 1.25  # how many times the slots needed a window may have before it is made smaller


class MeshAllocation:
    """Gives page buffers and window the sizes that b and w ask for, as far as the budget allows at the moment.

    Buffers and slots are charged while they exist, so that the budget shows what is in use. What is held cannot be
    taken away: a tuple stays until it has met all of R, a buffer until its run is joined. So a change may take a scan
    to be complete, and each `settle` brings it further. Meanwhile, and for ever if b and w ask for more than the
    budget, an iteration reads its b pages in shorter runs and the window has fewer slots; nothing else depends on it.

    A scan whose pages come one by one has buffers of a fixed size, and no ``reader`` that could change them.

    After each `settle` there is room for the widest tuple that is let in, once the window is empty.
    """

    def __init__(
        self, memory: MeshMemory, budget: MemoryBudget, reader: RunReader | None, window: StreamWindow, intake: Intake
    ) -> None:
        self._memory = memory
        self._budget = budget
        self._reader = reader
        self._window = window
        self._intake = intake

    @property
    def memory(self) -> MeshMemory:
        """The memory model, with the tuples as wide as those in the window are."""
        if self._window.held == 0:
            return self._memory
        return replace(self._memory, tuple_bytes=-(-self._intake.held_bytes // self._window.held))

    def settle(self, pages: int, rows: int, *, at_once: int, admitted: int) -> None:
        """Go as far as possible towards the buffers and slots for b = ``pages`` and w = ``rows``.

        ``at_once`` tuples may enter in this iteration, of which ``admitted`` are in the window already.
        """
        memory, reader, window = self.memory, self._reader, self._window
        charged = self._budget.by_name
        held = max(window.held, LEAST_SLOTS)
        room = memory.pool - memory.window_bytes(held) - max(self._intake.held_bytes, memory.widest_tuple)
        # Buffers in use keep their size, whatever is wanted.
        least_buffers = memory.buffer_bytes(1) if reader is None or reader.idle else charged[_BUFFERS]
        admit_rows = max(min(at_once, memory.admit_rows, (room - least_buffers) // memory.admit_row_bytes), 1)
        admit_bytes = memory.admit_bytes(admit_rows)
        run_pages = pages
        while run_pages > 1 and memory.buffer_bytes(run_pages) > room - admit_bytes:
            run_pages //= 2

        run_bytes, buffers = memory.run_bytes(run_pages), memory.buffer_bytes(run_pages)
        if reader is not None and run_bytes < reader.run_bytes:
            reader.resize(run_bytes)
        if reader is not None and not reader.resized:
            buffers = max(buffers, charged[_BUFFERS])
        needed = max(memory.slots(pages, rows), window.held + max(at_once - admitted, 0))
        slots = self._slots_for(needed, memory, memory.pool - buffers - admit_bytes)
        index = memory.window_bytes(slots) + admit_bytes

        if slots < window.slots:
            window.resize(slots)
        self._budget.recharge(_WINDOW, min(index, charged[_WINDOW]))
        self._budget.recharge(_BUFFERS, buffers)
        if reader is not None and run_bytes > reader.run_bytes:
            reader.resize(run_bytes)
        self._budget.recharge(_WINDOW, index)
        if slots > window.slots:
            window.resize(slots)
        self._intake.resize(admit_rows=admit_rows, payload_bytes=memory.pool - buffers - index)

    def _slots_for(self, needed: int, memory: MeshMemory, room: int) -> int:
        """How many slots to have when ``needed`` are wanted and ``room`` is there for slots and tuples."""
        held, slot = self._window.held, memory.window_bytes(1)
        expected = (room - self._intake.held_bytes + held * memory.tuple_bytes) // (slot + memory.tuple_bytes)
        most = min(expected, (room - memory.widest_tuple) // slot)
        slots = max(min(needed, most), held, LEAST_SLOTS)
        kept = self._window.slots
        return kept if slots <= kept <= min(_SLACK * slots, most) else slots
