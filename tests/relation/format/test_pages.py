"""Pages on disk: their sizes, their order, and their readability by any Arrow reader."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from semistream.relation import Relation
from semistream.relation.format.page_layout import CODE_COLUMN
from semistream.relation.format.page_table import PageTable, SegmentTable
from tests.relation.arrow_samples import NESTED, PLAIN, UNIONS
from tests.relation.row_sets import row_set, scratch_folder


def _pages(relation: Relation) -> list[pa.RecordBatch]:
    """The pages by way of Arrow's own reader."""
    found = []
    for path in relation.data_files:
        with pa.OSFile(str(path)) as source:
            reader = pa.ipc.open_file(source)
            found += [reader.get_batch(i) for i in range(reader.num_record_batches)]
    return found


def _wide_rows(seed: int, rows: int) -> pa.Table:
    rng = np.random.default_rng(seed)
    sizes = rng.choice([0, 3, 40, 400], rows, p=[0.4, 0.3, 0.25, 0.05])
    return pa.table(
        {
            "k": rng.integers(0, 50, rows),
            "s": pa.array(["x" * n if n != 3 else None for n in sizes], pa.string()),
            "b": pa.array(rng.random(rows) < 0.5),
            "l": pa.array([["y" * 5] * (n // 8) for n in sizes], pa.list_(pa.string())),
            "m": pa.array([[(str(i), i) for i in range(n // 20)] for n in sizes], pa.map_(pa.string(), pa.int64())),
        }
    )


@settings(max_examples=25, deadline=None)
@given(
    seed=st.integers(0, 1000),
    rows=st.integers(0, 400),
    page_bytes=st.sampled_from([2048, 4096, 8192, 65536]),
    fill_factor=st.sampled_from([0.5, 0.8, 1.0]),
)
def test_pages_hold_at_most_their_share_and_are_in_order(
    seed: int, rows: int, page_bytes: int, fill_factor: float
) -> None:
    table = _wide_rows(seed, rows)
    with scratch_folder() as folder:
        relation = Relation.build(table, folder / "r", key="k", page_bytes=page_bytes, fill_factor=fill_factor)
        pages, entries = _pages(relation), relation.table
        assert [page.num_rows for page in pages] == entries.rows.tolist()
        assert all(
            nbytes <= page_bytes * fill_factor or n == 1 for nbytes, n in zip(entries.nbytes, entries.rows, strict=True)
        )
        assert row_set(pa.Table.from_batches(pages, relation.layout.schema)) == row_set(table)
        keys = [page["k"].to_pylist() for page in pages]
        assert [code for page in keys for code in page] == sorted(table["k"].to_pylist())
        assert [page[0] for page in keys] == entries.first_code.tolist()
        assert [page[-1] for page in keys] == entries.last_code.tolist()


@pytest.mark.parametrize("name", PLAIN | NESTED | UNIONS)
def test_no_type_makes_pages_larger_than_asked(name: str) -> None:
    sample = (PLAIN | NESTED | UNIONS)[name]
    values = sample.take(pa.array(np.arange(600) % len(sample)))
    with scratch_folder() as folder:
        relation = Relation.build(pa.table({"k": np.arange(600), "v": values}), folder / "r", key="k", page_bytes=2048)
        assert relation.table.nbytes.max() <= 2048


@settings(max_examples=30, deadline=None)
@given(
    columns=st.lists(st.tuples(st.sampled_from(sorted(PLAIN | NESTED)), st.booleans()), max_size=3),
    texts=st.lists(st.integers(0, 90), min_size=1, max_size=150),
    page_bytes=st.integers(512, 2100),
    seed=st.integers(0, 1000),
)
def test_a_page_of_several_rows_is_never_larger_than_asked(
    columns: list[tuple[str, bool]], texts: list[int], page_bytes: int, seed: int
) -> None:
    """Any padding that Arrow gives to buffers cut out of larger ones."""
    rng, rows = np.random.default_rng(seed), len(texts)
    table = pa.table({"k": rng.integers(0, rows, rows), "text": ["x" * size for size in texts]})
    for name, without_nulls in columns:
        sample = (PLAIN | NESTED | UNIONS)[name]
        values = sample.drop_null() if without_nulls and sample.null_count < len(sample) else sample
        picked = values.take(pa.array(rng.integers(0, len(values), rows)))
        table = table.append_column(f"{table.num_columns} {name}", picked)
    for wanted in (table, table.drop_columns("text")):
        with scratch_folder() as folder:
            built = Relation.build(wanted, folder / "r", key="k", page_bytes=page_bytes)
            for relation in (built, built.update(wanted.slice(0, rows // 3))):
                several = relation.table.rows > 1
                assert relation.table.nbytes[several].max(initial=0) <= page_bytes


def test_pages_are_well_filled() -> None:
    table = pa.table({"k": np.arange(20_000), **{f"c{i}": np.arange(20_000) for i in range(14)}})
    with scratch_folder() as folder:
        for page_bytes in (8192, 65536):
            relation = Relation.build(table, folder / str(page_bytes), key="k", page_bytes=page_bytes)
            assert relation.nbytes / relation.num_pages > 0.85 * page_bytes
            assert relation.num_rows * 15 * 8 <= relation.nbytes == relation.table.nbytes.sum()


def test_papers_page_of_8_kb_holds_64_tuples_of_120_bytes() -> None:
    table = pa.table({"k": np.arange(640), **{f"c{i}": np.arange(640) for i in range(12)}})
    with scratch_folder() as folder:
        relation = Relation.build(table, folder / "r", key="k", page_bytes=8192)
        assert relation.table.rows[0] >= 64


def test_row_wider_than_a_page_has_a_page_of_its_own() -> None:
    table = pa.table({"k": [1, 2, 3, 4], "s": ["a", "x" * 10_000, "b", "c"]})
    with scratch_folder() as folder:
        relation = Relation.build(table, folder / "r", key="k", page_bytes=1024)
        assert relation.table.rows.tolist() == [1, 1, 2]
        assert relation.scan().read_all().equals(table)
        assert relation.lookup([2])["s"].to_pylist() == ["x" * 10_000]
        assert relation.update(upserts=pa.table({"k": [3], "s": ["y" * 5000]})).verify().rows == 4


def test_more_columns_than_a_page_has_room_for_still_work() -> None:
    table = pa.table({"k": [1, 2], **{f"c{i}": [i, None] for i in range(100)}})
    with scratch_folder() as folder:
        relation = Relation.build(table, folder / "r", key="k", page_bytes=512)
        assert relation.table.rows.tolist() == [1, 1]
        assert relation.scan().read_all().equals(table)


@pytest.mark.parametrize("rows", [0, 1])
def test_empty_relation_and_one_row(rows: int) -> None:
    table = pa.table({"k": pa.array(["a"] * rows, pa.string()), "v": pa.array([1] * rows, pa.int64())})
    with scratch_folder() as folder:
        relation = Relation.build(table, folder / "r", key="k")
        assert (relation.num_rows, relation.num_pages) == (rows, rows)
        assert relation.scan().read_all().equals(table)
        assert relation.lookup(["a", "b"]).num_rows == rows
        assert relation.verify().rows == rows
        assert relation.part(0, 10).num_pages in (0, rows)
        assert relation.update(deletes=["a"]).num_rows == 0


def test_duplicates_that_span_pages_are_all_found() -> None:
    keys = [1] * 5 + [2] * 1000 + [3] * 5
    table = pa.table({"k": keys, "row": np.arange(len(keys))})
    with scratch_folder() as folder:
        relation = Relation.build(table, folder / "r", key="k", page_bytes=1024)
        assert relation.num_pages > 10
        assert sorted(relation.lookup([2])["row"].to_pylist()) == list(range(5, 1005))
        assert relation.update(deletes=[2]).scan(["k"]).read_all()["k"].to_pylist() == [1] * 5 + [3] * 5


def test_pages_lie_one_behind_the_other() -> None:
    with scratch_folder() as folder:
        relation = Relation.build(pa.table({"k": np.arange(3000)}), folder / "r", key="k", page_bytes=1024)
        entries = relation.table
        assert (entries.offset % 8 == 0).all()
        assert all(a + n == b for (a, b), n in zip(pairwise(entries.offset), entries.nbytes, strict=False))
        assert entries.cut_runs(np.arange(len(entries)), 1 << 30).tolist() == [0, len(entries)]


@given(
    gaps=st.lists(st.integers(1, 40), min_size=1, max_size=12),
    run_bytes=st.integers(100, 20_000),
    run_pages=st.one_of(st.none(), st.integers(1, 4)),
)
def test_runs_cover_the_pages_asked_for(gaps: list[int], run_bytes: int, run_pages: int | None) -> None:
    nbytes = np.random.default_rng(0).integers(100, 2000, 60)
    zeros, ones = np.zeros(60, np.int64), np.ones(60, np.int32)
    files = np.repeat(np.arange(3, dtype=np.int32), 20)
    segments = SegmentTable.unverified(np.cumsum(nbytes) - nbytes, nbytes, zeros.astype(np.uint64))
    table = PageTable(files, ones, zeros, zeros, (segments,))
    pages = np.unique(np.cumsum(gaps) % 60)
    cuts = table.cut_runs(pages, run_bytes, run_pages).tolist()
    assert (cuts[0], cuts[-1]) == (0, pages.size)
    for begin, end in pairwise(cuts):
        run = pages[begin:end]
        assert run.size >= 1
        assert (np.diff(run) == 1).all()
        assert np.unique(files[run]).size == 1
        assert run.size == 1 or (nbytes[run].sum() <= run_bytes and run.size <= (run_pages or run.size))


def test_codes_are_stored_only_where_the_key_is_not_its_own_code() -> None:
    with scratch_folder() as folder:
        plain = Relation.build(pa.table({"k": [1]}), folder / "a", key="k")
        hashed = Relation.build(pa.table({"k": ["x"]}), folder / "b", key="k")
        assert CODE_COLUMN not in _pages(plain)[0].schema.names
        assert CODE_COLUMN in _pages(hashed)[0].schema.names
        assert CODE_COLUMN not in hashed.scan().schema.names
