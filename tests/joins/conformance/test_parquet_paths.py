"""ParquetRelation: paths that hold Parquet, Delta tables, files written again, and what a scan leaves open."""

from __future__ import annotations

import sys
import threading
from pathlib import Path

import psutil
import pyarrow as pa
import pytest

from semistream import (
    HybridJoin,
    MeshJoin,
    ParquetRelation,
    Relation,
    join,
)
from semistream.errors import ColumnNotFound, InvalidArgument, RelationError
from tests.joins.conformance.checks import run
from tests.joins.conformance.parquet_files import MEMORY, every_scan, joined, orders, products, write
from tests.oracle import batch_join, multiset


@pytest.mark.parametrize("mode", ["direct", "nothing"])
def test_other_disks_are_refused(tmp_path: Path, mode: str) -> None:
    with pytest.raises(InvalidArgument, match=f"disk is '{mode}'; for Parquet, give 'auto', 'buffered'"):
        joined(orders(), write(products(), tmp_path / "r.parquet"), disk=mode)


def test_paths_that_hold_no_parquet_are_refused(tmp_path: Path) -> None:
    (tmp_path / "d").mkdir()
    with pytest.raises(RelationError, match="holds no files"):
        ParquetRelation.open(tmp_path / "d")
    (tmp_path / "d/x.csv").write_text("a\n1\n")
    with pytest.raises(RelationError, match=r"files ending in \.csv"):
        ParquetRelation.open(tmp_path / "d")
    with pytest.raises(RelationError, match="does not exist"):
        ParquetRelation.open(tmp_path / "none")
    (tmp_path / "x.parquet").write_bytes(b"PAR1 and nothing")
    with pytest.raises(RelationError, match=r"x\.parquet is not a Parquet file, or is damaged"):
        ParquetRelation.open(tmp_path / "x.parquet")
    with pytest.raises(ColumnNotFound, match="has no column 'nam'"):
        joined(orders(), write(products(), tmp_path / "r.parquet"), columns=["nam"])


@every_scan
def test_a_file_that_was_written_again_is_noticed_and_a_refresh_takes_it(tmp_path: Path, kind: type[MeshJoin]) -> None:
    path = write(pa.table({"id": [1], "v": [1]}), tmp_path / "r.parquet")
    relation = ParquetRelation.open(path)
    assert relation.refreshed() is relation
    stream = pa.table({"product": [1]})
    batch = stream.to_batches()[0]
    with kind(relation, stream.schema, on={"product": "id"}, memory=MEMORY) as operator:
        assert run(operator, (batch,)).column("v").to_pylist() == [1]
        write(pa.table({"id": [1, 1], "v": [2, 3]}), path)
        with pytest.raises(RelationError, match="was rewritten after the data set was opened"):
            run(operator, (batch,))
    newer = relation.refreshed()
    assert newer.version != relation.version
    with kind(relation, stream.schema, on={"product": "id"}, memory=MEMORY) as operator:
        operator.refresh(newer)
        assert run(operator, (batch,)).column("v").to_pylist() == [2, 3]
        assert operator.stats.versions == {newer.version: 1}


def open_files() -> list[tuple[str, int]]:
    """The files of this process, without their positions: a log goes on."""
    return [(file.path, file.fd) for file in psutil.Process().open_files()]


@every_scan
def test_a_closed_scan_leaves_no_thread_and_no_file(tmp_path: Path, kind: type[MeshJoin]) -> None:
    relation = ParquetRelation.open(write(products(), tmp_path / "r.parquet", row_group_size=500), page_bytes=4096)
    threads, before = threading.active_count(), open_files()
    stream = orders()
    operator = kind(relation, stream.schema, on={"product": "id"}, memory=MEMORY)
    list(operator.push(stream.to_batches()[0]))
    list(operator.step())
    assert threading.active_count() == threads + 1
    operator.close()
    operator.close()
    assert (threading.active_count(), open_files()) == (threads, before)
    reader = relation.scan()
    reader.read_next_batch()
    del reader
    assert (threading.active_count(), open_files()) == (threads, before)


