"""Page tables made up for tests, without a relation."""

from __future__ import annotations

import numpy as np

from semistream.relation.format.page_table import PageTable, SegmentTable


def page_table(ranges: list[tuple[int, int]], nbytes: int = 100, breaks: tuple[int, ...] = ()) -> PageTable:
    """Pages with these first and last codes, one behind the other; a new file begins at each of ``breaks``."""
    pages = len(ranges)
    return PageTable(
        file=np.array([sum(at <= page for at in breaks) for page in range(pages)], np.int32),
        rows=np.ones(pages, np.int32),
        first_code=np.array([first for first, _ in ranges], np.int64),
        last_code=np.array([last for _, last in ranges], np.int64),
        segments=(
            SegmentTable.unverified(
                offset=np.arange(pages, dtype=np.int64) * nbytes,
                nbytes=np.full(pages, nbytes, np.int64),
                checksum=np.zeros(pages, np.uint64),
            ),
        ),
    )
