"""TupleCache: all rows of a key or none, the hottest keys kept, in its bytes, against a dictionary."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from semistream.joins.cache.index import ProbeRoom
from semistream.joins.cache.tuple_cache import CacheRows, TupleCache
from semistream.relation.format.page_layout import PageLayout

SCHEMA = pa.schema([("name", pa.string()), ("n", pa.int64()), ("tags", pa.list_(pa.int16()))])
COLUMNS = PageLayout.with_codes(SCHEMA).columns[1:]


def rows_of(cache: TupleCache, keys: dict[int, tuple[int, int, int]]) -> CacheRows:
    """Rows of keys: code -> (rows, frequency, bytes of its name)."""
    codes, names, numbers, frequency = [], [], [], []
    for code, (rows, asked, width) in sorted(keys.items()):
        for i in range(rows):
            codes.append(code)
            names.append(f"{code}.{i}" + "x" * width)
            numbers.append(code % 10**9 * 1000 + i)
            frequency.append(asked)
    arrays = [pa.array(codes, pa.int64()), pa.array(names), pa.array(numbers, pa.int64())]
    arrays.append(pa.array([[n % 7] * (n % 3) for n in numbers], pa.list_(pa.int16())))
    return CacheRows(pa.RecordBatch.from_arrays(arrays, schema=cache.layout.schema), np.array(frequency, np.int32))


def contents(cache: TupleCache) -> dict[int, list[tuple[str, int, list[int]]]]:
    """Every cached row by code, read back by probing for it."""
    codes = np.unique(cache.codes)
    found: dict[int, list[tuple[str, int, list[int]]]] = {}
    room = ProbeRoom(codes.size + 1, 7)
    for at, pages, rows in cache.probe(codes, None, room):
        assert np.all(np.diff(pages) >= 0)
        values = zip(*(a.to_pylist() for a in cache.run.gather(cache.columns, pages, rows)), strict=True)
        for code, value in zip(codes[at].tolist(), values, strict=True):
            found.setdefault(code, []).append(value)
    assert room.missed.size == 0
    return {code: sorted(rows) for code, rows in found.items()}


keys = st.dictionaries(
    st.integers(-(2**62), 2**62) | st.integers(0, 60),
    st.tuples(st.integers(1, 5), st.integers(0, 9), st.sampled_from([0, 3, 200, 6000])),
    max_size=60,
)


@given(batches=st.lists(keys, min_size=1, max_size=4), nbytes=st.sampled_from([0, 230_000, 300_000, 900_000]))
@settings(max_examples=80, deadline=None)
def test_a_key_is_held_with_all_its_rows_or_not_at_all(batches: list[dict], nbytes: int) -> None:
    cache = TupleCache(COLUMNS, nbytes)
    given_rows: dict[int, list] = {}
    for batch in batches:
        new = {code: row for code, row in batch.items() if code not in contents(cache)}
        rows = rows_of(cache, new)
        cut = cache.admit(rows)
        for code in new:
            one = rows.batch.filter(pa.array(rows.codes == code))
            given_rows[code] = sorted(zip(*(c.to_pylist() for c in one.columns[1:]), strict=True))
        held = contents(cache)
        assert all(held[code] == given_rows[code] for code in held)
        assert cache.rows == sum(map(len, held.values())) == cache.codes.size == cache.frequency.size
        assert cache.everything().batch.num_rows == cache.rows
        asked = np.array([*held, *batch, 2**62 + 1], np.int64)
        assert cache.holds(asked).tolist() == [code in held for code in asked.tolist()]
        if cut == 0 and nbytes == 900_000:
            assert all(code in held for code, (_, _, width) in new.items() if width < 3000)
    gone = sorted(contents(cache))[::2]
    before = cache.rows
    assert cache.drop(np.array(gone, np.int64)) == before - cache.rows
    assert sorted(contents(cache)) == sorted(set(given_rows) & set(contents(cache)) - set(gone))


def test_the_keys_asked_for_least_give_way() -> None:
    cache = TupleCache(COLUMNS, 260_000)
    cold = dict.fromkeys(range(0, 4000, 2), (1, 1, 40))
    cache.admit(rows_of(cache, cold))
    assert cache.fill > 0.5
    hot = dict.fromkeys(range(1, 400, 2), (1, 5, 40))
    cut = cache.admit(rows_of(cache, hot))
    held = contents(cache)
    assert set(hot) <= set(held)
    assert cut in (0, 1)
    colder = dict.fromkeys(range(10001, 14000, 2), (1, 1, 40))
    cache.admit(rows_of(cache, colder))
    assert set(hot) <= set(contents(cache))
    assert cache.frames * cache._frame < 260_000


def test_probing_counts_and_ageing_halves() -> None:
    cache = TupleCache(COLUMNS, 300_000)
    cache.admit(rows_of(cache, {5: (2, 0, 0), 9: (1, 0, 0)}))
    room = ProbeRoom(8, 64)
    for _ in cache.probe(np.array([4, 5, 5, 9, 5, 9]), np.array([True] * 5 + [False]), room):
        pass
    assert cache.frequency.tolist() == [3, 3, 1]
    assert room.missed.tolist() == [0, 5]
    cache.age()
    assert cache.frequency.tolist() == [1, 1, 0]


@pytest.mark.parametrize("cold_rows", range(60, 140, 20))
@pytest.mark.parametrize("moved", [False, True])
def test_a_key_with_rows_in_several_pages_goes_from_all_of_them(cold_rows: int, moved: bool) -> None:
    """The key leaves as soon as there is no room, even with more rows than necessary.

    So it does after a move to a cache of another size, where its rows are not adjacent.
    """
    cache = TupleCache(COLUMNS, 100_000)
    hot = iter(range(1, 10_000))

    def admit_hot(keys: int) -> None:
        assert np.count_nonzero(cache.codes == 0) == cold_rows
        cache.admit(rows_of(cache, {next(hot): (1, 9, 20) for _ in range(keys)}))

    cache.admit(rows_of(cache, {0: (cold_rows, 0, 20)}))
    for _ in range(20):
        admit_hot(9)
    assert np.unique(cache.run.pages).size > 2
    if moved:
        rows, cache = cache.everything(), TupleCache(COLUMNS, 120_000)
        cache.admit(rows)
    while np.any(cache.codes == 0):
        assert cache.rows == np.count_nonzero(cache.codes) + cold_rows
        admit_hot(5)
    assert cache.fill > 0.8
    assert cache.rows == cache.codes.size == np.unique(cache.codes).size


@pytest.mark.parametrize("columns", [1, 14, 30])
def test_no_row_is_lost_but_those_asked_for_least(columns: int) -> None:
    """Pages are cut from slices, hold only whole rows, and are partly rewritten; no hot row may be lost."""
    schema = pa.schema([(f"c{i}", pa.int64()) for i in range(columns)])
    cache = TupleCache(PageLayout.with_codes(schema).columns[1:], 60_000 * (columns + 1))
    generator = np.random.default_rng(columns)
    asked: dict[int, int] = {}
    for codes in np.split(generator.permutation(6000), 60):
        rows = pa.record_batch([pa.array(codes), *(pa.array(codes) for _ in range(columns))], cache.layout.schema)
        frequency = generator.integers(1, 1000, codes.size).astype(np.int32)
        asked |= dict(zip(codes.tolist(), frequency.tolist(), strict=True))
        cut = cache.admit(CacheRows(rows, frequency))
        held = set(cache.codes.tolist())
        asked = {code: times for code, times in asked.items() if code in held or times >= cut}
        assert all(code in held for code, times in asked.items() if times > cut)
    assert 100 < cache.rows < 6000
    assert cache.fill > 0.9
