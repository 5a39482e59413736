"""Tables as others read them: partitions of every type, statistics right or absent, each batch once."""

import datetime as dt
import json
import math
import threading
from decimal import Decimal

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable
from hypothesis import given, settings
from hypothesis import strategies as st

from semistream.errors import InvalidArgument, PipelineError
from semistream.pipelines.spec.pipeline_spec import TableSpec
from semistream.pipelines.tables import writer as table_writer
from semistream.pipelines.tables.delta import DeltaSink
from semistream.pipelines.tables.outbox import as_text
from semistream.pipelines.tables.parquet import ParquetSink
from semistream.pipelines.tables.table import Owner
from semistream.pipelines.tables.writer import TableLayout, TableWriter

UTC = dt.UTC
TEXTS = ["a/b", "a=b", "a b", "100%", "x%2Fy", "ünï©ø∂é 日本", "..", ".", "#?&", "\n\t", '"', "'", "\\", " x ", None]
PARTITIONS = {
    "string": (pa.string(), TEXTS),
    "long string": (pa.string(), ["ö" * 300, "ö" * 299 + "x", "y"]),
    "int64": (pa.int64(), [1, -(2**63), 2**63 - 1, None]),
    "int8": (pa.int8(), [-128, None]),
    "bool": (pa.bool_(), [True, False, None]),
    "double": (pa.float64(), [1.5, 1e300, 5e-324, -math.inf, math.nan, 0.1, None]),
    "date": (pa.date32(), [dt.date(2024, 2, 29), dt.date(1969, 1, 1), dt.date(1, 1, 1), dt.date(9999, 12, 31), None]),
    "decimal": (pa.decimal128(20, 10), [Decimal("0E-10"), Decimal("123456789.0123456789"), None]),
    "timestamp": (
        pa.timestamp("us", "UTC"),
        [dt.datetime(2024, 1, 2, 3, 4, 5, 678, UTC), dt.datetime(1969, 12, 31, 23, 59, 59, 999999, UTC), None],
    ),
    "timestamp_ntz": (pa.timestamp("us"), [dt.datetime(1, 1, 1, 0, 0, 0, 1), dt.datetime(2024, 1, 2), None]),
}


def open_table(folder, schema, format="delta", partition_by=(), token="0123abcd"):
    kind = DeltaSink if format == "delta" else ParquetSink
    spec = TableSpec(format=format, path=folder, partition_by=partition_by)
    table = kind(spec, schema, Owner("orders", token), folder / "outbox")
    table.open()
    return table


def write(table, rows, batch=0):
    writer = TableWriter(table.layout, f"{batch:012d}-0")
    for each in rows.to_batches(max_chunksize=7):
        writer.write(each)
    files = writer.close()
    table.commit(batch, files)
    return files


def delta_rows(folder):
    return pa.table(DeltaTable(str(folder)).to_pyarrow_table())


@pytest.mark.parametrize("type_", PARTITIONS)
def test_partitions_of_every_type_are_read_back_from_delta(tmp_path, type_):
    arrow, values = PARTITIONS[type_]
    rows = pa.table({"id": pa.array(range(2 * len(values))), "p": pa.array(values * 2, arrow)})
    table = open_table(tmp_path / "t", rows.schema, partition_by=("p",))
    files = write(table, rows)
    found = delta_rows(tmp_path / "t").sort_by("id")
    assert [str(each) for each in found.column("p").to_pylist()] == [str(each) for each in values * 2]
    assert {None if f.partition["p"] is None else str(f.partition["p"]) for f in files} == {
        action["partition.p"] if action["partition.p"] is None else action_text(tmp_path / "t", action["path"])
        for action in pa.table(DeltaTable(str(tmp_path / "t")).get_add_actions(flatten=True)).to_pylist()
    }
    (tmp_path / "t" / "left.parquet").write_bytes(b"of somebody else")
    assert table.vacuum(set()) == []


def action_text(folder, path):
    """The text of a partition's value in the log."""
    for log in (folder / "_delta_log").glob("*.json"):
        for line in log.read_text().splitlines():
            added = json.loads(line).get("add")
            if added and added["path"].rsplit("/", 1)[-1] == path.rsplit("/", 1)[-1]:
                return added["partitionValues"]["p"]
    raise AssertionError(path)


@pytest.mark.parametrize("type_", ["string", "int64", "bool", "date"])
def test_partitions_of_parquet_folders_are_read_back_by_duckdb(tmp_path, type_):
    arrow, values = PARTITIONS[type_]
    rows = pa.table({"id": pa.array(range(len(values))), "p": pa.array(values, arrow)})
    write(open_table(tmp_path / "t", rows.schema, "parquet", ("p",)), rows)
    hive = f"hive_types = {{'p': {'VARCHAR' if type_ == 'string' else type_.upper()}}}"
    found = duckdb.sql(f"SELECT p FROM read_parquet('{tmp_path}/t/p=*/*.parquet', {hive}) ORDER BY id").fetchall()
    assert [value for (value,) in found] == values


