"""Page tables without pages: any layout of files, sizes and pages that updates have replaced."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from hypothesis import strategies as st

from semistream.relation.format.page_table import PageTable, SegmentTable


@dataclass(frozen=True)
class Place:
    """One place of a file; its page is a page of the table (its number), or of older versions only (-1)."""

    file: int
    index: int
    offset: int
    nbytes: int
    page: int


def page_table(places: list[Place]) -> PageTable:
    """The table of the present pages."""
    live = sorted((place for place in places if place.page >= 0), key=lambda place: place.page)
    zeros = np.zeros(len(live), np.int64)
    segments = SegmentTable.unverified(
        np.array([place.offset for place in live], np.int64),
        np.array([place.nbytes for place in live], np.int64),
        zeros.astype(np.uint64),
    )
    file = np.array([place.file for place in live], np.int32)
    return PageTable(file, np.ones(len(live), np.int32), zeros, zeros, (segments,))


@st.composite
def layouts(draw: st.DrawFn, *, most_pages: int, one_size: bool = False) -> list[Place]:
    """Some files of pages, with and without holes; page numbers are dealt out over them at random."""
    rng = np.random.default_rng(draw(st.integers(0, 10**6)))
    size = draw(st.integers(1, most_pages))
    first_of_file = rng.random(size) < draw(st.sampled_from([0.0, 0.05, 0.3]))
    hole = rng.random(size) < draw(st.sampled_from([0.0, 0.1, 0.5]))
    nbytes = np.full(size, 8) if one_size else 8 * rng.integers(1, 10, size)
    numbers = rng.permutation(int((~hole).sum())).tolist()
    places: list[Place] = []
    file, index, offset = 0, 0, 100
    for i in range(size):
        if first_of_file[i]:
            file, index, offset = file + 1, 0, 100
        places.append(Place(file, index, offset, int(nbytes[i]), -1 if hole[i] else numbers.pop()))
        index, offset = index + 1, offset + int(nbytes[i])
    return places
