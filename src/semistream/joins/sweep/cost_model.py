"""Cost model of the sweep, which the engine uses too; no paper has it.

`SweepModel` predicts the pages that a pass reads and the tuples that share it. `SweepPace` sets how many tuples a pass
takes in, and for how many levels a trim makes room.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from semistream.costs.expected_reads import ExpectedReads, expected_reads
from semistream.costs.work import Work
from semistream.costs.workload import Workload
from semistream.errors import require_numbers
from semistream.relation.read.disk_costs import DiskCosts

_LEVEL_S = 120e-6  # seconds to trim a level, however few tuples leave
_MOVED_BYTE_S = 0.25e-9  # seconds to move a byte when waiting tuples are compacted
_ROW_S = 15e-9  # seconds for a row of R in a pass
_MOST_LEVELS = 3  # most levels to make room for at once


@dataclass(frozen=True)
class SweepPace:
    """The pace of a sweep whose tuples wait in ``buffer_bytes``, in levels of up to ``level_rows``.

    If it ``trims``, tuples that have met their pages leave before their level, and the rest is compacted. A trim takes
    the same time whether few or many tuples leave, but a larger trim keeps finished tuples in memory longer. The sweep
    therefore trims when it frees room for `trimmed_levels`: few if a pass over R takes long (``pass_s``), because then
    each pass should serve as many tuples as possible.
    """

    level_rows: int
    buffer_bytes: int
    pass_s: float
    trims: bool

    @classmethod
    def of(cls, reading_s: float, rows: float, *, level_rows: int, buffer_bytes: int, trims: bool) -> SweepPace:
        """Return the pace over a relation of ``rows`` rows that takes ``reading_s`` seconds to read."""
        return cls(level_rows, buffer_bytes, reading_s + rows * _ROW_S, trims)

    def trimmed_levels(self, capacity: int) -> int:
        """Return the number of levels that a trim makes room for, if ``capacity`` tuples fit in memory.

        With L levels in memory, about 2 L come in a pass. If a trim makes room for k levels, a pass has 2 L / k trims
        of L levels each. After a trim, k of the L levels are empty, so that proportionally more passes are needed.

        >>> fast, slow = (SweepPace(1000, 200_000, pass_s, trims=True) for pass_s in (0.05, 1.0))
        >>> fast.trimmed_levels(20_000), slow.trimmed_levels(20_000)
        (3, 1)
        """
        levels = capacity / self.level_rows
        trim_s = levels * _LEVEL_S + self.buffer_bytes * _MOVED_BYTE_S
        best = levels * math.sqrt(2 * trim_s / self.pass_s)
        return max(min(round(best), _MOST_LEVELS, int(levels) - 2), 1)

    def pass_rows(self, capacity: int) -> int:
        """Return the tuples that a pass takes in, if ``capacity`` fit in memory and the next levels need room too.

        With trims, half of the tuples of the last pass wait.
        """
        if self.trims:
            return 2 * max(capacity - (1 + self.trimmed_levels(capacity)) * self.level_rows, 1)
        return max(capacity - 2 * self.level_rows, 1)


@dataclass(frozen=True)
class SweepModel:
    """Model of a sweep over R's pages, in runs of up to ``run_bytes``, with ``buffer_bytes`` for waiting tuples.

    Tuples come in levels of up to ``level_rows``, and the sweep keeps pace with them: a pass takes in as many tuples as
    there is room for, with room for the next levels freed in time. A tuple takes ``row_bytes(spread)`` bytes:
    increasing values such as times take fewer bytes if waiting tuples lie close together in the stream. ``runs`` runs
    of R are held: the one being joined and those read ahead.

    The model is MESHJOIN's (3) with the needed pages in place of all pages. In one round of the sweep `pass_rows`
    tuples come; a page meets those of them that need it, and is read if there are any. The key frequencies give the
    number of these pages, and the plan of SSIJ IV-D their cost.

    If it ``trims``, a tuple leaves when its pages have passed. If tuples ask for pages all around R, half of those that
    come in a pass wait. A share q of the tuples that asks for one page leaves at once when the page passes; just before
    that, (1 + q) / 2 wait. If these exceed the memory, the sweep must hurry to that page, and a pass takes in fewer.

    If the stream is drained at the end of each batch, tuples gather until memory is full or the batch ends. One pass
    serves a batch that fits in memory; a larger batch needs one pass more than those that take in the rest of it.

    Results come out ``batch_rows`` at a time, and before tuples leave.
    """

    buffer_bytes: int
    level_rows: int
    run_bytes: int
    trims: bool
    row_bytes: Callable[[float], int]
    batch_rows: float = math.inf  # most rows in a batch of results
    runs: int = 3

    def __post_init__(self) -> None:
        require_numbers(self, "buffer_bytes", "level_rows", "run_bytes", "runs")

    def pass_rows(self, workload: Workload, costs: DiskCosts) -> float:
        """Return the tuples that a pass takes in while the stream continues."""
        capacity, pace = self._capacity(workload), self._pace(workload, costs)
        if not self.trims:
            return pace.pass_rows(capacity)
        empty = 1 + _EMPTY * (pace.trimmed_levels(capacity) - 1)
        most_waiting = max(capacity - empty * self.level_rows, 1)
        return min(pace.pass_rows(capacity), 2 * most_waiting / (1 + workload.frequencies.share(1)))

    def work(self, workload: Workload, costs: DiskCosts) -> Work:
        """Return the work per tuple: its share of a pass."""
        rows, batch = self.pass_rows(workload, costs), workload.batch_rows
        if math.isinf(batch):
            total, tuples, gathered = self._reads(workload, costs, rows), rows, 0.0
        else:
            total, tuples, gathered = self._drained(workload, costs), batch, min(self._room(workload) / batch, 1.0)
        page_rows = workload.rows_per_page
        packets = 1 / min(self.level_rows, batch)
        run_pages = max(self.run_bytes // workload.page_bytes, 1.0)  # whole pages only
        steps = max(total.seeks, total.pages / run_pages) / tuples
        pass_steps, reads_ahead = steps * min(rows, batch), self.runs > 1
        return Work(
            seeks=total.seeks / tuples,
            pages=total.pages / tuples,
            steps=steps,
            probes=total.pages * page_rows / tuples,
            waits=min(rows, batch) / 2,
            longest_wait=min(rows, batch),
            packets=packets,
            batches=workload.results_per_tuple / self.batch_rows + (packets * (1 - gathered) if self.trims else 0.0),
            gathered=gathered,
            level_probes=steps * math.ceil(self._rows_in_levels(workload, rows) / self.level_rows),
            fresh=_fresh_rows(workload, min(rows, batch)),
            clumped=_clumped(workload, self.runs / max(pass_steps, self.runs)) if reads_ahead else 0.0,
            waited=0.0 if reads_ahead else steps,
            reads_ahead=reads_ahead,
            reads_at_once=reads_ahead,
        )

    def _drained(self, workload: Workload, costs: DiskCosts) -> ExpectedReads:
        """Return the reads for a batch that is drained at its end."""
        room, batch, passing = self._room(workload), workload.batch_rows, self.pass_rows(workload, costs)
        reads = partial(self._reads, workload, costs)
        if batch <= room:
            return reads(batch)
        if not self.trims:
            return reads(room).times(batch / room)
        # As the tuples that filled the buffer leave, others take their place: n of them by the time a share x of R has
        # passed, with dn/dx = waiting + n. Such a tuple meets its page in the same pass, or in the next one if the page
        # has passed already, which has probability x. As a trim makes room for several levels at once, tuples come late
        # by half of these levels on average.
        waiting, capacity = passing / 2, self._capacity(workload)
        more = (batch - room) / waiting
        pause = self._pace(workload, costs).trimmed_levels(capacity) * self.level_rows / (2 * capacity)
        if more > math.e - 1:
            between = (more - (math.e - 1)) / 2 + pause
            last = _thinning(lambda left: reads(max(passing * left, 1.0)))
            return reads(room).plus(reads(passing).times(between)).plus(last)
        share = math.log1p(more)
        late = waiting * ((1 + more) * (share - 1) + 1)
        last = _thinning(lambda left: reads(max(waiting * (1 + more) * -math.expm1(-share * left), 1.0)))
        return reads(batch - late).plus(last.times(share + pause))

    def _rows_in_levels(self, workload: Workload, passing: float) -> float:
        """Return the original rows of all levels that a run meets, trimmed tuples included.

        ``passing`` tuples come in a pass. In a drained batch the first pass, before which tuples gathered, and the last
        pass have fewer levels: in total, as if two fifths of a pass met none.
        """
        batch, room = workload.batch_rows, self._room(workload)
        if math.isinf(batch) or batch <= room or not self.trims:
            return min(passing, batch)
        passes = 1 + (batch - room) / passing
        return max(room, passing * (1 - _LEVELS_MISSING / passes))

    def _pace(self, workload: Workload, costs: DiskCosts) -> SweepPace:
        return SweepPace.of(
            costs.request_s(workload.num_pages * workload.page_bytes, workload.num_pages),
            workload.relation_rows,
            level_rows=self.level_rows,
            buffer_bytes=self.buffer_bytes,
            trims=self.trims,
        )

    def _capacity(self, workload: Workload) -> int:
        """Return the tuples that fit in memory."""
        return max(self.buffer_bytes // self.row_bytes(workload.spread), 1)

    def _room(self, workload: Workload) -> int:
        """Return the tuples that an empty buffer gathers before the first of them is joined.

        The last level may not fit in the rest of the memory: on average, half a level stays free.
        """
        return max(self._capacity(workload) - self.level_rows // 2, 1)

    def _reads(self, workload: Workload, costs: DiskCosts, tuples: float) -> ExpectedReads:
        """Return the reads of a pass in which ``tuples`` tuples meet each page they need."""
        pages = workload.num_pages
        return expected_reads(
            pages,
            min(workload.frequencies.pages(pages, tuples), pages),
            costs,
            page_bytes=int(workload.page_bytes),
            most_bytes=self.run_bytes,
            goes_on=True,
        )


def _fresh_rows(workload: Workload, together: float) -> float:
    """Return the distinct rows of R that ``together`` tuples ask for, per tuple."""
    return workload.results_per_tuple * min(workload.frequencies.distinct(together) / together, 1.0)


def _clumped(workload: Workload, held: float) -> float:
    """Return the share of the tuples joined while the disk is idle, if buffers hold a share ``held`` of a pass.

    While the tuples of one key are joined, no more than that can be read ahead; the disk idles for the rest.
    """
    keys, share = 1, 0.0
    while keys * held < 1:
        share = max(share, workload.frequencies.share(keys) - keys * held)
        keys *= 2
    return share


_EMPTY = 0.75  # measured share of the room for levels after the next one that is empty as a hot key's page comes near
_LEVELS_MISSING = 0.4  # passes without levels in a drained batch
_STRIPS = ((0.5, 0.75), (0.25, 0.375), (0.125, 0.19), (0.0625, 0.09), (0.0625, 0.03))  # (width, share of R left there)


def _thinning(reads: Callable[[float], ExpectedReads]) -> ExpectedReads:
    """Return the reads of the last pass, in which fewer and fewer tuples wait for a page.

    ``reads(left)`` are the reads of a whole pass whose pages all meet as many tuples as the pages do that come when a
    share ``left`` of the pass remains. The result is the sum over strips of the pass.
    """
    total = ExpectedReads(0.0, 0.0)
    for share, left in _STRIPS:
        total = total.plus(reads(left).times(share))
    return total
