"""Spark's record of a stream: durable before the ledger has a batch, and mended after a power cut."""

import json
from collections import Counter
from pathlib import Path

import pyarrow as pa
import pytest

from semistream.errors import PipelineError
from semistream.pipelines.ledger import faults
from semistream.spark.pipelines.pipeline import Pipeline
from semistream.spark.pipelines.spark_log import SparkLog
from semistream.storage.local_files import make_folder
from tests.crash.cuts import record
from tests.crash.disk import Disk
from tests.spark.pipelines.warehouse import Warehouse, orders

TORN = {"empty": b"", "zeros": bytes(40), "cut": b'v1\n{"logOffset', "cut early": b"v1\n"}


def write(log, planned):
    """Write the entries of batches 0 to ``planned``, as Spark does; the last has not ended."""
    for part in ("offsets", "commits", "sources/0"):
        (log / part).mkdir(parents=True, exist_ok=True)
    (log / "metadata").write_text('{"id":"1"}')
    for batch in range(planned + 1):
        file = {"path": f"file:///{batch}.parquet", "timestamp": 1, "batchId": batch}
        (log / "sources" / "0" / str(batch)).write_text(f"v1\n{json.dumps(file)}")
        (log / "offsets" / str(batch)).write_text(f'v1\n{{"batchWatermarkMs":0}}\n{{"logOffset":{batch}}}')
        if batch < planned:
            (log / "commits" / str(batch)).write_text('v1\n{"nextBatchWatermarkMs":0}')


def names(log):
    return {str(path.relative_to(log)) for path in log.rglob("*") if path.is_file()}


def test_all_of_a_batch_is_durable_that_spark_has_planned():
    def program(folder, tell):
        make_folder(folder / "checkpoint")
        log = SparkLog(folder / "checkpoint" / "spark")
        for batch in range(3):
            write(log.folder, batch)
            log.sync()
            tell("synced")

    disk, synced = Disk(), 0
    for event in record(program, disk, "spark"):
        disk.apply(event)
        if event.kind == "told":
            tree = {path.removeprefix("checkpoint/spark/"): content for path, content in disk.certain.items()}
            wanted = {"metadata", *(f"{part}/{n}" for part in ("offsets", "sources/0") for n in range(synced + 1))}
            assert {path for path in wanted if tree.get(path)} == wanted
            synced += 1
    assert synced == 3


@pytest.mark.parametrize("how", TORN)
@pytest.mark.parametrize("name", ["offsets/2", "sources/0/2", "commits/1", "commits/2"])
def test_entries_after_the_last_planned_batch_are_taken_back(name, how, tmp_path):
    write(tmp_path, 2)
    (tmp_path / name).write_bytes(TORN[how])
    SparkLog(tmp_path).mend(1)
    whole = {f"{part}/{n}" for part in ("offsets", "sources/0") for n in range(2)}
    ended = {"commits/0", "commits/1"} - {name}
    assert names(tmp_path) == {"metadata", *whole, *ended}


@pytest.mark.parametrize("name", ["offsets/1", "sources/0/1"])
def test_a_damaged_entry_of_a_planned_batch_is_named(name, tmp_path):
    write(tmp_path, 1)
    (tmp_path / name).write_bytes(b"")
    with pytest.raises(PipelineError, match=f"{name}, an entry of Spark's record"):
        SparkLog(tmp_path).mend(1)
    (tmp_path / name).unlink()
    if name.startswith("offsets"):
        with pytest.raises(PipelineError, match=f"{name}, .* is damaged or missing"):
            SparkLog(tmp_path).mend(1)


@pytest.mark.parametrize("entry", [b'\0v1\n{"orders":{"0":0}}', b"v1\n1795060637158", b"\x80\x04pickled"])
def test_entries_of_sources_other_than_files_stay(entry, tmp_path):
    write(tmp_path, 1)
    for batch in range(2):
        text = f'v1\n{{"batchWatermarkMs":0}}\n{{"orders":{{"0":{batch}}}}}'
        (tmp_path / "offsets" / str(batch)).write_text(text)
        (tmp_path / "sources" / "0" / str(batch)).unlink()
    (tmp_path / "sources" / "0" / "0").write_bytes(entry)
    for planned in (0, None):
        SparkLog(tmp_path).mend(planned)
        assert {"sources/0/0", "offsets/0"} == names(tmp_path) - {"metadata", "commits/0"}


def test_without_a_planned_batch_only_torn_entries_go(tmp_path):
    write(tmp_path, 1)
    before = names(tmp_path)
    SparkLog(tmp_path).mend(None)
    assert names(tmp_path) == before
    (tmp_path / "offsets" / "1").write_bytes(b"")
    SparkLog(tmp_path).mend(None)
    assert before - names(tmp_path) == {"offsets/1"}


@pytest.mark.spark
def test_a_pipeline_goes_on_with_a_torn_record(spark, tmp_path, monkeypatch):
    warehouse = Warehouse(tmp_path)
    spec = warehouse.spec()
    log = tmp_path / "checkpoint" / "spark"
    tables = [orders(20, seed=n, first=20 * n) for n in range(2)]
    synced: list[str] = []
    monkeypatch.setattr("os.fsync", lambda each: synced.append(str(Path(f"/proc/self/fd/{each}").readlink())))

    def at(point):
        if point == "before planned":
            number = len(list((tmp_path / "checkpoint" / "batches").glob("*.planned.json")))
            assert {str(log / "offsets" / str(number)), str(log / "sources" / "0" / str(number))} <= set(synced)

    monkeypatch.setattr(faults, "handler", at)
    for number, table in enumerate(tables):
        warehouse.put(table, f"{number}.parquet")
        if number:
            for part in ("commits", "offsets", "sources/0"):
                last = number - (part == "commits")
                (log / part / str(last)).write_bytes(b"")
                (log / part / f".{last}.crc").unlink(missing_ok=True)
        Pipeline.from_dict(spec).run(spark, once=True)
    found = Counter(row["id"] for name in ("sink", "unmatched") for row in warehouse.table(name).to_pylist())
    assert found == Counter(pa.concat_tables(tables).column("id").to_pylist())