@pytest.mark.parametrize(
    ("value", "type_", "text"),
    [
        (Decimal("0E-10"), pa.decimal128(20, 10), "0.0000000000"),
        (math.nan, pa.float64(), "NaN"),
        (-math.inf, pa.float32(), "-Infinity"),
        (dt.datetime(1, 1, 1), pa.timestamp("us"), "0001-01-01 00:00:00.000000"),
        (dt.datetime(2024, 7, 1, tzinfo=UTC), pa.timestamp("us", "Europe/Berlin"), "2024-07-01 00:00:00.000000"),
        (dt.date(33, 4, 3), pa.date32(), "0033-04-03"),
        (False, pa.bool_(), "false"),
        ("", pa.string(), None),
        (None, pa.int64(), None),
    ],
)
def test_values_of_partitions_are_written_as_delta_s_protocol_has_them(value, type_, text):
    assert table_writer.partition_text(pa.scalar(value, type_)) == text


def test_a_date_that_no_folder_can_be_named_by_is_told():
    with pytest.raises(PipelineError, match="outside of the years 1 to 9999"):
        table_writer.partition_text(pa.scalar(2**30, pa.int32()).cast(pa.date32()))


def test_an_empty_text_and_none_are_one_partition(tmp_path):
    rows = pa.table({"id": [1, 2], "p": ["", None]})
    (file,) = write(open_table(tmp_path / "t", rows.schema, partition_by=("p",)), rows)
    assert (file.rows, file.partition) == (2, {"p": None})


def test_several_partition_columns_and_more_partitions_than_open_files(tmp_path):
    rows = pa.table({"id": range(900), "a": [i % 20 for i in range(900)], "b": [str(i % 15) for i in range(900)]})
    files = write(open_table(tmp_path / "t", rows.schema, partition_by=("b", "a")), rows)
    assert sum(file.rows for file in files) == 900
    assert delta_rows(tmp_path / "t").select(["id", "a", "b"]).sort_by("id") == rows


@pytest.mark.parametrize(
    ("columns", "partition_by", "told"),
    [
        ({"id": pa.int64(), "p": pa.binary()}, ("p",), "which makes no folder name"),
        ({"id": pa.int64(), "p": pa.list_(pa.int64())}, ("p",), "which makes no folder name"),
        ({"id": pa.int64()}, ("x",), "its rows have id"),
        ({"id": pa.int64()}, ("id",), "all of its columns"),
        ({"id": pa.int64(), "p": pa.int64()}, ("p", "p"), "twice"),
        ({"id": pa.int64(), "t": pa.time64("us")}, (), "Delta has no such type"),
    ],
)
def test_tables_that_nobody_could_read_are_refused(tmp_path, columns, partition_by, told):
    with pytest.raises(InvalidArgument, match=told):
        open_table(tmp_path / "t", pa.schema(list(columns.items())), partition_by=partition_by)


def test_two_columns_of_a_name_are_refused(tmp_path):
    with pytest.raises(InvalidArgument, match="'batch_id' twice"):
        open_table(tmp_path / "t", pa.schema([("batch_id", pa.int64()), ("batch_id", pa.int64())]), "parquet")


def test_times_of_any_zone_are_in_utc(tmp_path):
    schema = pa.schema([("id", pa.int64()), ("at", pa.timestamp("us", "Europe/Berlin"))])
    table = open_table(tmp_path / "t", schema)
    assert table.schema.field("at").type == pa.timestamp("us", "UTC")
    table.open()


@pytest.mark.parametrize("format", ["delta", "parquet"])
def test_a_batch_is_committed_once_and_orphans_are_removed(tmp_path, format):
    rows = pa.table({"id": [1, 2], "p": ["x", "a/b"]})
    table = open_table(tmp_path / "t", rows.schema, format, ("p",))
    files = write(table, rows, batch=3)
    table.commit(3, files)
    open_table(tmp_path / "t", rows.schema, format, ("p",)).commit(3, files)
    orphan, prepared = (TableWriter(table.layout, "000000000004-0") for _ in range(2))
    for writer in (orphan, prepared):
        writer.write(rows.to_batches()[0])
    orphan.close()
    waiting = prepared.close()
    others = open_table(tmp_path / "t", rows.schema, format, ("p",), token="0123abcd")
    others.owner = Owner("returns", "ffffffff")
    other = TableWriter(others.layout, "000000000000-0")
    other.write(rows.to_batches()[0])
    others_files = other.close()
    assert len(table.vacuum({file.path for file in waiting})) == 2
    table.commit(4, waiting)
    others.commit(0, others_files)
    found = delta_rows(tmp_path / "t").column("id") if format == "delta" else parquet_ids(tmp_path / "t")
    assert sorted(found.to_pylist()) == [1, 1, 1, 2, 2, 2]


