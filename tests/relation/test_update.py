"""Updates share untouched pages, and never lose another writer's changes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from semistream.errors import ColumnNotFound, InvalidArgument, NotARelation, RelationError, SemistreamError
from semistream.relation import Relation
from tests.relation.row_sets import files_under, row_set, scratch_folder


@pytest.fixture
def relation() -> Iterator[Relation]:
    """Keys 0, 2, 4 ... in about fifty pages."""
    with scratch_folder() as folder:
        keys = np.arange(0, 10_000, 2)
        yield Relation.build(pa.table({"k": keys, "v": -keys}), folder / "r", key="k", page_bytes=2048, fill_factor=0.8)


def _rows(*keys: int, v: int = 7) -> pa.Table:
    return pa.table({"k": list(keys), "v": [v] * len(keys)}, schema=pa.schema([("k", pa.int64()), ("v", pa.int64())]))


def _entries(relation: Relation) -> set[tuple[str, int, int, int]]:
    """Every page by the file, place and checksum that it has."""
    table, files = relation.table, relation.manifest.files
    columns = (table.file.tolist(), table.offset.tolist(), table.nbytes.tolist(), table.segments[0].checksum.tolist())
    return {(files[f].name, offset, nbytes, sum_) for f, offset, nbytes, sum_ in zip(*columns, strict=True)}


@pytest.mark.parametrize("change", ["replace", "insert", "delete"])
def test_only_the_touched_page_is_written_again(relation: Relation, change: str) -> None:
    if change == "delete":
        updated = relation.update(deletes=[5000])
    else:
        updated = relation.update(upserts=_rows(5000 if change == "replace" else 5001))
    old, new = _entries(relation), _entries(updated)
    assert len(old - new) == len(new - old) == 1
    assert len(updated.manifest.files) == 2
    assert updated.manifest.files[0] == relation.manifest.files[0]
    assert updated.manifest.files[1].nbytes < 4096
    assert updated.num_rows == relation.num_rows + {"replace": 0, "insert": 1, "delete": -1}[change]


def test_fill_factor_leaves_room_so_that_an_insert_splits_no_page(relation: Relation) -> None:
    updated = relation.update(upserts=_rows(*range(1, 2001, 100)))
    assert updated.num_pages == relation.num_pages
    full = relation.update(upserts=_rows(*range(1, 2001, 2)))
    assert full.num_pages > relation.num_pages
    assert full.table.nbytes.max() <= 2048


def test_keys_before_the_first_and_after_the_last_page_find_their_place(relation: Relation) -> None:
    updated = relation.update(upserts=_rows(-(2**63), -1, 2**63 - 1))
    keys = updated.scan(["k"]).read_all()["k"].to_pylist()
    assert keys == [-(2**63), -1, *range(0, 10_000, 2), 2**63 - 1]
    assert updated.verify().rows == 5003


def test_page_that_loses_all_rows_is_gone_and_the_rest_stays(relation: Relation) -> None:
    first, last = int(relation.table.first_code[3]), int(relation.table.last_code[3])
    updated = relation.update(deletes=list(range(first, last + 1)))
    assert updated.num_pages == relation.num_pages - 1
    assert _entries(updated) < _entries(relation)
    assert updated.verify().pages == updated.num_pages
    assert files_under(relation.path / "data") == {Path(file.name).name for file in relation.manifest.files}


def test_all_rows_can_go_and_come_back(relation: Relation) -> None:
    empty = relation.update(deletes=pa.array(np.arange(10_000)))
    assert (empty.num_rows, empty.num_pages) == (0, 0)
    assert empty.scan().read_all().num_rows == 0
    assert empty.update(deletes=[1]).verify().rows == 0
    again = empty.update(upserts=_rows(3, 1, 2, 2))
    assert again.scan().read_all()["k"].to_pylist() == [1, 2, 2, 3]
    assert row_set(relation.scan()) == row_set(Relation.open(relation.path, version=1).scan())


def test_update_of_nothing_publishes_a_version_that_shares_every_page(relation: Relation) -> None:
    for deletes in ([], [1, 3, 99_999]):
        updated = relation.update(deletes=deletes)
        assert {page[3] for page in _entries(updated)} == {page[3] for page in _entries(relation)}
        assert updated.verify().rows == 5000
    needed = {Path(f.name).name for v in updated.versions() for f in Relation.open(relation.path, v).manifest.files}
    assert files_under(relation.path / "data") == needed


def test_key_in_upserts_and_deletes_is_replaced(relation: Relation) -> None:
    updated = relation.update(upserts=_rows(10, 12), deletes=[12, 14])
    assert updated.lookup([10, 12, 14]).to_pydict() == {"k": [10, 12], "v": [7, 7]}


def test_upsert_replaces_all_rows_of_its_key(relation: Relation) -> None:
    thrice = relation.update(upserts=_rows(10, 10, 10))
    assert thrice.lookup([10]).num_rows == 3
    assert thrice.update(upserts=_rows(10, v=1)).lookup([10]).to_pydict() == {"k": [10], "v": [1]}


def test_stale_handle_updates_the_current_version_and_keeps_both_changes(relation: Relation) -> None:
    relation.update(upserts=_rows(1, v=100))
    updated = relation.update(upserts=_rows(3, v=300), deletes=[0])
    assert updated.version == 3
    assert updated.lookup([0, 1, 3]).to_pydict() == {"k": [1, 3], "v": [100, 300]}


def test_update_by_way_of_a_part_keeps_the_rows_outside_it(relation: Relation) -> None:
    part = relation.part(0, 100)
    assert part.num_pages < relation.num_pages
    updated = part.update(upserts=_rows(1, 9001))
    assert updated.num_rows == 5002
    assert updated.verify().rows == 5002


def test_open_handle_still_reads_its_own_version_after_updates(relation: Relation) -> None:
    before = row_set(relation.scan())
    for _ in range(3):
        Relation.open(relation.path).update(deletes=list(range(0, 5000, 2)), upserts=_rows(1))
    assert row_set(relation.scan()) == before
    assert relation.lookup([0, 1])["k"].to_pylist() == [0]
    assert relation.refreshed().lookup([0, 1])["k"].to_pylist() == [1]
    assert relation.refreshed().refreshed().version == 4


def test_columns_of_upserts_come_in_any_order_and_are_cast(relation: Relation) -> None:
    upserts = pa.table({"v": pa.array([1.0]), "k": pa.array([0], pa.int8())})
    assert relation.update(upserts=upserts).lookup([0])["v"].to_pylist() == [1]


def test_upserts_that_do_not_fit_are_refused_and_nothing_changes(relation: Relation) -> None:
    files = files_under(relation.path)
    for upserts, error, message in [
        (pa.table({"k": [1]}), ColumnNotFound, "upserts has no column 'v'; it has 'k'"),
        (pa.table({"k": [1], "v": [1], "w": [1]}), InvalidArgument, "columns unknown to the relation: w"),
        (pa.table([[1], [1], [1]], names=["k", "v", "v"]), InvalidArgument, "several columns called v"),
        (pa.table({"k": [1], "v": ["x"]}), SemistreamError, "do not fit the relation's columns"),
        (pa.table({"k": [1], "v": [0.5]}), SemistreamError, "do not fit the relation's columns"),
        (pa.table({"k": [1], "v": [[1]]}), SemistreamError, "do not fit the relation's columns"),
        (5, InvalidArgument, "data is a int"),
    ]:
        with pytest.raises(error, match=message):
            relation.update(upserts=upserts)
    with pytest.raises(InvalidArgument, match="neither upserts nor deletes"):
        relation.update()
    with pytest.raises(SemistreamError, match="relation key 'k' is int64"):
        relation.update(deletes=["a"])
    assert files_under(relation.path) == files
    assert Relation.open(relation.path).version == 1


def test_relation_that_is_gone_cannot_be_updated(relation: Relation) -> None:
    for path in sorted(relation.path.rglob("*"), reverse=True):
        path.rmdir() if path.is_dir() else path.unlink()
    with pytest.raises(NotARelation, match="no file CURRENT"):
        relation.update(deletes=[1])
    assert files_under(relation.path) == set()


def test_rebuild_with_overwrite_is_a_new_version_of_other_columns(relation: Relation) -> None:
    with pytest.raises(RelationError, match="overwrite=True"):
        Relation.build(_rows(1), relation.path, key="k")
    rebuilt = Relation.build(pa.table({"name": ["a"]}), relation.path, key="name", overwrite=True)
    assert (rebuilt.version, rebuilt.key, rebuilt.num_rows) == (2, ("name",), 1)
    assert row_set(Relation.open(relation.path, version=1).scan()) == row_set(relation.scan())
    assert relation.update(upserts=pa.table({"name": ["b"]})).num_rows == 2  # a stale handle follows
