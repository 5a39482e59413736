"""Memory of MESHJOIN for given b and w: MESH (1), in the bytes of this implementation.

`MeshMemory` computes it, and `MeshAllocation` moves bytes between page buffers and window as b and w change.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from semistream.budget import MemoryBudget
from semistream.joins.condition.spec import JoinSpec
from semistream.joins.mesh.scan import ScanSource
from semistream.joins.mesh.window import StreamWindow
from semistream.joins.parts.intake import Intake
from semistream.joins.parts.memory_split import (
    LEAST_SLOTS,
    MemorySplit,
    RunCost,
    admit_row_bytes,
)
from semistream.relation import AnyRelation, ParquetRelation, RunReader

_FEW_PACKETS = 8


@dataclass(frozen=True)
class MeshMemory:
    """The bytes that b and w need, and the ``pool`` they must fit in.

    ===========================  ==========================================================================
    MESH (1)                     here
    ===========================  ==========================================================================
    M_max                        ``pool``: the budget without the parts independent of b and w (index of R, matches,
                                 output)
    b * v_P                      `buffer_bytes`: several buffers of b pages, for reading ahead (of one page, if pages
                                 come ``one_by_one``; b then does not change the memory)
    w * v_S                      `admit_bytes`: the arrays of the tuples admitted at once
    w * N_R / b * sizeof(ptr)    `window_bytes`: a slot of the window for each tuple
    w * f * N_R / b * v_S        ``tuple_bytes`` for each of these tuples
    ===========================  ==========================================================================

    ``num_pages`` counts the pages of a scan. ``page_bytes`` bounds the size of 99% of the pages and ``widest_page``
    that of all. ``run_cost`` returns the bytes for runs of given bytes and pages. A stream tuple of ``widest_tuple``
    bytes must fit whatever b and w are, or the stream would stop at it.
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
        """Return the memory of a join whose budget ``split`` has divided and charged for scans of ``source``."""
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
        """Return the loops of ``pages`` pages in which a tuple meets all of R: N_R / b."""
        return -(-self.num_pages // pages)

    def loops(self, pages: int) -> int:
        """Return the loops of b = ``pages`` pages and w tuples to do at once, as one iteration with one packet.

        Each iteration takes results from all packets, so the calls of a scan grow with the square of the number of
        packets. With sqrt(N_R) / 2 packets, this is one call per four pages, however large R is.
        """
        most_packets = max(math.isqrt(self.num_pages) // 2, _FEW_PACKETS)
        return max(-(-self.steps(pages) // most_packets), 1)

    @property
    def fixed_pages(self) -> int | None:
        """b if pages come one by one, None if it can be chosen.

        With such pages a larger b takes no more memory but makes iterations longer, so b is the least that keeps the
        number of packets small.
        """
        return self.loops(1) if self.one_by_one else None

    def slots(self, pages: int, rows: int) -> int:
        """Return the tuples in the window: w * N_R / b, plus those of loops done at once."""
        return max(rows * self._loops_held(pages), LEAST_SLOTS)

    def run_bytes(self, pages: int) -> int:
        """Return the bytes of a buffer for a loop of ``pages``."""
        return max(self._run_pages(pages) * self.page_bytes, self.widest_page)

    def buffer_bytes(self, pages: int) -> int:
        """Return the bytes of all buffers for loops of ``pages``."""
        return self.run_cost(self.run_bytes(pages), self._run_pages(pages))

    def admit_bytes(self, rows: int) -> int:
        """Return the bytes needed to admit ``rows``, in pieces of up to ``admit_rows``."""
        return min(rows, self.admit_rows) * self.admit_row_bytes

    def window_bytes(self, slots: int) -> int:
        """Return the bytes of the window's slots, without the tuples in them."""
        return slots * self.slot_bytes

    def total(self, pages: int, rows: int) -> int:
        """Return M of MESH (1), in bytes."""
        return self._held(pages, rows) + self.slots(pages, rows) * self.tuple_bytes

    def fits(self, pages: int, rows: int) -> bool:
        """Return True if b = ``pages`` and w = ``rows`` fit in the pool."""
        return self.total(pages, rows) <= self.pool and self._held(pages, rows) + self.widest_tuple <= self.pool

    def most_rows(self, pages: int) -> float:
        """Return the greatest w that fits with b = ``pages``.

        A value between 0 and 1 is the share of iterations in which a tuple can enter; zero or less means that none
        fits.
        """
        room = self.pool - self.buffer_bytes(pages)
        tuples = self._rows_in(room, pages, self.slot_bytes + self.tuple_bytes)
        return min(tuples, self._rows_in(room - self.widest_tuple, pages, self.slot_bytes))

    def _run_pages(self, pages: int) -> int:
        """Return the pages of a loop to read at once."""
        return 1 if self.one_by_one else pages

    def _held(self, pages: int, rows: int) -> int:
        """Return the bytes of everything but the tuples."""
        window = self.window_bytes(self.slots(pages, rows))
        return self.buffer_bytes(pages) + self.admit_bytes(rows * self.loops(pages)) + window

    def _loops_held(self, pages: int) -> int:
        """Return the most loops whose tuples are in the window together."""
        return self.steps(pages) + self.loops(pages) - 1

    def _rows_in(self, room: int, pages: int, slot_bytes: int) -> float:
        """Return the greatest w whose slots fit in ``room`` with the bytes needed to admit the tuples."""
        held, loops = self._loops_held(pages), self.loops(pages)
        rows = room / (held * slot_bytes + loops * self.admit_row_bytes)
        if rows * loops > self.admit_rows:
            rows = (room - self.admit_bytes(self.admit_rows)) / (held * slot_bytes)
        if rows * held < LEAST_SLOTS:
            rows = min((room - LEAST_SLOTS * slot_bytes) / (loops * self.admit_row_bytes), LEAST_SLOTS / held)
        return rows


def _ordinary_page(relation: AnyRelation) -> int:
    """Return the 99% quantile of page sizes; for plain Parquet, whose sizes are unknown, the largest."""
    if isinstance(relation, ParquetRelation):
        return max(relation.largest_page, 1)
    nbytes = relation.table.nbytes
    return int(np.quantile(nbytes, 0.99, method="higher")) if nbytes.size else 1


_BUFFERS, _WINDOW = "page buffers", "stream index"
_SLACK = 1.25  # a window shrinks only if it has more than this many times the slots needed


class MeshAllocation:
    """Resizes page buffers and window to what b and w need, as far as the budget currently allows.

    Buffers and slots are charged while they exist, so the budget shows the bytes in use. Nothing in use is taken away:
    a tuple stays until it has met all of R, a buffer until its run is joined. A change may therefore take a whole scan,
    and each `settle` brings it further. Meanwhile, and permanently if b and w need more than the budget, an iteration
    reads its b pages in shorter runs and the window has fewer slots; nothing else is affected.

    If pages come one by one, buffers have a fixed size and there is no ``reader`` to resize.

    After each `settle` the widest tuple admitted fits as soon as the window is empty.
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
        """Memory model with the mean size of the tuples in the window."""
        if self._window.held == 0:
            return self._memory
        return replace(self._memory, tuple_bytes=-(-self._intake.held_bytes // self._window.held))

    def settle(self, pages: int, rows: int, *, at_once: int, admitted: int) -> None:
        """Move as far as possible towards the buffers and slots for b = ``pages`` and w = ``rows``.

        ``at_once`` tuples may enter in this iteration; ``admitted`` of them are already in the window.
        """
        memory, reader, window = self.memory, self._reader, self._window
        charged = self._budget.by_name
        held = max(window.held, LEAST_SLOTS)
        room = memory.pool - memory.window_bytes(held) - max(self._intake.held_bytes, memory.widest_tuple)
        # Buffers in use keep their size.
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
        """Return the number of slots to have, if ``needed`` are wanted and slots and tuples have ``room`` bytes."""
        held, slot = self._window.held, memory.window_bytes(1)
        expected = (room - self._intake.held_bytes + held * memory.tuple_bytes) // (slot + memory.tuple_bytes)
        most = min(expected, (room - memory.widest_tuple) // slot)
        slots = max(min(needed, most), held, LEAST_SLOTS)
        kept = self._window.slots
        return kept if slots <= kept <= min(_SLACK * slots, most) else slots
