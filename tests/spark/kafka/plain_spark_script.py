"""Read a table and start a pipeline in a separate Spark, with its own Delta and without the Kafka connector."""

from __future__ import annotations

import json
import sys

from pyspark.sql import SparkSession

from semistream.errors import PipelineError
from semistream.spark.pipelines.pipeline import Pipeline
from tests.spark.kafka.jars import delta_jars


def main(table: str, pipeline: str) -> None:
    """Read a Delta table and start a pipeline; give both as JSON."""
    spark = (
        SparkSession.builder.master("local[1]")
        .config("spark.jars", ",".join(delta_jars()))
        .config("spark.sql.extensions", "io.delta.sql.DeltaSparkSessionExtension")
        .config("spark.sql.catalog.spark_catalog", "org.apache.spark.sql.delta.catalog.DeltaCatalog")
        .config("spark.databricks.delta.snapshotPartitions", "1")
        .config("spark.sql.shuffle.partitions", "1")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.ui.enabled", "false")
        .getOrCreate()
    )
    rows = [json.loads(row) for row in spark.read.format("delta").load(table).toJSON().collect()]
    try:
        Pipeline.from_yaml(pipeline).run(spark, once=True)
    except PipelineError as error:
        refusal = str(error)
    sys.stdout.write(json.dumps({"rows": rows, "refusal": refusal}))
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
