"""Columns that Spark computes, of rows as they come or of rows that were joined: SQL expressions by name."""

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


@dataclass(frozen=True)
class ComputedColumns:
    """Expressions ``before`` the first join and ``after`` the last, and the columns of rows ``entering`` the joins."""

    before: dict[str, str]
    after: dict[str, str]
    entering: pa.Schema

    @classmethod
    def of(cls, spec: PipelineSpec, spark: SparkSession) -> ComputedColumns:
        """Those of a pipeline; expressions over the source's columns are checked."""
        joins = [step.compute is None for step in spec.steps]
        first, last = joins.index(True), len(joins) - joins[::-1].index(True)
        before = {name: text for step in spec.steps[:first] for name, text in (step.compute or {}).items()}
        after = {name: text for step in spec.steps[last:] for name, text in (step.compute or {}).items()}
        return cls(before, after, _with(spark, spec.source.arrow_schema, before))

    def applied(self, rows: DataFrame) -> DataFrame:
        """The rows of a source with the columns computed before; the text of rows and what is behind it stay last."""
        if not self.before:
            return rows
        at = rows.columns.index(RAW)
        own, last = rows.columns[:at], rows.columns[at:]
        columns = rows
        for name, text in self.before.items():
            columns = columns.withColumn(name, sf.expr(text))
        return columns.select(*own, *self.before, *last)

    def leaving(self, joined: pa.Schema, spark: SparkSession) -> pa.Schema:
        """The columns of rows that leave, from those that were joined."""
        return _with(spark, carried_schema(joined), self.after) if self.after else joined


def _with(spark: SparkSession, schema: pa.Schema, expressions: dict[str, str]) -> pa.Schema:
    """Columns, and behind them those of expressions over these and the expressions before."""
    if not expressions:
        return schema
    frame = spark.createDataFrame([], from_arrow_schema(schema))
    for name, text in expressions.items():
        if name in frame.columns:
            raise PipelineError(f"compute makes a column {name!r}, which is there already; give it another name.")
        try:
            frame = frame.withColumn(name, sf.expr(text))
        except (AnalysisException, ParseException) as error:
            raise PipelineError(
                f"compute: {name} is {text!r}, which Spark cannot make of the columns {', '.join(frame.columns)}: "
                f"{str(error).splitlines()[0]}"
            ) from error
    made = to_arrow_schema(frame.schema, timezone="UTC")
    return pa.schema([*schema, *(made.field(name).with_nullable(True) for name in expressions)])