def parquet_ids(folder):
    return duckdb.sql(f"SELECT id FROM read_parquet('{folder}/p=*/*.parquet')").to_arrow_table().column("id")


def test_a_table_whose_creation_was_killed_is_vacuumed_like_others(tmp_path):
    (tmp_path / "_delta_log").mkdir()
    table = DeltaSink(TableSpec(path=tmp_path), pa.schema({"x": pa.int64()}), Owner("orders", "0123abcd"), tmp_path)
    assert table.vacuum(set()) == []


def test_files_that_an_older_version_shows_are_kept(tmp_path):
    rows = pa.table({"id": [1, 2]})
    table = open_table(tmp_path / "t", rows.schema)
    write(table, rows, batch=0)
    DeltaTable(str(tmp_path / "t")).delete("id = 1")
    assert table.vacuum(set()) == []
    assert DeltaTable(str(tmp_path / "t"), version=1).to_pyarrow_table().num_rows == 2


@pytest.mark.parametrize("format", ["delta", "parquet"])
def test_a_table_of_other_columns_or_another_checkpoint_is_refused(tmp_path, format):
    rows = pa.table({"id": [1, 2], "name": ["a", "b"]})
    write(open_table(tmp_path / "t", rows.schema, format), rows)
    others = pa.schema([("id", pa.int32()), ("title", pa.string())])
    differences = (
        r"name \(string\) is only in the table; title \(string\) is only in the pipeline; id is int64 in the table"
    )
    with pytest.raises(PipelineError, match=differences):
        open_table(tmp_path / "t", others, format)
    with pytest.raises(PipelineError, match="from another checkpoint"):
        open_table(tmp_path / "t", rows.schema, format, token="abcd0123")
    with pytest.raises(PipelineError, match=r"partitioned|name \(string\)"):
        open_table(tmp_path / "t", rows.schema, format, ("name",))


STATS = {
    "i": (pa.int32(), st.integers(-(2**31), 2**31 - 1)),
    "f": (pa.float64(), st.floats(width=64)),
    "s": (pa.string(), st.text(st.characters(exclude_categories=["Cs"]), max_size=70)),
    "m": (pa.decimal128(12, 3), st.decimals(-(10**8), 10**8, places=3, allow_nan=False)),
    "d": (pa.date32(), st.dates()),
    "t": (pa.timestamp("us", "UTC"), st.datetimes(timezones=st.just(UTC))),
    "n": (pa.timestamp("us"), st.datetimes()),
    "b": (pa.bool_(), st.booleans()),
    "x": (pa.binary(), st.binary(max_size=5)),
}
rows_of_all = st.fixed_dictionaries({name: st.one_of(st.none(), values) for name, (_, values) in STATS.items()})


@settings(deadline=None, max_examples=20)
@given(rows=st.lists(rows_of_all, min_size=1, max_size=12))
def test_statistics_are_right_or_absent(tmp_path_factory, rows):
    folder = tmp_path_factory.mktemp("stats")
    schema = pa.schema([(name, type_) for name, (type_, _) in STATS.items()])
    table = pa.Table.from_pylist(rows, schema=schema)
    writer = TableWriter(TableLayout(str(folder), schema), "x")
    for batch in table.to_batches(max_chunksize=5):
        writer.write(batch)
    (file,) = writer.close()
    stats = json.loads(json.dumps(file.stats, allow_nan=False))
    assert stats["numRecords"] == len(rows)
    assert stats["nullCount"] == {name: table.column(name).null_count for name in schema.names}
    assert set(stats["minValues"]) == set(stats["maxValues"])
    con = duckdb.connect()
    con.execute("SET TimeZone = 'UTC'")
    for name in stats["minValues"]:
        kind = {"t": "TIMESTAMPTZ", "n": "TIMESTAMP", "d": "DATE", "m": "DECIMAL(12, 3)"}.get(name)
        bounds = [stats[which][name] for which in ("minValues", "maxValues")]
        low, high = (f"CAST({place} AS {kind})" if kind else place for place in ("$1", "$2"))
        sql = f"SELECT count(*) FROM '{folder / file.path}' WHERE NOT ({name} >= {low} AND {name} <= {high})"
        assert con.execute(sql, [str(b) for b in bounds] if kind else bounds).fetchone() == (0,)
    con.close()


