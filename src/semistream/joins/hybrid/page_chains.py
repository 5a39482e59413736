"""PageChains: stream tuples by the pages of R they wait for; the hash table H of HYBRIDJOIN, for codes and ranges."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from semistream.joins.hybrid.kernels import (
    admit_tuples,
    link_tuples,
    meet_pages,
    next_pages,
    renumber_met,
    unlink_hopeless,
)
from semistream.kernels.array_types import Bytes, Int32s, Int64s
from semistream.kernels.merge import match_stretches
from semistream.keys import CodeRanges
from semistream.relation import PageRun
from semistream.relation.format.page_table import PageTable


class PageSpan(NamedTuple):
    """Adjacent pages of R in code order, from ``begin`` up to, not including, ``end``."""

    begin: int
    end: int


class Stretches(NamedTuple):
    """Tuples, each with pages ``first`` up to, not including, ``end``, all of which it needs and has not met."""

    tuples: Int64s
    first: Int32s
    end: Int32s


@dataclass(frozen=True)
class PageNeeds:
    """The needs of a join's tuples: ``ranges`` of codes or single codes, ``several`` pages each or at most one."""

    table: PageTable
    ranges: bool
    several: bool

    @classmethod
    def of(cls, table: PageTable, *, single_codes: bool) -> PageNeeds:
        """Derive the needs of tuples with single codes or ranges; a single code may span several pages too."""
        several = not single_codes or bool((table.first_code[1:] == table.last_code[:-1]).any())
        return cls(table, not single_codes, several)

    @property
    def base(self) -> int:
        """Bucket of the first page (see `semistream.joins.hybrid.kernels`)."""
        return 1 << max(len(self.table) - 1, 0).bit_length() if self.several else 1

    @property
    def buckets(self) -> int:
        """Number of buckets."""
        return self.base + len(self.table)

    @property
    def page_bytes(self) -> int:
        """Bytes of all per-page arrays."""
        pages = len(self.table)
        return 4 * (self.buckets + pages + 1 + (2 * pages if self.several else 0))

    @property
    def tuple_bytes(self) -> int:
        """Bytes kept per tuple: its codes, the next tuple in its bucket, the number of pages it misses."""
        return (16 if self.ranges else 8) + 4 + (4 if self.several else 0)


