"""Columns that Spark computes by SQL expressions, before the first join or after the last."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa
from pyspark.errors import AnalysisException, ParseException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf
from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema

from semistream.errors import PipelineError
from semistream.pipelines.carried_types import carried_schema
from semistream.pipelines.spec.pipeline_spec import PipelineSpec
from semistream.pipelines.task.batch_task import RAW
from semistream.spark.joins.routing import quoted
from semistream.spark.try_eval import attempted

_MADE, _VALUE = "__made", "value"


@dataclass(frozen=True)
class ComputedColumns:
    """SQL expressions by column name, ``before`` the first join and ``after`` the last.

    ``entering`` is the schema of rows that enter the first join.
    """

    before: dict[str, str]
    after: dict[str, str]
    entering: pa.Schema

    @classmethod
    def of(cls, spec: PipelineSpec, spark: SparkSession) -> ComputedColumns:
        """Collect the expressions of a pipeline, and check those over the source's columns."""
        joins = [step.compute is None for step in spec.steps]
        first, last = joins.index(True), len(joins) - joins[::-1].index(True)
        before = {name: text for step in spec.steps[:first] for name, text in (step.compute or {}).items()}
        after = {name: text for step in spec.steps[last:] for name, text in (step.compute or {}).items()}
        return cls(before, after, _with(spark, spec.source.arrow_schema, before))

    def applied(self, rows: DataFrame) -> DataFrame:
        """Add the ``before`` columns to source rows, in front of the raw text column and those behind it.

        A row on which an expression fails becomes unreadable: its raw text names the column and has the row as JSON.
        """
        if not self.before:
            return rows
        at = rows.columns.index(RAW)
        own, last = rows.columns[:at], rows.columns[at:]
        columns, raw = rows, sf.col(RAW)
        row = sf.to_json(sf.struct(*(sf.col(quoted(name)) for name in own)), {"ignoreNullFields": "false"})
        for number, (name, text) in enumerate(self.before.items()):
            made = f"{_MADE}{number}"
            columns = columns.withColumn(made, attempted(sf.struct(sf.expr(text).alias(_VALUE)), rows))
            columns = columns.withColumn(name, sf.col(made)[_VALUE])
            failed = sf.col(RAW).isNull() & sf.col(made).isNull()
            raw = sf.when(failed, sf.concat(sf.lit(f"({name} cannot be computed) "), row)).otherwise(raw)
        return columns.withColumn(RAW, raw).select(*own, *self.before, *last)

    def leaving(self, joined: pa.Schema, spark: SparkSession) -> pa.Schema:
        """Return the schema of the results: the ``joined`` columns and the ``after`` columns."""
        return _with(spark, carried_schema(joined), self.after) if self.after else joined


def _with(spark: SparkSession, schema: pa.Schema, expressions: dict[str, str]) -> pa.Schema:
    """Append computed columns to a schema; each expression may use the columns computed before it."""
    if not expressions:
        return schema
    frame = spark.createDataFrame([], from_arrow_schema(schema))
    for name, text in expressions.items():
        if name in frame.columns:
            raise PipelineError(f"compute adds a column {name!r}, but there is one already; give it another name.")
        try:
            frame = frame.withColumn(name, sf.expr(text))
        except (AnalysisException, ParseException) as error:
            raise PipelineError(
                f"compute: {name} is {text!r}, which Spark cannot compute from the columns {', '.join(frame.columns)}: "
                f"{str(error).splitlines()[0]}"
            ) from error
    made = to_arrow_schema(frame.schema, timezone="UTC")
    return pa.schema([*schema, *(made.field(name).with_nullable(True) for name in expressions)])
