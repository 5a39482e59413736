"""HotKeys: keys found more often than the threshold are noted with all their rows, once, as far as there is room."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from semistream import Relation
from semistream.joins.cache.hot_keys import HotKeys
from semistream.joins.cache.tuple_cache import CacheRows, TupleCache
from semistream.relation import PageRun

KEYS = 120


@pytest.fixture(scope="module")
def relation(tmp_path_factory: pytest.TempPathFactory) -> Relation:
    """Keys with one to three rows each; some lie in two pages."""
    keys = [key for key in range(KEYS) for _ in range(1 + key % 3)]
    table = pa.table({"k": keys, "name": [f"{i}" * (i % 9) for i in range(len(keys))], "n": range(len(keys))})
    return Relation.build(table, tmp_path_factory.mktemp("hot") / "r", key="k", page_bytes=1200)


def _run(relation: Relation) -> PageRun:
    reader = relation.reader(run_bytes=relation.nbytes + 4096, disk=relation.disk("buffered"), buffers=1)
    reader.ask(np.arange(relation.num_pages))
    run: PageRun = reader.take()
    reader.close()
    return run


def _rows(run: PageRun) -> list[tuple[int, int, int]]:
    """(code, page, row) of all rows."""
    return [
        (int(run.words[run.code_starts[page] + row]), page, row)
        for page in range(run.pages.size)
        for row in range(int(run.rows[page]))
    ]


def _values(rows: CacheRows) -> list[tuple]:
    return sorted(zip(*(column.to_pylist() for column in rows.batch.columns), strict=True))


@pytest.mark.parametrize("names", [["n"], ["name", "n"]])
@settings(deadline=None, max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    finds=st.lists(st.lists(st.integers(0, KEYS - 1), max_size=80), min_size=1, max_size=4),
    threshold=st.integers(1, 3),
    nbytes=st.sampled_from([200, 2000, 100_000]),
    cached=st.sets(st.integers(0, KEYS - 1), max_size=20),
)
def test_hot_keys_are_noted_with_all_their_rows(
    relation: Relation, names: list[str], finds: list[list[int]], threshold: int, nbytes: int, cached: set[int]
) -> None:
    run = _run(relation)
    rows = _rows(run)
    pages_of = {key: {page for code, page, _ in rows if code == key} for key in range(KEYS)}
    columns = tuple(relation.layout.column(name) for name in names)
    cache = TupleCache(columns, 200_000)
    hot = HotKeys(columns, cache.layout, nbytes=nbytes, bits=16)
    hot.threshold = threshold
    data = {key: [run.gather(columns, *_place(rows, key))] for key in range(KEYS)}
    codes = [code for code, _, _ in rows if code in cached]
    held = [array for key in sorted(cached) for array in data[key]]
    if held:
        arrays = [pa.concat_arrays([arrays[i] for arrays in held]) for i in range(len(columns))]
        batch = pa.RecordBatch.from_arrays([pa.array(codes), *arrays], schema=cache.layout.schema)
        cache.admit(CacheRows(batch, np.full(len(codes), 9, np.int32)))
    counted: Counter[int] = Counter()
    for found in finds:
        wanted = Counter(found)
        pairs = [(page, row) for code, page, row in rows for _ in range(wanted[code])]
        counted.update(found)
        page, row = (np.array([pair[i] for pair in pairs], np.int32) for i in range(2))
        hot.observe(relation.table, run, page, row)
    full, waiting = hot.full, hot.waiting_bytes
    assert waiting <= nbytes
    noted = hot.take(cache)
    assert hot.take(cache) is None
    assert (hot.waiting_bytes, hot.full) == (0, False)
    frequency = {} if noted is None else dict(zip(noted.codes.tolist(), noted.frequency.tolist(), strict=True))
    worth = {key for key in counted if counted[key] > threshold and len(pages_of[key]) == 1} - cached
    assert set(frequency) <= worth
    assert full or set(frequency) == worth
    expected = sorted(
        (key, *values)
        for key in frequency
        for values in zip(*(array.to_pylist() for array in data[key][0]), strict=True)
    )
    assert ([] if noted is None else _values(noted)) == expected
    assert all(threshold < frequency[key] <= counted[key] for key in frequency)


def _place(rows: list[tuple[int, int, int]], key: int) -> tuple[np.ndarray, np.ndarray]:
    here = [(page, row) for code, page, row in rows if code == key]
    return np.array([page for page, _ in here], np.int32), np.array([row for _, row in here], np.int32)


def test_notes_of_another_version_are_forgotten(relation: Relation) -> None:
    run, columns = _run(relation), (relation.layout.column("n"),)
    cache = TupleCache(columns, 200_000)
    hot = HotKeys(columns, cache.layout, nbytes=10_000, bits=10)
    hot.observe(relation.table, run, np.zeros(9, np.int32), np.zeros(9, np.int32))
    assert hot.waiting_bytes > 0
    hot.forget()
    assert hot.waiting_bytes == 0
    assert hot.take(cache) is None
