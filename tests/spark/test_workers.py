"""Python workers outlive queries: their memory serves the next query, and work between batches."""

import os

import pyarrow as pa
import pytest

pytest.importorskip("pyspark", reason="pip install 'semistream[spark]' to run these")

from semistream.spark.session import worker_interpreter

pytestmark = pytest.mark.spark


def parents(df, spark):
    """The processes whose forks have run a task for each partition."""

    def tell(batches):
        for _ in batches:
            pass
        yield pa.record_batch({"parent": [os.getppid()]})

    with worker_interpreter(spark):
        return {row["parent"] for row in df.mapInArrow(tell, "parent bigint").collect()}


def test_queries_and_other_jobs_share_workers(spark, tmp_path):
    (tmp_path / "in").mkdir()
    spark.range(10).write.parquet(str(tmp_path / "in" / "1"))
    stream = spark.readStream.schema("id bigint").parquet(str(tmp_path / "in" / "*"))
    found = [parents(spark.range(10), spark)]
    for number in range(2):
        writer = stream.writeStream.foreachBatch(lambda df, _: found.append(parents(df, spark)))
        writer = writer.option("checkpointLocation", str(tmp_path / f"checkpoint {number}"))
        writer.trigger(availableNow=True).start().awaitTermination()
    assert len(found) == 3
    assert len(set().union(*found)) == 1
