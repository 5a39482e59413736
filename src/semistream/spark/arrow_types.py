"""Convert the schema of a Spark DataFrame to Arrow."""

from __future__ import annotations

import pyarrow as pa
from pyspark.errors import PySparkTypeError
from pyspark.sql import DataFrame
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructField, StructType

from semistream.errors import InvalidArgument


def arrow_schema_of(df: DataFrame) -> pa.Schema:
    """Return the Arrow schema of a DataFrame. Timestamps are in UTC, whatever the session's time zone."""
    twice = sorted({name for name in df.columns if df.columns.count(name) > 1})
    if twice:
        raise InvalidArgument(f"df has several columns called {', '.join(map(repr, twice))}; rename them.")
    return pa.schema([_arrow_field(field) for field in df.schema])


def _arrow_field(field: StructField) -> pa.Field:
    try:
        return to_arrow_schema(StructType([field]), timezone="UTC").field(0)
    except PySparkTypeError:
        name, type_ = field.name, field.dataType.simpleString()
        raise InvalidArgument(
            f"column {name!r} has type {type_}, which Spark cannot pass to Python workers. Leave it out, or cast it, "
            f"such as an interval to text: df.withColumn({name!r}, df[{name!r}].cast('string'))."
        ) from None
