"""What MESHJOIN holds in memory for given b and w: MESH (1), in the bytes of this implementation."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from semistream.budget import MemoryBudget
from semistream.joins.memory_split import (
    LEAST_SLOTS,
    MemorySplit,
    admit_row_bytes,
    expected_row_bytes,
    most_run_rows,
    page_overhead,
)
from semistream.joins.run_codes import COMPUTED_ROW_BYTES
from semistream.joins.scan_source import ScanSource
from semistream.joins.spec import JoinSpec
from semistream.joins.stream_window import StreamWindow
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
            tuple_bytes=expected_row_bytes(spec.stream_schema),
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