def test_an_error_of_the_thread_reaches_the_caller_each_time(tmp_path: Path) -> None:
    path = write(products(), tmp_path / "r.parquet", row_group_size=1000)
    relation = ParquetRelation.open(path)
    reader = relation.reader(buffers=2)
    path.unlink()
    reader.ask(0)
    for _ in range(2):
        with pytest.raises(RelationError, match="was removed"):
            reader.take()
    reader.close()


def test_join_takes_a_path_to_parquet(tmp_path: Path) -> None:
    table, stream = products(), orders()
    expected = multiset(batch_join(stream, table, {"product": "id"}, "left", ["name", "tags", "price"]))
    write(table.slice(0, 2000), tmp_path / "d/1.parquet")
    write(table.slice(2000), tmp_path / "d/2.parquet")
    results = join(stream, str(tmp_path / "d"), on={"product": "id"}, how="left", memory=MEMORY)
    assert "mesh join" in results.explain()
    assert multiset(results.read_all()) == expected


def test_clustered_tells_the_kinds_apart(tmp_path: Path) -> None:
    path = write(products(), tmp_path / "r.parquet")
    assert not ParquetRelation.open(path).clustered
    assert Relation.build(path, tmp_path / "r", key="id").clustered


def test_a_delta_table_is_read_by_its_log(tmp_path: Path) -> None:
    deltalake = pytest.importorskip("deltalake")
    path = tmp_path / "t"
    first = pa.table({"id": [1, 2, 3], "at": ["a b/ü", None, "y"], "v": [1, 2, 3]})
    deltalake.write_deltalake(path, first, partition_by=["at"])
    relation = ParquetRelation.open(path)
    assert relation.version == 0
    deltalake.DeltaTable(path).delete("id = 3")
    more = pa.table({"id": [4], "at": ["y"], "v": [4], "w": ["new"]})
    deltalake.write_deltalake(path, more, mode="append", schema_mode="merge")
    newer = relation.refreshed()
    assert newer.version == 2
    stream = pa.table({"product": [1, 2, 3, 4]})
    rows = {"product": [1, 2, 4], "at": ["a b/ü", None, "y"], "v": [1, 2, 4], "w": [None, None, "new"]}
    assert multiset(joined(stream, newer).select(list(rows))) == multiset(pa.table(rows))
    assert joined(stream, relation).num_rows == 3  # the old version's files are still there
    with pytest.raises(InvalidArgument, match=r"Relation\.build\(ParquetRelation\.open\(.*\)\.scan\(\), "):
        HybridJoin(newer, stream.schema, on={"product": "id"}, memory=MEMORY)
    built = Relation.build(newer.scan(), tmp_path / "r", key="id")
    assert built.num_rows == 3


def test_a_delta_table_with_rows_that_its_files_do_not_tell_is_refused(tmp_path: Path) -> None:
    deltalake = pytest.importorskip("deltalake")
    mapped = {"delta.columnMapping.mode": "name"}
    from semistream.relation.parquet.data_files import _require_plain_files

    deltalake.write_deltalake(tmp_path / "t", pa.table({"id": [1]}))
    protocol = deltalake.DeltaTable(tmp_path / "t").protocol()
    _require_plain_files(tmp_path, protocol, {})
    with pytest.raises(RelationError, match="columnMapping"):
        _require_plain_files(tmp_path, protocol, mapped)
    vectors = type(protocol)(3, 7, ["deletionVectors"], ["deletionVectors"])
    with pytest.raises(RelationError, match="deletionVectors"):
        _require_plain_files(tmp_path, vectors, {})


def test_a_delta_table_without_its_package_names_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "t/_delta_log").mkdir(parents=True)
    monkeypatch.setitem(sys.modules, "deltalake", None)
    with pytest.raises(RelationError, match=r"pip install 'semistream\[delta\]'"):
        ParquetRelation.open(tmp_path / "t")
