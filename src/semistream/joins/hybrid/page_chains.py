"""Which stream tuples wait for which pages of R: the hash table H of HYBRIDJOIN, for codes and for ranges of codes."""

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
    """Pages of R that follow one another in the order of codes: from ``begin`` to before ``end``."""

    begin: int
    end: int


class Stretches(NamedTuple):
    """Tuples, and for each the pages from ``first`` to before ``end``, all of which it needs and has not met."""

    tuples: Int64s
    first: Int32s
    end: Int32s


@dataclass(frozen=True)
class PageNeeds:
    """What tuples may need of R: ``ranges`` of codes or single ones, and ``several`` pages or one at most."""

    table: PageTable
    ranges: bool
    several: bool

    @classmethod
    def of(cls, table: PageTable, *, single_codes: bool) -> PageNeeds:
        """What tuples need that ask for one code each, or for a range; a single code may go over several pages too."""
        several = not single_codes or bool((table.first_code[1:] == table.last_code[:-1]).any())
        return cls(table, not single_codes, several)

    @property
    def base(self) -> int:
        """The bucket of the first page (see `semistream.kernels.buckets`)."""
        return 1 << max(len(self.table) - 1, 0).bit_length() if self.several else 1

    @property
    def buckets(self) -> int:
        """How many buckets there are."""
        return self.base + len(self.table)

    @property
    def page_bytes(self) -> int:
        """Bytes of all that is kept by page."""
        pages = len(self.table)
        return 4 * (self.buckets + pages + 1 + (2 * pages if self.several else 0))

    @property
    def tuple_bytes(self) -> int:
        """Bytes of all that is kept by tuple: its codes, the next one of its bucket, how many pages it misses."""
        return (16 if self.ranges else 8) + 4 + (4 if self.several else 0)


class PageChains:
    """Up to ``slots`` tuples by the pages that they need: HYBRID's multi-hash table H.

    The tuples of a page are had by walking chains, and hardly any that waits for other pages is touched. A tuple may
    need any number of pages, and meets each once, in any order. For that no list is kept: as tuples are numbered in the
    order in which they come, those that have met a page are those before the position at which the queue ended then.

    ``waiting`` counts for each page the tuples that have yet to meet it.
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
        """Take tuples from position ``begin`` on, of those that ``flags`` are of; gives how many need a page."""
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
        """Up to ``most`` pages that follow one another and that the oldest tuple has yet to meet.

        That is the first one from ``oldest`` on that does not leave with the pages that it is ``meeting`` now.
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
        """Take out the tuples that no page can serve; each chunk is valid until the next is asked for."""
        while found := unlink_hopeless(self._head, self._following, self._tuple):
            yield self._tuple[:found]

    def meet(self, pages: PageSpan) -> Iterator[Stretches]:
        """The tuples that need some of ``pages`` and have not met them. Chunks are valid until the next is asked for.

        Those that miss no more page are taken out. `met` is to be told when all were met.
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
        """Say that all tuples up to position ``end`` have met these pages."""
        if self._met.size:
            self._met[pages.begin : pages.end] = end

    def through(self, stretches: Stretches) -> Int64s:
        """The tuples, each once, that have met all their pages with these."""
        if not self._missing.size:
            return stretches.tuples
        through: Int64s = stretches.tuples[self._missing[stretches.tuples] == 0]
        once: Int64s = through[np.diff(through, append=-1) != 0]  # stretches of a tuple come one behind the other
        return once

    def pairs(
        self, stretches: Stretches, run: PageRun, position: Int64s, page: Int32s, row: Int32s
    ) -> Iterator[tuple[Int64s, Int32s, Int32s]]:
        """Pairs of a tuple and a row (page of the run, row) in its stretch whose code it asks for.

        They come as many at a time as the arrays given can hold, and are valid until the next ones.
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
        """Positions of tuples that have left are going to be given up: empty all chains, until `relink`."""
        if self._met.size:
            renumber_met(flags, end, self._met, self._following)  # the chains are made anew anyway
        self._head.fill(-1)

    def move(self, tuples: Int64s, begin: int) -> None:
        """Give tuples the positions from ``begin`` on, which are before their own, or are them."""
        end = begin + tuples.size
        self._low[begin:end] = self._low[tuples]
        if self._high is not self._low:
            self._high[begin:end] = self._high[tuples]
        if self._missing.size:
            self._missing[begin:end] = self._missing[tuples]

    def relink(self, flags: Bytes, end: int) -> None:
        """Find the tuples up to position ``end`` again."""
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
