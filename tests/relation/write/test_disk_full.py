"""A disk that fills up: a clear error, nothing published, nothing left."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from semistream.relation import Relation
from semistream.relation.write.external_sort import sort_batches
from tests.relation.child_process import limit_file_size, run_child
from tests.relation.row_sets import files_under, row_set, scratch_folder

ROWS = 60_000


def _batches(null_keys: bool = False) -> Iterator[pa.RecordBatch]:
    for begin in range(0, ROWS, 10_000):
        keys = np.arange(begin, begin + 10_000)
        yield pa.record_batch({"k": pa.nulls(10_000, pa.int64()) if null_keys else pa.array(keys), "v": keys})


def _build(path: Path, nbytes: int, null_keys: bool, overwrite: bool) -> None:
    limit_file_size(nbytes)
    Relation.build(_batches(null_keys), path, key="k", page_bytes=1024, overwrite=overwrite)


def _update(path: Path, nbytes: int, upserts: int) -> None:
    relation = Relation.open(path)
    limit_file_size(nbytes)
    keys = np.arange(upserts) * 2
    relation.update(upserts=pa.table({"k": keys, "v": -keys}))


@pytest.mark.parametrize(
    ("nbytes", "null_keys"), [(100, False), (300_000, False), (ROWS * 16, False), (100, True), (ROWS * 16, True)]
)
def test_build_on_a_full_disk_leaves_nothing(nbytes: int, null_keys: bool) -> None:
    with scratch_folder() as folder:
        code, error = run_child(_build, folder / "r", nbytes, null_keys, False)
        assert code == 0
        assert "File too large" in error
        assert list(folder.iterdir()) == []


def test_rebuild_on_a_full_disk_keeps_the_old_version() -> None:
    with scratch_folder() as folder:
        old = Relation.build(pa.table({"k": [1, 2]}), folder / "r", key="k")
        files = files_under(folder)
        _, error = run_child(_build, folder / "r", 100_000, False, True)
        assert "File too large" in error
        assert files_under(folder) == files
        assert old.verify().rows == 2


@pytest.mark.parametrize(
    ("nbytes", "upserts"),
    [(100, 10), (20_000, 5000), (20_000, 1)],
    ids=["first byte", "pages", "page table"],
)
def test_update_on_a_full_disk_keeps_the_old_version(nbytes: int, upserts: int) -> None:
    with scratch_folder() as folder:
        relation = Relation.build(_batches(), folder / "r", key="k", page_bytes=1024)
        assert relation.manifest.page_table.nbytes > 20_000
        rows, files = row_set(relation.scan()), files_under(folder)
        _, error = run_child(_update, folder / "r", nbytes, upserts)
        assert "File too large" in error
        assert files_under(folder) == files
        assert not any((folder / "r" / "data").glob(".*"))
        opened = Relation.open(folder / "r")
        assert opened.version == 1
        assert opened.verify().rows == ROWS
        assert row_set(opened.scan()) == rows
        assert opened.update(deletes=[0]).num_rows == ROWS - 1


def _delete(path: Path, nbytes: int, deletes: int) -> None:
    relation = Relation.open(path)
    limit_file_size(nbytes)
    relation.update(deletes=list(range(10, 10 + deletes)))


def test_update_whose_changes_do_not_fit_keeps_the_old_version() -> None:
    with scratch_folder() as folder:
        relation = Relation.build(pa.table({"k": [1, 2]}), folder / "r", key="k")
        files = files_under(folder)
        _, error = run_child(_delete, folder / "r", 20_000, 10_000)  # none of them is there: only the codes are long
        assert "File too large" in error
        assert files_under(folder) == files
        assert relation.refreshed().verify().rows == 2
        assert run_child(_delete, folder / "r", 20_000, 1000) == (0, None)
        assert relation.refreshed().version == 2


def _spill(scratch: Path) -> int:
    limit_file_size(1 << 20)
    schema = pa.schema([("k", pa.int64()), *((f"c{i}", pa.int64()) for i in range(9))])
    rng = np.random.default_rng(0)
    batches = (
        pa.RecordBatch.from_arrays([pa.array(rng.integers(0, 10**9, 20_000))] * 10, schema=schema) for _ in range(60)
    )
    return sum(b.num_rows for b in sort_batches(batches, schema, by="k", memory_bytes=32 << 20, scratch=scratch))


@pytest.mark.slow
def test_sort_that_cannot_spill_says_so() -> None:
    with scratch_folder() as folder:
        _, error = run_child(_spill, folder)
        assert str(error).startswith("RelationError: the sort failed: ")
        assert "Free disk space there, or raise memory" in error
        assert "\n" not in error
