"""The index of cached rows, against a look at every row."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from semistream.joins.cache.kernels import find_codes, index_rows, order_by_page, probe_rows

EXTREMES = [np.iinfo(np.int64).min, np.iinfo(np.int64).max]
CODES = st.one_of(st.integers(-4, 4), st.sampled_from(EXTREMES), st.integers(0, 4).map(lambda i: i << 40))
PAGES = st.lists(st.lists(CODES, min_size=1, max_size=9), min_size=1, max_size=6)


class Index:
    """Pages of codes, without those in ``gone``, and an index of them as full as allowed."""

    def __init__(self, pages: list[list[int]], gone: set[int], row_bits: int, spare_bits: int) -> None:
        self.pages = pages = [sorted(page) for page in pages]
        self.words = np.array([-99] + [code for page in pages for code in [*page, -99]], np.int64)
        self.rows = np.array([len(page) for page in pages], np.int32)
        self.starts = 1 + np.cumsum([0, *(len(page) + 1 for page in pages)], dtype=np.int64)[:-1]
        self.first_rows = np.concatenate([[0], np.cumsum(self.rows)]).astype(np.int64)
        self.frequency = np.array([-1 if code in gone else 0 for page in pages for code in page], np.int32)
        bits = int(self.first_rows[-1]).bit_length() + spare_bits
        self.shape = bits, row_bits, ((len(pages) << row_bits) + 1).bit_length()
        self.table = np.zeros(1 << bits, np.uint32)
        run = self.words, self.starts, self.rows, self.first_rows, self.frequency
        index_rows(*run, self.table, *self.shape)

    def probe(self, codes: list[int], possible: list[bool], room: int, begin: int) -> tuple[set, list[int]]:
        """Return the found pairs of position and (page, row), checked to be unique, and the missed positions."""
        position, place = np.empty(room, np.int32), np.empty(room, np.int32)
        missed = np.empty(len(codes) + 1, np.int32)
        cursor = np.array([0, -1, -1, 1])
        pairs: list[tuple[int, int, int]] = []
        asked = np.array(codes, np.int64), np.array(possible, np.bool_)
        run = self.words, self.starts, self.rows, self.first_rows, self.frequency, self.table, *self.shape
        while cursor[0] < len(codes):
            n = probe_rows(*asked, *run, begin, cursor, position, place, missed)
            counts = np.empty(len(self.pages) + 1, np.int64)
            at, page, row = np.empty(n, np.int64), np.empty(n, np.int32), np.empty(n, np.int32)
            order_by_page(position[:n], place[:n], self.shape[1], begin, counts, at, page, row)
            assert np.all(np.diff(page) >= 0)
            pairs += zip(at.tolist(), page.tolist(), row.tolist(), strict=True)
            assert len(pairs) <= len(codes) * int(self.rows.sum())
        assert len(pairs) == len(set(pairs))
        return set(pairs), missed[1 : int(cursor[3])].tolist()


@settings(deadline=None, max_examples=200)
@given(
    PAGES,
    st.lists(st.tuples(CODES, st.booleans()), max_size=12),
    st.sets(CODES, max_size=3),
    st.integers(1, 5),
    st.sampled_from([4, 7, 26]),
    st.integers(0, 3),
    st.sampled_from([0, 1000]),
)
def test_every_present_row_is_found_once(
    pages: list[list[int]],
    asked: list[tuple[int, bool]],
    gone: set[int],
    room: int,
    row_bits: int,
    spare_bits: int,
    begin: int,
) -> None:
    index = Index(pages, gone, row_bits, spare_bits)
    codes, possible = [code for code, _ in asked], [flag for _, flag in asked]
    expected = {
        (begin + position, number, row)
        for number, page in enumerate(index.pages)
        for row, code in enumerate(page)
        for position, (wanted, flag) in enumerate(asked)
        if flag and wanted == code and code not in gone
    }
    found, missed = index.probe(codes, possible, room, begin)
    assert found == expected
    assert missed == [i for i in range(begin, begin + len(asked)) if i not in {at for at, _, _ in expected}]
    counted = np.zeros_like(index.frequency)
    for _, page, row in expected:
        counted[index.first_rows[page] + row] += 1
    assert np.where(index.frequency < 0, 0, index.frequency).tolist() == counted.tolist()
    held = np.zeros(len(codes), np.bool_)
    find_codes(np.array(codes, np.int64), index.words, index.starts, index.table, *index.shape, held)
    there = {code for page in pages for code in page} - gone
    assert held.tolist() == [code in there for code in codes]