class PageChains:
    """Up to ``slots`` tuples by the pages they need: HYBRID's multi-hash table H.

    Walking chains finds the tuples of a page and touches hardly any others. A tuple may need any number of pages and
    meets each once, in any order. This needs no lists: tuples are numbered in order of arrival, so those that have met
    a page are those before the end of the queue at that time.

    ``waiting`` counts, for each page, the tuples that still have to meet it.
    """

    def __init__(self, slots: int, needs: PageNeeds, chunk_rows: int) -> None:
        table, pages = needs.table, len(needs.table)
        self.waiting = np.zeros(pages, np.int32)
        self._first_code, self._last_code = table.first_code, table.last_code
        self._base = needs.base
        self._head = np.full(needs.buckets, -1, np.int32)
        self._following = np.empty(slots, np.int32)
        self._low = np.empty(slots, np.int64)
        self._high = np.empty(slots, np.int64) if needs.ranges else self._low
        self._missing = np.empty(slots if needs.several else 0, np.int32)
        self._met = np.zeros(pages if needs.several else 0, np.int32)
        self._rises = np.zeros(pages + 1 if needs.several else 0, np.int32)
        self._tuple = np.empty(chunk_rows, np.int64)
        self._from, self._to = (np.empty(chunk_rows, np.int32) for _ in range(2))

    def admit(self, begin: int, ranges: CodeRanges, flags: Bytes) -> int:
        """Add tuples from position ``begin`` on; return the number that need a page. ``flags`` is by position."""
        end = begin + ranges.low.size
        self._low[begin:end] = ranges.low
        if self._high is not self._low:
            self._high[begin:end] = ranges.last
        needing: int = admit_tuples(
            self._first_code,
            self._last_code,
            self._low,
            self._high,
            flags,
            begin,
            end,
            self._base,
            self._head,
            self._following,
            self._missing,
            self.waiting,
            self._rises,
        )
        return needing

    def next_pages(self, flags: Bytes, oldest: int, end: int, meeting: PageSpan, most: int) -> PageSpan | None:
        """Return up to ``most`` adjacent pages that the oldest tuple still has to meet; None if there is none.

        The oldest tuple is the first from ``oldest`` on that needs more than the pages it is ``meeting`` now.
        """
        first, stop = next_pages(
            self._first_code,
            self._last_code,
            self._low,
            self._high,
            flags,
            self._missing,
            self._met,
            oldest,
            end,
            *meeting,
            most,
        )
        return PageSpan(first, stop) if first < stop else None

    def hopeless(self) -> Iterator[Int64s]:
        """Remove and yield the tuples that no page can serve; each chunk is valid until the next one."""
        while found := unlink_hopeless(self._head, self._following, self._tuple):
            yield self._tuple[:found]

    def meet(self, pages: PageSpan) -> Iterator[Stretches]:
        """Yield the tuples that need some of ``pages`` and have not met them; each chunk is valid until the next one.

        Tuples that then miss no page are removed from their chains. Call `met` after the last chunk.
        """
        cursor = np.array([0, self._base + pages.begin, -1, 0], np.int64)
        while cursor[0] >= 0:
            found = meet_pages(
                self._first_code,
                self._last_code,
                self._low,
                self._high,
                self._base,
                self._head,
                self._following,
                self._missing,
                self._met,
                *pages,
                cursor,
                self._tuple,
                self._from,
                self._to,
            )
            if found:
                yield Stretches(self._tuple[:found], self._from[:found], self._to[:found])

    def met(self, pages: PageSpan, end: int) -> None:
        """Record that all tuples up to position ``end`` have met these pages."""
        if self._met.size:
            self._met[pages.begin : pages.end] = end

    def through(self, stretches: Stretches) -> Int64s:
        """Return the tuples that have met all their pages with these stretches, each once."""
        if not self._missing.size:
            return stretches.tuples
        through: Int64s = stretches.tuples[self._missing[stretches.tuples] == 0]
        once: Int64s = through[np.diff(through, append=-1) != 0]  # stretches of a tuple are adjacent
        return once

    def pairs(
        self, stretches: Stretches, run: PageRun, position: Int64s, page: Int32s, row: Int32s
    ) -> Iterator[tuple[Int64s, Int32s, Int32s]]:
        """Yield the pairs of a tuple and a row (page of the run, row) in its stretch with a code it asks for.

        They come in pieces that fill the given arrays; a piece is valid until the next one.
        """
        cursor = np.array([0, -1, -1], np.int64)
        first_page = int(run.pages[0])
        while cursor[0] < stretches.tuples.size:
            found = match_stretches(
                run.words,
                run.code_starts,
                run.rows,
                first_page,
                self._low,
                self._high,
                *stretches,
                cursor,
                position,
                page,
                row,
            )
            if found:
                yield position[:found], page[:found], row[:found]

    def renumber(self, flags: Bytes, end: int) -> None:
        """Prepare to drop the positions of tuples that have left: empty all chains until `relink`."""
        if self._met.size:
            renumber_met(flags, end, self._met, self._following)  # as scratch: `relink` rebuilds the chains
        self._head.fill(-1)

    def move(self, tuples: Int64s, begin: int) -> None:
        """Move tuples to the positions from ``begin`` on, none of them after the old ones."""
        end = begin + tuples.size
        self._low[begin:end] = self._low[tuples]
        if self._high is not self._low:
            self._high[begin:end] = self._high[tuples]
        if self._missing.size:
            self._missing[begin:end] = self._missing[tuples]

    def relink(self, flags: Bytes, end: int) -> None:
        """Rebuild the chains of the tuples up to position ``end``."""
        link_tuples(
            self._first_code,
            self._last_code,
            self._low,
            self._high,
            flags,
            end,
            self._base,
            self._head,
            self._following,
        )
