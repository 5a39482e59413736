"""Convert the schema of a Spark DataFrame to Arrow."""

from __future__ import annotations

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql.pandas.types import to_arrow_schema

from semistream.errors import InvalidArgument


def arrow_schema_of(df: DataFrame) -> pa.Schema:
    """Return the Arrow schema of a DataFrame. Timestamps are in UTC, whatever the session's time zone."""
    twice = sorted({name for name in df.columns if df.columns.count(name) > 1})
    if twice:
        raise InvalidArgument(f"df has several columns called {', '.join(map(repr, twice))}; rename them.")
    return to_arrow_schema(df.schema, timezone="UTC")
