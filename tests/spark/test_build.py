"""build_relation() against Relation.build; a failed build leaves nothing behind."""

import pyarrow as pa
import pytest
from pyspark.sql import functions as sf

import semistream.spark.relation_builder as spark_build
from semistream.errors import ColumnNotFound, InvalidArgument, RelationError
from semistream.relation import Relation
from semistream.spark import build_relation, join
from tests.spark.frames import KEYS, frame, key_names, multiset, r_table, s_table, spark_join

pytestmark = pytest.mark.spark


def rows(relation):
    return sorted(map(repr, relation.scan().read_all().to_pylist()))


@pytest.mark.parametrize("kind", KEYS)
def test_it_stores_what_relation_build_stores(spark, tmp_path, kind):
    table, key = r_table(kind), key_names(kind)
    built = build_relation(frame(spark, table), tmp_path / "spark", key=key, page_bytes=1024, partitions=3)
    expected = Relation.build(table, tmp_path / "local", key=key, page_bytes=1024)
    assert built.verify().rows == len(table)
    assert rows(built) == rows(expected)
    assert (built.key, built.schema.types) == (expected.key, expected.schema.types)
    assert built.null_key_rows == expected.null_key_rows > 0
    assert len(built.manifest.files) == 3
    assert {p.name for p in (built.path / "data").iterdir()} == {
        name.removeprefix("data/") for name in built.manifest.file_names if name.startswith("data/")
    }


def test_a_built_relation_can_be_joined_updated_and_rebuilt(spark, tmp_path):
    df = frame(spark, r_table("string")).withColumn("nested", sf.struct(sf.array("r").alias("a"), sf.lit(1).alias("b")))
    built = build_relation(df, tmp_path / "r", key="k", page_bytes=2048, fill_factor=0.7)
    joined = join(frame(spark, s_table("string")), built, on="k", memory="500kB", columns=["r", "r_text"])
    assert multiset(joined) == spark_join(spark, s_table("string"), r_table("string"), ["k"], "inner")
    assert built.update(deletes=["7"]).version == 2
    with pytest.raises(RelationError, match="overwrite=True"):
        build_relation(df, tmp_path / "r", key="k")
    assert build_relation(df, tmp_path / "r", key="k", overwrite=True).version == 3


def test_it_writes_column_groups(spark, tmp_path):
    table = r_table("string")
    names = [name for name in table.column_names if name != "k"]
    groups = [names[:1], names[1:2]]
    built = build_relation(
        frame(spark, table), tmp_path / "r", key="k", page_bytes=1024, partitions=2, column_groups=groups
    )
    expected = Relation.build(table, tmp_path / "local", key="k", page_bytes=1024, column_groups=groups)
    assert built.manifest.column_groups == expected.manifest.column_groups
    assert len(built.manifest.files) == 2 * 3
    assert built.verify().rows == len(table)
    assert rows(built) == rows(expected)
    assert built.scan(names[:1]).read_all().num_rows == len(table)
    assert built.reading(names[:1]).nbytes < built.nbytes
    joined = join(frame(spark, s_table("string")), built, on="k", memory="500kB", columns=["r", "r_text"])
    assert multiset(joined) == spark_join(spark, s_table("string"), r_table("string"), ["k"], "inner")
    wide = spark.range(0).selectExpr("id", *(f"id AS c{i}" for i in range(36)))
    empty = build_relation(wide, tmp_path / "empty", key="id")
    assert (empty.segments, len(empty.manifest.files), empty.verify().rows) == (19, 19, 0)


def test_a_frame_without_rows_makes_a_relation_without_rows(spark, tmp_path):
    built = build_relation(spark.range(0), tmp_path / "r", key="id")
    assert (built.num_rows, built.num_pages, built.verify().rows) == (0, 0, 0)
    only_null = spark.range(3).select(sf.lit(None).cast("int").alias("k"), "id")
    assert build_relation(only_null, tmp_path / "nulls", key="k").verify().rows == 3


def test_a_job_that_fails_for_good_leaves_nothing(spark, tmp_path, monkeypatch):
    def write_and_fail(plan, batches):
        written = list(spark_build.write_part(plan, batches))
        raise OSError(f"no space left after {len(written)} parts")
        yield

    monkeypatch.setattr(spark_build, "write_part", write_and_fail)
    with pytest.raises(Exception, match="no space left after 1 parts"):
        build_relation(spark.range(100), tmp_path / "r", key="id", partitions=2)
    assert list(tmp_path.iterdir()) == []
    monkeypatch.undo()
    built = build_relation(spark.range(100), tmp_path / "r", key="id", partitions=2)
    before = sorted(built.path.rglob("*"))
    monkeypatch.setattr(spark_build, "write_part", write_and_fail)
    with pytest.raises(Exception, match="no space left"):
        build_relation(spark.range(100), tmp_path / "r", key="id", partitions=2, overwrite=True)
    assert sorted(built.path.rglob("*")) == before
    assert Relation.open(built.path).verify().rows == 100


def test_a_task_that_raises_removes_its_own_files(tmp_path):
    from semistream.spark.relation_builder import WritePlan, write_part

    (tmp_path / "data").mkdir()
    plan = WritePlan(str(tmp_path), 1, pa.schema([("k", pa.int64())]), ("k",), 1024)
    unsorted = [pa.record_batch({"c0": pa.array(keys)}) for keys in ([1, None, 5], [4])]
    with pytest.raises(RelationError, match="Spark did not sort the rows by their key codes"):
        list(write_part(plan, iter(unsorted)))
    assert list((tmp_path / "data").iterdir()) == []


def test_arguments_that_cannot_work_are_refused_before_anything_runs(spark, tmp_path):
    df = spark.range(3)
    with pytest.raises(ColumnNotFound, match="no column 'key'"):
        build_relation(df, tmp_path / "r", key="key")
    with pytest.raises(InvalidArgument, match="partitions is 0"):
        build_relation(df, tmp_path / "r", key="id", partitions=0)
    with pytest.raises(InvalidArgument, match="fill_factor is 7"):
        build_relation(df, tmp_path / "r", key="id", fill_factor=7)
    with pytest.raises(InvalidArgument, match="streaming DataFrame"):
        build_relation(spark.readStream.format("rate").load(), tmp_path / "r", key="value")
    assert list(tmp_path.iterdir()) == []


def test_an_executor_that_does_not_see_the_folder_says_so(tmp_path):
    from semistream.spark.relation_builder import WritePlan, write_part

    plan = WritePlan(str(tmp_path / "elsewhere"), 1, pa.schema([("k", pa.int64())]), ("k",), 1024)
    with pytest.raises(RelationError, match="file system that the driver and all executors share"):
        list(write_part(plan, iter([])))
