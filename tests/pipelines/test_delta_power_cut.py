"""Delta tables after a power cut: a batch called done is durable, and a torn log is mended and committed again."""

import os
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable

from semistream.errors import PipelineError
from semistream.pipelines.spec.pipeline_spec import TableSpec
from semistream.pipelines.tables.delta import DeltaSink
from semistream.pipelines.tables.table import Owner
from semistream.pipelines.tables.writer import TableWriter
from tests.oracle import multiset

SCHEMA = pa.schema([("id", pa.int64()), ("day", pa.string())])
TORN = {
    "gone": lambda _: None,
    "empty": lambda _: b"",
    "zeros": lambda content: bytes(len(content)),
    "cut in a line": lambda content: content[: len(content) - 20],
    "cut between lines": lambda content: b"".join(content.splitlines(keepends=True)[:2]),
    "zeros at the end": lambda content: content[:64] + bytes(len(content) - 64),
}


def open_table(folder):
    spec = TableSpec(format="delta", path=folder, partition_by=("day",))
    table = DeltaSink(spec, SCHEMA, Owner("orders", "0123abcd"), folder / "outbox")
    table.open()
    return table


def open_again(folder):
    """The table as `semistream vacuum` sees it."""
    return DeltaSink(TableSpec(format="delta", path=folder), SCHEMA, Owner("orders", "0123abcd"), folder / "outbox")


def rows_of(batch):
    return pa.table({"id": [3 * batch, 3 * batch + 1, 3 * batch + 2], "day": ["a", "b", "a"]}, schema=SCHEMA)


def write(table, batch):
    writer = TableWriter(table.layout, f"{batch:012d}-0")
    writer.write(rows_of(batch).to_batches()[0])
    return writer.close()


def entry(folder, version):
    return folder / "_delta_log" / f"{version:020d}.json"


def tear(path, how):
    content = TORN[how](path.read_bytes())
    if content is None:
        path.unlink()
    else:
        path.write_bytes(content)


def read(folder):
    return DeltaTable(str(folder)).to_pyarrow_table().select(["id", "day"])


def assert_rows(folder, batches):
    assert multiset(read(folder)) == multiset(pa.concat_tables([rows_of(batch) for batch in batches]))


def test_nothing_of_a_committed_batch_is_left_unsynced(tmp_path, monkeypatch) -> None:
    synced: dict[Path, int] = {}
    real = os.fsync

    def fsync(descriptor):
        real(descriptor)
        path = Path(f"/proc/self/fd/{descriptor}").readlink()
        synced[path] = path.stat().st_mtime_ns  # of a folder: of its newest name

    monkeypatch.setattr(os, "fsync", fsync)
    folder = tmp_path / "warehouse" / "orders"
    table = open_table(folder)
    for batch in range(103):  # past a checkpoint of the log
        table.commit(batch, write(table, batch))
        every = [tmp_path, *(path for path in tmp_path.rglob("*") if not path.name.startswith("."))]
        assert [path for path in every if synced.get(path) != path.stat().st_mtime_ns] == []
    assert any(path.suffix == ".parquet" for path in (folder / "_delta_log").iterdir())


@pytest.mark.parametrize("how", TORN)
def test_a_batch_with_a_torn_entry_is_committed_again(tmp_path, how) -> None:
    """The cut came between the commit and the ledger's entry `done`."""
    table = open_table(tmp_path)
    for batch in range(3):
        table.commit(batch, files := write(table, batch))
    tear(entry(tmp_path, 3), how)
    table = open_table(tmp_path)
    table.commit(2, files)
    assert_rows(tmp_path, [0, 1, 2])
    table.commit(2, files)
    table.commit(3, write(table, 3))
    assert_rows(tmp_path, [0, 1, 2, 3])


@pytest.mark.parametrize("how", ["gone", "empty", "zeros"])
@pytest.mark.parametrize("torn", [1, 3, 5])
def test_batches_that_are_done_but_lost_are_restored(tmp_path, how, torn) -> None:
    """The last ``torn`` entries are lost, as under a release that synced none of them."""
    table = open_table(tmp_path)
    done = []
    for batch in range(4):
        done.append((batch, write(table, batch) if batch != 1 else []))
        table.commit(*done[-1])
    entries = sorted((tmp_path / "_delta_log").glob("*.json"), reverse=True)
    for path in entries[:torn]:
        tear(path, how)
    table = open_table(tmp_path)
    table.restore(done)
    table.restore(done)
    assert_rows(tmp_path, [0, 2, 3])


def test_a_torn_entry_before_whole_ones_is_named(tmp_path) -> None:
    table = open_table(tmp_path)
    for batch in range(3):
        table.commit(batch, write(table, batch))
    tear(entry(tmp_path, 2), "empty")
    with pytest.raises(PipelineError, match=r"0{19}2\.json is damaged, and later entries of the log are not"):
        open_table(tmp_path)
    assert entry(tmp_path, 2).exists()
    assert entry(tmp_path, 3).exists()


def test_a_torn_checkpoint_of_the_log_is_set_aside(tmp_path) -> None:
    table = open_table(tmp_path)
    for batch in range(101):
        table.commit(batch, write(table, batch))
    (checkpoint,) = (tmp_path / "_delta_log").glob("*.checkpoint.parquet")
    checkpoint.write_bytes(b"")
    (tmp_path / "_delta_log" / "_last_checkpoint").write_bytes(b"{")
    table = open_table(tmp_path)
    table.commit(101, write(table, 101))
    assert_rows(tmp_path, range(102))


@pytest.mark.parametrize("version", [0, 2])
def test_a_vacuum_leaves_a_torn_log_to_the_pipeline(tmp_path, version) -> None:
    table = open_table(tmp_path)
    for batch in range(version):
        table.commit(batch, files := write(table, batch))
    tear(entry(tmp_path, version), "zeros")
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(PipelineError, match="Run the pipeline, which mends"):
        open_again(tmp_path).vacuum(set())
    assert sorted(tmp_path.rglob("*")) == before
    table = open_table(tmp_path)
    if version:
        table.commit(version - 1, files)
    assert table.vacuum(set()) == []
    assert read(tmp_path).num_rows == 3 * version


def test_lost_batches_without_their_files_are_not_passed_over(tmp_path) -> None:
    table = open_table(tmp_path)
    table.commit(0, files := write(table, 0))
    tear(entry(tmp_path, 1), "empty")
    (tmp_path / files[0].path).unlink()
    table = open_table(tmp_path)
    with pytest.raises(PipelineError, match=rf"has no rows of batch 0, .* file {files[0].path} is missing"):
        table.restore([(0, files)])


def test_a_log_lost_beyond_the_ledger_is_refused(tmp_path) -> None:
    table = open_table(tmp_path)
    done = []
    for batch in range(3):
        done.append((batch, write(table, batch)))
        table.commit(*done[-1])
    for path in (tmp_path / "_delta_log").glob("*.json"):
        tear(path, "empty")
    table = open_table(tmp_path)
    with pytest.raises(PipelineError, match="only the batches from 1 on"):
        table.restore(done[1:])


def test_a_transaction_that_the_table_forgot_adds_nothing_twice(tmp_path) -> None:
    """Another writer replaced the table's log by one without the transactions, with the same files."""
    table = open_table(tmp_path)
    table.commit(0, files := write(table, 0))
    path = entry(tmp_path, 1)
    path.write_bytes(b"".join(line for line in path.read_bytes().splitlines(keepends=True) if b'"txn"' not in line))
    table = open_table(tmp_path)
    table.restore([(0, files)])
    assert_rows(tmp_path, [0])
