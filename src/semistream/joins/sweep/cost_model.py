"""What a pass of the sweep reads, and how many tuples share it: the engine's model, which no paper has.

SweepPace: how many tuples come in a pass of the sweep, and how many of them go at a time.
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

_LEVEL_S = 120e-6  # to take tuples out of a level, however few
_MOVED_BYTE_S = 0.25e-9  # to move what waits together
_ROW_S = 15e-9  # of R, that goes by
_MOST_LEVELS = 3


@dataclass(frozen=True)
class SweepPace:
    """The pace of a sweep whose tuples wait in ``buffer_bytes``, in levels of up to ``level_rows``.

    If it ``trims``, tuples go when they have met their pages, before their level, and what is left is moved together.
    That takes time whether few go or many, but the more are to go at once, the longer they take up room. So they go
    when there is room for `trimmed_levels`: few if a pass over R, which is to serve as many as can wait, takes long.
    """

    level_rows: int
    buffer_bytes: int
    pass_s: float
    trims: bool

    @classmethod
    def of(cls, reading_s: float, rows: float, *, level_rows: int, buffer_bytes: int, trims: bool) -> SweepPace:
        """The pace over a relation of so many rows, all of which are read in ``reading_s``."""
        return cls(level_rows, buffer_bytes, reading_s + rows * _ROW_S, trims)

    def trimmed_levels(self, capacity: int) -> int:
        """Levels for which room is made at a time, if ``capacity`` tuples can wait.

        In a pass about two levels come for each that can wait. With room made for k at once, 2 L / k times something is
        taken from L levels; and as room for k is empty at its end, of L, so much more of passes is needed.

        >>> fast, slow = (SweepPace(1000, 200_000, pass_s, trims=True) for pass_s in (0.05, 1.0))
        >>> fast.trimmed_levels(20_000), slow.trimmed_levels(20_000)
        (3, 1)
        """
        levels = capacity / self.level_rows
        trim_s = levels * _LEVEL_S + self.buffer_bytes * _MOVED_BYTE_S
        best = levels * math.sqrt(2 * trim_s / self.pass_s)
        return max(min(round(best), _MOST_LEVELS, int(levels) - 2), 1)

    def pass_rows(self, capacity: int) -> int:
        """Tuples that can come in a pass if ``capacity`` can wait, and there is to be room for the next levels.

        If each goes when it has met its pages, half of those that came in the last pass wait.
        """
        if self.trims:
            return 2 * max(capacity - (1 + self.trimmed_levels(capacity)) * self.level_rows, 1)
        return max(capacity - 2 * self.level_rows, 1)


@dataclass(frozen=True)
class SweepModel:
    """A sweep over R's pages, in runs of up to ``run_bytes``, with ``buffer_bytes`` for stream tuples that wait.

    They come in levels of up to ``level_rows``, and the sweep keeps pace with them: as many come in a pass as there is
    room for, if there is to be room for the next levels in time. A tuple takes ``row_bytes``, which may depend on how
    far those that wait lie apart in the stream: values that count on, such as times, take less if they lie close.
    Of R, so many ``runs`` are held: the one that is joined, and those that are read ahead of it.

    It is MESHJOIN's (3) with the pages that are needed instead of all: while the sweep goes round once, `pass_rows`
    tuples come, so each page is met by those of them that need it, and is read if there are any. Which pages these are
    follows from the frequencies of the keys, and what they cost from the plan of SSIJ IV-D.

    If it ``trims``, a tuple goes when its pages have passed, so half of those that come in a pass wait, if they ask for
    pages all around R. A share q that asks for one page goes all at once when it passes, and just before that (1 + q) /
    2 wait. If that is more than can wait, the sweep must hurry there, and fewer tuples come in a pass.

    If the stream is drained now and then, tuples gather until there is no room, or the batch ends: one pass is enough
    for all of a batch that can wait, and it takes one more than those in which the others come.

    Results come out ``batch_rows`` at a time, and before tuples go.
    """

    buffer_bytes: int
    level_rows: int
    run_bytes: int
    trims: bool
    row_bytes: Callable[[float], int]
    batch_rows: float = math.inf  # of results that are given out together, at most
    runs: int = 3

    def __post_init__(self) -> None:
        require_numbers(self, "buffer_bytes", "level_rows", "run_bytes", "runs")

    def pass_rows(self, workload: Workload, costs: DiskCosts) -> float:
        """Tuples that come in a pass while the stream goes on."""
        capacity, pace = self._capacity(workload), self._pace(workload, costs)
        if not self.trims:
            return pace.pass_rows(capacity)
        empty = 1 + _EMPTY * (pace.trimmed_levels(capacity) - 1)
        most_waiting = max(capacity - empty * self.level_rows, 1)
        return min(pace.pass_rows(capacity), 2 * most_waiting / (1 + workload.frequencies.share(1)))

    def work(self, workload: Workload, costs: DiskCosts) -> Work:
        """What each tuple takes of a pass."""
        rows, batch = self.pass_rows(workload, costs), workload.batch_rows
        if math.isinf(batch):
            total, tuples, gathered = self._reads(workload, costs, rows), rows, 0.0
        else:
            total, tuples, gathered = self._drained(workload, costs), batch, min(self._room(workload) / batch, 1.0)
        page_rows = workload.rows_per_page
        packets = 1 / min(self.level_rows, batch)
        run_pages = max(self.run_bytes // workload.page_bytes, 1.0)  # whole ones
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
        """What is read for a batch that is drained at its end."""
        room, batch, passing = self._room(workload), workload.batch_rows, self.pass_rows(workload, costs)
        reads = partial(self._reads, workload, costs)
        if batch <= room:
            return reads(batch)
        if not self.trims:
            return reads(room).times(batch / room)
        # While those that filled it go, others take their place, n of them until a share x of R has passed: dn/dx =
        # waiting + n. Such a one meets its page in the same pass, or if that has passed, with P = x, in the next one.
        # They come when there is room for some levels: on average, half of these late.
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
        """Tuples of all levels that a run meets, with those that have left before their level, if ``passing`` come in a
        pass.

        Those of a batch that is drained are fewer in the first pass, before which they gathered, and in the last: in
        all, as if two fifths of a pass met none.
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
        """Tuples that can wait."""
        return max(self.buffer_bytes // self.row_bytes(workload.spread), 1)

    def _room(self, workload: Workload) -> int:
        """Tuples that gather before the first of them is joined, if none is waiting yet.

        The last level may be too large for what is left: on average, half of one is.
        """
        return max(self._capacity(workload) - self.level_rows // 2, 1)

    def _reads(self, workload: Workload, costs: DiskCosts, tuples: float) -> ExpectedReads:
        """What a pass reads in which so many tuples meet each page that they need."""
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
    """Rows of R, for each tuple, that so many tuples ask for together."""
    return workload.results_per_tuple * min(workload.frequencies.distinct(together) / together, 1.0)


def _clumped(workload: Workload, held: float) -> float:
    """The share of the tuples that are joined while nothing is read, if there is room for a share ``held`` of a pass.

    As long as a key's tuples are joined, no more than that can be read; the rest comes too late.
    """
    keys, share = 1, 0.0
    while keys * held < 1:
        share = max(share, workload.frequencies.share(keys) - keys * held)
        keys *= 2
    return share


_EMPTY = 0.75  # of the room that is made for levels behind the next one, when a key that many ask for is near; as seen
_LEVELS_MISSING = 0.4  # passes, in a batch that is drained
_STRIPS = ((0.5, 0.75), (0.25, 0.375), (0.125, 0.19), (0.0625, 0.09), (0.0625, 0.03))  # shares, and what is left there


def _thinning(reads: Callable[[float], ExpectedReads]) -> ExpectedReads:
    """The last pass, in which ever fewer tuples wait for a page, the later it comes: ``reads`` are those of a pass in
    which all pages had as many as those with such a share of it left have.
    """
    total = ExpectedReads(0.0, 0.0)
    for share, left in _STRIPS:
        total = total.plus(reads(left).times(share))
    return total