def test_statistics_of_dates_that_python_does_not_have_are_absent(tmp_path):
    days = pa.array([2**30, -(2**30)], pa.int32()).cast(pa.date32())
    times = pa.array([2**62, -(2**62)]).cast(pa.timestamp("us", "UTC"))
    last = pa.array([dt.datetime.max, dt.datetime.min], pa.timestamp("us"))
    no_text = pa.array([b"\xff", b"a"]).view(pa.string())
    rows = pa.table({"d": days, "t": times, "l": last, "s": no_text, "id": [1, 2]})
    (file,) = write(open_table(tmp_path / "t", rows.schema), rows)
    assert set(file.stats["maxValues"]) == {"id"}
    assert DeltaTable(str(tmp_path / "t")).count() == 2


def test_more_columns_than_statistics_are_kept_of(tmp_path):
    rows = pa.table({f"c{i}": np.arange(3) for i in range(45)})
    (file,) = write(open_table(tmp_path / "t", rows.schema), rows)
    assert list(file.stats["maxValues"]) == [f"c{i}" for i in range(32)]
    found = DeltaTable(str(tmp_path / "t")).to_pyarrow_dataset().to_table(filter=pa.compute.field("c44") == 2)
    assert found.num_rows == 1


def test_readers_skip_files_by_statistics_and_miss_nothing(tmp_path):
    schema = pa.schema([("f", pa.float64()), ("s", pa.string())])
    table = open_table(tmp_path / "t", schema)
    for batch, (number, text) in enumerate([(1.0, "a"), (math.nan, "z" * 50), (5.0, ""), (None, None)]):
        rows = pa.table({"f": pa.array([number, 2.0]), "s": pa.array([text, "m"])}, schema=schema)
        (file,) = write(table, rows, batch)
        assert ("f" in file.stats["maxValues"]) == (batch != 1)  # to some readers NaN is above all others
    dataset = DeltaTable(str(tmp_path / "t")).to_pyarrow_dataset()
    counted = [
        dataset.count_rows(filter=pa.compute.field("s") >= "z"),
        dataset.count_rows(filter=pa.compute.field("f") > 4),
    ]
    assert counted == [1, 1]


def test_a_writer_that_fails_leaves_no_file(tmp_path, monkeypatch):
    schema = pa.schema([("id", pa.int64()), ("p", pa.int64())])
    writer = TableWriter(TableLayout(str(tmp_path), schema, ("p",)), "x")
    writer.write(pa.record_batch({"id": [1, 2, 3], "p": [1, 2, 3]}))

    def full(path):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(table_writer, "sync_file", full)
    with pytest.raises(PipelineError, match="No space left on device"):
        writer.close()
    writer.abandon()
    assert list(tmp_path.rglob("*.parquet")) == []


def test_one_thread_writes_all_files_and_ends_with_the_writer(tmp_path, monkeypatch):
    threads = []

    class Noting(pq.ParquetWriter):
        def write_table(self, *arguments):
            threads.append(threading.current_thread())
            super().write_table(*arguments)

    monkeypatch.setattr(table_writer.pq, "ParquetWriter", Noting)
    schema = pa.schema([("id", pa.int64()), ("p", pa.int64())])
    writer = TableWriter(TableLayout(str(tmp_path), schema, ("p",), file_rows=2), "x")
    for ids in ([0, 1, 2, 3], [4, 5, 6, 7]):
        writer.write(pa.record_batch({"id": ids, "p": [each % 4 for each in ids]}))
    writer.write(pa.record_batch({"id": [8, 9], "p": [0, 1]}))
    assert len(writer.close()) == len(threads) == 6
    assert len(set(threads)) == 1
    assert not threads[0].is_alive()


def test_a_folder_that_cannot_be_written_is_told(tmp_path):
    (tmp_path / "file").write_text("")
    for format in ("delta", "parquet"):
        with pytest.raises(PipelineError, match="cannot be"):
            open_table(tmp_path / "file" / "t", pa.schema([("id", pa.int64())]), format)
    writer = TableWriter(TableLayout(str(tmp_path / "file"), pa.schema([("id", pa.int64())])), "x")
    with pytest.raises(PipelineError, match="cannot be written"):
        writer.write(pa.record_batch({"id": [1]}))


def test_the_console_aligns_wide_letters_and_keeps_long_values_and_brackets():
    text = as_text(pa.table({"name": ["茶", "[bold]tea[/bold]", "x" * 500], "id": [1, 2, 3]}))
    header, tea, plain, long = text.split("\n")
    assert header == "name" + " " * 498 + "id"
    assert tea == "茶" + " " * 500 + "1"
    assert plain.startswith("[bold]tea[/bold] ")
    assert long == "x" * 500 + "  3"
