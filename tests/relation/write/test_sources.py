"""All kinds of sources give the same relation."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.parquet as pq
import pytest

import semistream
import semistream.windows
from semistream.errors import InvalidArgument, RelationError
from semistream.relation import ParquetRelation, Relation, open_relation
from semistream.storage.local_paths import local_path
from tests.relation.row_sets import row_set, scratch_folder

ROWS = 500
TABLE = pa.table(
    {
        "k": np.random.default_rng(3).integers(0, 200, ROWS),
        "v": [None if i % 7 == 0 else f"v{i}" for i in range(ROWS)],
        "x": np.arange(ROWS) / 8,
    }
)


def _batches() -> Iterator[pa.RecordBatch]:
    yield pa.RecordBatch.from_pylist([], TABLE.schema)
    for begin in range(0, ROWS, 33):
        yield from TABLE.slice(begin, 33).to_batches()


def _parquet(folder: Path) -> Path:
    pq.write_table(TABLE, folder / "t.parquet", row_group_size=100)
    return folder / "t.parquet"


def _parquet_folder(folder: Path) -> Path:
    (folder / "t" / "deep").mkdir(parents=True)
    (folder / "t" / "_SUCCESS").write_text("")
    pq.write_table(TABLE.slice(0, 100), folder / "t" / "a.parquet")
    pq.write_table(TABLE.slice(100), folder / "t" / "deep" / "b.parquet")
    return folder / "t"


def _arrow_file(folder: Path) -> str:
    with pa.OSFile(str(folder / "t.arrow"), "wb") as sink, pa.ipc.new_file(sink, TABLE.schema) as writer:
        writer.write_table(TABLE, max_chunksize=90)
    return str(folder / "t.arrow")


def _csv(folder: Path) -> Path:
    pa.csv.write_csv(TABLE.drop_columns(["v"]), folder / "t.csv")
    return folder / "t.csv"


def _polars(_: Path) -> Any:
    return pytest.importorskip("polars").from_arrow(TABLE)


SOURCES: dict[str, Callable[[Path], Any]] = {
    "table": lambda _: TABLE,
    "sliced chunks": lambda _: pa.concat_tables([TABLE.slice(400), TABLE.slice(0, 1), TABLE.slice(1, 399)]),
    "reader": lambda _: TABLE.to_reader(max_chunksize=70),
    "generator of batches": lambda _: _batches(),
    "list of tables": lambda _: [TABLE.slice(0, 10), TABLE.slice(10)],
    "polars": _polars,
    "DuckDB relation": lambda _: duckdb.connect().from_arrow(TABLE),
    "Parquet file": _parquet,
    "Parquet folder": _parquet_folder,
    "Arrow file": _arrow_file,
    "CSV file": _csv,
}


@pytest.mark.parametrize("name", SOURCES)
def test_source_gives_its_rows(name: str) -> None:
    with scratch_folder() as folder:
        relation = Relation.build(SOURCES[name](folder), folder / "r", key="k", page_bytes=1024)
        assert relation.num_rows == ROWS
        assert row_set(relation.scan()) == row_set(TABLE if name != "CSV file" else TABLE.drop_columns(["v"]))
        assert relation.scan(["k"]).read_all()["k"].to_pylist() == sorted(TABLE["k"].to_pylist())


def test_single_batch_and_pandas_frame() -> None:
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame(
        {"k": [3, 1, 2], "v": pandas.Categorical(["a", "b", "a"]), "t": pandas.Timestamp("2024-01-01")}
    )
    with scratch_folder() as folder:
        relation = Relation.build(frame, folder / "pandas", key="k")
        assert relation.scan().read_all().to_pandas()["v"].tolist() == ["b", "a", "a"]
        assert relation.schema.field("v").type in (pa.string(), pa.large_string())
        batch = TABLE.to_batches()[0]
        assert row_set(Relation.build(batch, folder / "batch", key="k").scan()) == row_set(TABLE)


def test_polars_lists_of_strings() -> None:
    polars = pytest.importorskip("polars")
    frame = polars.DataFrame({"k": ["b", "a"], "tags": [["x", None], []], "at": [{"lat": 1.5}, None]})
    with scratch_folder() as folder:
        relation = Relation.build(frame, folder / "r", key="k")
        assert row_set(relation.scan()) == row_set(frame.to_dicts())


def test_hive_partitions_are_columns() -> None:
    with scratch_folder() as folder:
        pq.write_to_dataset(
            TABLE.append_column("year", pa.array([2000 + i % 2 for i in range(ROWS)])), folder / "t", ["year"]
        )
        relation = Relation.build(folder / "t", folder / "r", key="k")
        assert sorted(relation.scan(["year"]).read_all()["year"].to_pylist()) == [2000] * 250 + [2001] * 250


def test_source_with_many_small_batches_reports_progress() -> None:
    seen: dict[str, list[int]] = {}
    with scratch_folder() as folder:
        Relation.build(
            _batches(), folder / "r", key="k", progress=lambda phase, rows: seen.setdefault(phase, []).append(rows)
        )
    assert seen["read"] == sorted(seen["read"])
    assert seen["read"][-1] == seen["write"][-1] == ROWS
    assert list(seen) == ["read", "write"]


def _differing(second: Any) -> Iterator[Any]:
    yield pa.record_batch({"a": [1], "b": [2]})
    yield second


@pytest.mark.parametrize(
    "second",
    [
        pa.record_batch({"b": [3], "a": [4]}),
        pa.record_batch({"a": [3], "b": [0.5]}),
        pa.record_batch({"a": [1]}),
        "text",
    ],
    ids=["other order", "other type", "fewer columns", "no batch"],
)
def test_batches_that_differ_are_refused_not_mixed_up(second: Any) -> None:
    with scratch_folder() as folder:
        with pytest.raises(InvalidArgument, match="batches that differ"):
            Relation.build(_differing(second), folder / "r", key="a")
        assert list(folder.iterdir()) == []


def _failing() -> Iterator[pa.RecordBatch]:
    yield TABLE.to_batches()[0]
    raise ZeroDivisionError("in the source")


def test_error_of_the_source_is_raised_unchanged_and_nothing_is_left() -> None:
    with scratch_folder() as folder:
        with pytest.raises(ZeroDivisionError, match="in the source"):
            Relation.build(_failing(), folder / "r", key="k")
        assert list(folder.iterdir()) == []


@pytest.mark.parametrize(
    ("data", "message"),
    [(None, "data is a NoneType"), (5, "data is a int"), ({"k": [1]}, "data yields str objects"), ([], "no batches")],
)
def test_data_of_other_kinds_is_refused(data: Any, message: str) -> None:
    with scratch_folder() as folder, pytest.raises(InvalidArgument, match=message):
        Relation.build(data, folder / "r", key="k")


def test_paths_that_hold_no_rows_are_refused() -> None:
    with scratch_folder() as folder:
        (folder / "empty").mkdir()
        (folder / "t.xlsx").write_text("x")
        (folder / "mixed").mkdir()
        (folder / "mixed" / "a.csv").write_text("k\n1\n")
        pq.write_table(TABLE, folder / "mixed" / "b.parquet")
        for name, message in [
            ("absent.csv", "absent.csv does not exist"),
            ("empty", "holds files ending in nothing"),
            ("t.xlsx", r"files ending in \.xlsx; give one kind"),
            ("mixed", r"\.csv, \.parquet; give one kind"),
        ]:
            with pytest.raises(RelationError, match=message):
                Relation.build(folder / name, folder / "r", key="k")
        assert not (folder / "r").exists()


URLS = [
    "s3://bucket/x",
    "s3a://bucket/x",
    "hdfs://host:9000/x",
    "dbfs:/x",
    "file://other-host/x",
    Path("s3://bucket/x"),
]


@pytest.mark.parametrize("url", URLS, ids=str)
def test_a_path_with_a_scheme_is_refused_before_anything_is_made(
    url: str | Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    calls: list[Callable[[], Any]] = [
        lambda: Relation.build(TABLE, url, key="k"),
        lambda: Relation.build(url, "r", key="k"),
        lambda: Relation.open(url),
        lambda: ParquetRelation.open(url),
        lambda: open_relation(url),
        lambda: semistream.join(TABLE, url, on="k"),  # type: ignore[arg-type]
        lambda: semistream.explain(url),
        lambda: semistream.calibrate(url),
        lambda: semistream.windows.FileArchive(url),
        lambda: semistream.windows.FileArchive.open(url),
    ]
    for call in calls:
        with pytest.raises(InvalidArgument, match=r"has the scheme '(s3a?|hdfs|dbfs|file)'.*path of the mount"):
            call()
    assert list(tmp_path.iterdir()) == []


def test_a_url_of_a_local_file_is_its_path(tmp_path: Path) -> None:
    folder = tmp_path / "my products"
    url = folder.as_uri()
    assert "%20" in url
    assert Relation.build(TABLE, url, key="k").path == folder
    for each in (url, url.replace("file:///", "file:/"), url.replace("file:///", "file://localhost/"), Path(url)):
        assert Relation.open(each).num_rows == ROWS


def test_a_drive_and_a_time_are_no_schemes() -> None:
    for name in ("C:/data", "12:30/x", "a/s3://x", "s3"):
        assert local_path(name) == Path(name)


def test_the_folder_of_a_delta_table_is_refused_with_what_reads_its_rows(tmp_path: Path) -> None:
    deltalake = pytest.importorskip("deltalake")
    path = str(tmp_path / "delta")
    deltalake.write_deltalake(path, TABLE)
    deltalake.DeltaTable(path).delete("k < 100")
    with pytest.raises(RelationError, match=r"is a Delta table.*ParquetRelation\.open\('.*/delta'\)\.scan\(\)"):
        Relation.build(path, tmp_path / "r", key="k")
    relation = Relation.build(ParquetRelation.open(path).scan(), tmp_path / "r", key="k")
    assert row_set(relation.scan()) == row_set(TABLE.filter(pc.field("k") >= 100))
