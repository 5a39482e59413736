"""Files with updates that Spark reads: many in one job, and their rows in order."""

import json

import pyarrow as pa
import pytest

from semistream.errors import PipelineError
from semistream.pipelines.spec.step_spec import UpdatesSpec
from semistream.pipelines.task.batch_task import RAW
from semistream.spark.updates.spark_update_reader import SparkUpdateReader
from tests.spark.pipelines.warehouse import put

pytestmark = pytest.mark.spark

COLUMNS = {"id": "bigint", "name": "string", "price": "double", "op": "string"}
_PART = "spark.sql.files.maxPartitionBytes"


@pytest.fixture
def small_parts(spark):
    """Spark reads files in parts of 1,500 bytes, the largest first."""
    before = spark.conf.get(_PART)
    spark.conf.set(_PART, "1500")
    yield
    spark.conf.set(_PART, before)


@pytest.mark.parametrize("format", ["json", "csv", "parquet"])
def test_rows_of_many_files_come_in_the_order_of_the_files(spark, tmp_path, small_parts, format):
    spec = UpdatesSpec(format=format, path=tmp_path, op="op", options={"header": "true"} if format == "csv" else {})
    expected, files = [], []
    for number in range(45):
        rows = [
            {"id": line % 5, "name": f"{number}/{line}", "price": 0.5, "op": "U"} for line in range(number * 37 % 101)
        ]
        table = pa.Table.from_pylist(rows, pa.schema([(n, t) for n, t in zip(COLUMNS, _TYPES, strict=True)]))
        if number % 2:  # in another order
            table = table.select(["price", "op", "name", "id"])
        files.append(tmp_path / f"{number * 29 % 45} ü.{format}")
        put(table, files[-1], format)
        expected += [row["name"] for row in rows]
    found = SparkUpdateReader(spark).read_files(spec, COLUMNS, files)
    assert found.column_names == [*COLUMNS, RAW]
    assert found.column("name").to_pylist() == expected
    assert found.column(RAW).null_count == found.num_rows


_TYPES = [pa.int64(), pa.string(), pa.float64(), pa.string()]


def test_files_of_updates_are_read_in_one_job(spark, tmp_path):
    spec = UpdatesSpec(format="json", path=tmp_path)
    for number in range(20):
        (tmp_path / f"{number}.json").write_text(json.dumps({"id": number, "name": "x", "price": 1}) + "\n")
    spark.sparkContext.setJobGroup("updates", "")
    files = sorted(tmp_path.iterdir())
    assert SparkUpdateReader(spark).read_files(spec, COLUMNS, files).num_rows == 20
    jobs = spark.sparkContext.statusTracker().getJobIdsForGroup("updates")
    spark.sparkContext.setLocalProperty("spark.jobGroup.id", None)
    assert len(jobs) == 1


def test_a_file_of_updates_that_is_gone_is_named(spark, tmp_path):
    spec = UpdatesSpec(format="json", path=tmp_path)
    with pytest.raises(PipelineError, match=r"gone\.json, a file of the source, cannot be read: No such file"):
        SparkUpdateReader(spark).read_files(spec, COLUMNS, [tmp_path / "gone.json"])
