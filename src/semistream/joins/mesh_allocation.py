"""Moves the bytes of a running MESHJOIN between page buffers and window as b and w change."""

from __future__ import annotations

from dataclasses import replace

from semistream.budget import MemoryBudget
from semistream.joins.intake import Intake
from semistream.joins.memory_split import LEAST_SLOTS
from semistream.joins.mesh_memory import MeshMemory
from semistream.joins.stream_window import StreamWindow
from semistream.relation import RunReader

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
