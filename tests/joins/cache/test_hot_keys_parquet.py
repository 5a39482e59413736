"""ScatteredHotKeys: a key is given with all its rows, or not at all."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from semistream.joins.cache.hot_keys_parquet import ScatteredHotKeys
from semistream.joins.cache.tuple_cache import TupleCache
from semistream.joins.condition.run_codes import ComputedCodes
from semistream.keys import KeyCodec
from semistream.relation import PageRun
from semistream.relation.format.page_layout import PageLayout
from semistream.relation.null_keys import page_of, with_code_column


class Passing:
    """A scan over pages in memory, as `ScatteredHotKeys` sees it; a page comes in one or two pieces."""

    def __init__(self, pages: list[pa.RecordBatch], layout: PageLayout) -> None:
        self.pages_passed, self.pages_of_scan = 0, len(pages)
        self._pages, self._layout = pages, layout
        self._codec = KeyCodec.of(["k"], [pa.int64()])

    def step(self, keys: ScatteredHotKeys) -> None:
        rows = self._pages[self.pages_passed % self.pages_of_scan]
        middle = rows.num_rows // 2
        for piece in [rows] if self.pages_passed % 2 else [rows.slice(0, middle), rows.slice(middle)]:
            run: PageRun = page_of(with_code_column(piece, self._layout), self._layout)
            keys.meet(run, ComputedCodes.of(run, self._codec))
        self.pages_passed += 1


@settings(max_examples=150, deadline=None)
@given(
    rows=st.lists(st.one_of(st.integers(0, 12), st.none()), min_size=1, max_size=80),
    pages=st.integers(1, 12),
    nbytes=st.sampled_from([2_000, 5_000, 12_000, 1_000_000]),
    wide=st.sets(st.integers(0, 12), max_size=3),
    acts=st.lists(
        st.one_of(
            st.sampled_from(["step", "step", "take", "age"]), st.dictionaries(st.integers(0, 14), st.integers(1, 9))
        ),
        min_size=5,
        max_size=60,
    ),
    late=st.integers(0, 3),
)
def test_a_key_is_given_with_all_its_rows_or_not_at_all(
    rows: list[int | None], pages: int, nbytes: int, wide: set[int], acts: list[Any], late: int
) -> None:
    values = [f"{i}" * (200 if key in wide else 1) for i, key in enumerate(rows)]
    table = pa.record_batch({"k": pa.array(rows, pa.int64()), "v": values})
    cuts = [len(rows) * i // pages for i in range(pages + 1)]
    layout = PageLayout.with_codes(table.schema)
    scan = Passing([table.slice(a, b - a) for a, b in pairwise(cuts)], layout)
    columns = (layout.column("v"),)
    cache = TupleCache(columns, 1 << 20)
    keys = ScatteredHotKeys(columns, cache.layout, scan, nbytes=nbytes, bits=12)  # type: ignore[arg-type]
    for act in [*acts, *["step"] * (pages + late), "take"]:
        if act == "step":
            scan.step(keys)
        elif act == "age":
            keys.age()
        elif act == "take":
            waiting = keys.waiting_bytes
            given_rows = keys.take(cache)
            assert (given_rows is None) == (waiting == 0)
            if given_rows is None:
                continue
            assert given_rows.codes.tolist() == sorted(given_rows.codes.tolist())
            assert given_rows.batch.get_total_buffer_size() <= nbytes
            found = sorted(zip(given_rows.codes.tolist(), given_rows.batch.column(1).to_pylist(), strict=True))
            given_keys = set(given_rows.codes.tolist())
            assert found == sorted((k, v) for k, v in zip(rows, values, strict=True) if k in given_keys)
        else:
            keys.miss(np.repeat(np.array(sorted(act), np.int64), [act[key] for key in sorted(act)]))


def test_a_key_too_large_for_its_part_of_the_memory_is_let_go() -> None:
    values = ["x" * (1000 if i % 2 else 1) for i in range(200)]
    table = pa.record_batch({"k": pa.array([1, 2] * 100, pa.int64()), "v": values})
    layout = PageLayout.with_codes(table.schema)
    scan = Passing([table.slice(at, 20) for at in range(0, 200, 20)], layout)
    columns = (layout.column("v"),)
    cache = TupleCache(columns, 1 << 20)
    keys = ScatteredHotKeys(columns, cache.layout, scan, nbytes=60_000, bits=12)  # type: ignore[arg-type]
    keys.miss(np.repeat(np.array([1, 2]), 10))
    for _ in range(10):
        scan.step(keys)
        assert keys.waiting_bytes == 0 or scan.pages_passed == 10
    rows = keys.take(cache)
    assert rows is not None
    assert rows.codes.tolist() == [1] * 100
    assert rows.frequency.tolist() == [10] * 100
    assert keys.take(cache) is None


def test_a_key_that_was_let_go_is_collected_anew() -> None:
    """Six keys of which not all fit: the hottest stay, and another, when it is hot again, has each row once."""
    keys_of_a_page = [1, 2, 3, 4, 5, 6]
    table = pa.record_batch({"k": pa.array(keys_of_a_page * 10, pa.int64()), "v": [f"{i:0200}" for i in range(60)]})
    layout = PageLayout.with_codes(table.schema)
    scan = Passing([table.slice(at, 6) for at in range(0, 60, 6)], layout)
    columns = (layout.column("v"),)
    cache = TupleCache(columns, 1 << 20)
    keys = ScatteredHotKeys(columns, cache.layout, scan, nbytes=12_000, bits=12)  # type: ignore[arg-type]
    for asked, given_keys in (({1: 10, 2: 11, 3: 12, 4: 13, 5: 14, 6: 15}, [4, 5, 6]), ({1: 10}, [1])):
        keys.miss(np.repeat(np.array(list(asked)), list(asked.values())))
        for _ in range(10):
            scan.step(keys)
        rows = keys.take(cache)
        assert rows is not None
        assert rows.codes.tolist() == np.repeat(given_keys, 10).tolist()
        assert len(set(rows.batch.column(1).to_pylist())) == rows.batch.num_rows
        keys.age()  # keys given or dropped may come again


def test_keys_without_rows_make_room_and_none_is_followed_twice() -> None:
    table = pa.record_batch({"k": pa.array([1, 2, 1, 2], pa.int64()), "v": ["a", "b", "c", "d"]})
    layout = PageLayout.with_codes(table.schema)
    scan = Passing([table.slice(at, 1) for at in range(4)], layout)
    columns = (layout.column("v"),)
    cache = TupleCache(columns, 1 << 20)
    keys = ScatteredHotKeys(columns, cache.layout, scan, nbytes=20_000, bits=14)  # type: ignore[arg-type]
    keys.miss(np.repeat(np.arange(100, 1000), 4))  # more than there is room for
    keys.miss(np.repeat(np.array([1]), 4))
    for _ in range(4):
        scan.step(keys)
    assert (keys.waiting_bytes, keys.full) == (0, False)
    keys.miss(np.repeat(np.array([1, 2]), 4))
    keys.age()
    keys.miss(np.repeat(np.array([1, 2]), 4))
    for _ in range(6):
        scan.step(keys)
    rows = keys.take(cache)
    assert rows is not None
    assert (rows.codes.tolist(), rows.frequency.tolist()) == ([1, 1, 2, 2], [6] * 4)
    assert rows.batch.column(1).to_pylist() == ["a", "c", "b", "d"]
