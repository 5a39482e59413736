"""What a writer that was killed has left unsynced, and the next one makes durable, before it relies on it."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pytest

from semistream.joins.lookup.lmdb_store import open_store
from semistream.pipelines.batch.housekeeping import Housekeeping
from semistream.pipelines.inputs.shed_archive import archive_schema, leave_archive
from semistream.pipelines.ledger.entries import ArchivedBatch, ArchivedFile, BatchManifest, Plan, TaskResult
from semistream.pipelines.ledger.ledger import Ledger
from semistream.pipelines.spec.pipeline_spec import ARCHIVED_BY, ARCHIVED_IN, TableSpec
from semistream.pipelines.tables.delta import DeltaSink
from semistream.pipelines.tables.parquet import ParquetSink
from semistream.pipelines.tables.table import Owner
from semistream.pipelines.tables.writer import TableWriter
from semistream.relation import Change, Relation, Transaction
from semistream.storage.local_files import make_folder
from tests.crash.cuts import Tell, after, lay_out, record
from tests.crash.disk import Disk, Event
from tests.crash.orders_pipeline import DeltaOrders
from tests.spark.pipelines.warehouse import read_table

ROWS = pa.table({"id": list(range(9))})
MORE = pa.table({"id": [9]})


def program(work: Callable[[Path], object]) -> Callable[[Path, Tell], None]:
    return lambda folder, tell: work(folder) and None


def killed(work: Callable[[Path], object], last: Callable[[Event], bool], disk: Disk | None = None) -> Disk:
    """The disk when a process is killed after the event ``last``."""
    disk = disk or Disk()
    events = record(program(work), disk, "killed")
    (place,) = [number for number, event in enumerate(events) if last(event)]
    return after(events[: place + 1], disk)[0]


def certain(work: Callable[[Path], object], disk: Disk) -> dict[str, bytes | None]:
    """What is durable for certain once ``work`` has returned."""
    return after(record(program(work), disk, "next"), disk)[0].certain


def rows(tree: dict[str, bytes | None], folder: Path) -> Sequence[int]:
    lay_out(tree, folder)
    return Relation.open(folder / "r").scan().read_all().column("id").to_pylist()


def built() -> Disk:
    return after(record(program(lambda folder: Relation.build(ROWS, folder / "r", key="id")), Disk(), "built"))[0]


def change(folder):
    return Relation.open(folder / "r").change(lambda _: Change(upserts=MORE), Transaction("w", 1))


def test_rejected_updates_are_gone_before_the_next_batch_is_planned() -> None:
    name = "2-products-1.rejected.parquet"
    disk = Disk.holding({"updates": None, f"updates/{name}": b"rows", "rows": None})
    done = BatchManifest(0, TaskResult(), [])

    def forget(folder):
        ledger = Ledger(folder, "p")
        keeper = Housekeeping(None, ledger, folder / "rows")
        keeper.forget_rows(Plan(0, 0, {}, at=0.0, rejected=[name]), done)

    dead = killed(forget, lambda event: event.said == f"-updates/{name}", disk)
    for before in (disk, dead):
        assert f"updates/{name}" not in certain(forget, before)


@pytest.mark.parametrize(
    "stage", ["batches/000000000000.planned.json", "updates/0-r.json", "archived/000000000003.json"]
)
def test_entries_of_the_ledger_before_anything_follows_from_them(stage) -> None:
    def write(folder):
        with Ledger.open(folder, "p") as ledger:
            ledger.write_plan(Plan(0, 0, {}, at=0.0))
            ledger.write_update("0-r", 1, {"rows": 2})
            ledger.write_archived(ArchivedBatch(3, [ArchivedFile("a.parquet", 2, 3)], 2, 1.0, 2, 2))

    def look(folder):
        with Ledger.open(folder, "p"):
            pass

    disk = killed(write, lambda event: event.said.endswith(f"-> {stage}"))
    assert stage not in disk.certain
    assert stage in certain(look, disk)


def test_versions_that_a_dead_pipeline_has_published_before_updates_and_batches() -> None:
    scenario = DeltaOrders()

    def run(folder, tell):
        scenario.run(folder, tell)

    events = record(run, scenario.disk, "first")
    place = next(number for number, event in enumerate(events, 1) if event.said.endswith("-> products/CURRENT"))
    disk, _ = after(events[:place], scenario.disk)
    assert disk.certain["products/CURRENT"] != disk.tree["products/CURRENT"]
    events = record(run, disk, "again")
    place = next(number for number, event in enumerate(events, 1) if event.kind == "told")
    disk, _ = after(events[:place], disk)
    assert disk.certain["products/CURRENT"] == disk.tree["products/CURRENT"]


def test_a_copy_for_look_ups() -> None:
    def look(folder):
        relation = Relation.open(folder / "r")
        return open_store(relation).num_pages

    assert any(path.endswith("/data.mdb") for path in certain(look, built()))


def test_an_entry_of_repaired_rows_is_gone() -> None:
    archived = ArchivedBatch(3, [ArchivedFile("a.parquet", 2, 3)], 2, 1.0, 2, 2)

    def repair(folder):
        ledger = Ledger(folder, "p")
        ledger.write_archived(archived)
        ledger.write_archived(replace(archived, files=[]))

    assert set(certain(repair, Disk())) == {"archived"}


@pytest.mark.parametrize("format", ["parquet", "delta"])
def test_repaired_rows_are_gone_from_the_archive(format, tmp_path) -> None:
    schema = archive_schema(ROWS.schema)
    columns = ["id", "came_at", "row_id", ARCHIVED_BY, ARCHIVED_IN]
    row = dict(zip(columns, [1, datetime(2026, 11, 19, tzinfo=UTC), 0, "orders", 0], strict=True))

    def opened(folder):
        kind = {"parquet": ParquetSink, "delta": DeltaSink}[format]
        spec = TableSpec(format=format, path=folder / "archive")
        table = kind(spec, schema, Owner("orders", "0123abcd"), folder)
        table.open()
        return table

    def shed(folder):
        table = opened(folder)
        writer = TableWriter(table.layout, "0-0")
        writer.write(pa.RecordBatch.from_pylist([row], schema))
        table.commit(0, writer.close())

    def repair(folder):
        table = opened(folder)
        (path,) = [path for path in table.path.rglob("*.parquet") if "_staging" not in path.parts]
        leave_archive(table, 1, [ArchivedFile(str(path.relative_to(table.path)), 1, 0)], [0])

    disk = Disk.holding(after(record(program(shed), Disk(), "shed"), Disk())[0].certain)
    lay_out(disk.tree, tmp_path / "before")
    assert read_table(tmp_path / "before" / "archive").num_rows == 1
    lay_out(certain(repair, disk), tmp_path / "after")
    assert read_table(tmp_path / "after" / "archive").num_rows == 0


def is_published(event):
    return event.said.endswith("-> r/CURRENT")


def test_folders_that_a_dead_process_has_made() -> None:
    def make(folder):
        return make_folder(folder / "a" / "b" / "c")

    for name in ("+a", "+b", "+c"):
        disk = killed(make, lambda event, name=name: event.said == name)
        assert set(certain(make, disk)) == {"a", "a/b", "a/b/c"}


def test_the_folders_of_a_new_relation_before_it_is_published() -> None:
    disk = killed(lambda folder: Relation.build(ROWS, folder / "r", key="id"), is_published)
    assert {"r", "r/data", "r/versions"} <= set(disk.certain)


def test_a_version_before_files_of_older_ones_are_removed(tmp_path) -> None:
    disk = killed(change, is_published, built())
    tree = certain(lambda folder: Relation.open(folder / "r").vacuum(), disk)
    assert rows(tree, tmp_path / "disk") == list(range(10))


def test_a_version_that_a_transaction_is_found_to_have_made(tmp_path) -> None:
    disk = killed(change, is_published, built())
    assert rows(certain(change, disk), tmp_path / "disk") == list(range(10))


def test_manifests_are_gone_before_the_files_that_they_name() -> None:
    disk = after(record(program(change), built(), "changed"), built())[0]
    disk = killed(
        lambda folder: Relation.open(folder / "r").vacuum(), lambda event: event.said == "-r/versions/000001.json", disk
    )
    events = record(program(lambda folder: Relation.open(folder / "r").vacuum()), disk, "again")
    first = next(number for number, event in enumerate(events) if event.said.startswith("-r/versions/000001-"))
    assert "r/versions/000001.json" not in after(events[: first + 1], disk)[0].certain
