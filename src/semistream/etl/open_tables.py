"""The tables of a pipeline by the outcome of the rows that end in them, opened and checked."""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa

from semistream.errors import PipelineError
from semistream.etl.archive import archive_schema
from semistream.etl.batch_task import stopped_schema
from semistream.etl.console_table import ConsoleTable
from semistream.etl.invalid_rows import INVALID_SCHEMA
from semistream.etl.parquet_table import ParquetSink
from semistream.etl.spec import PipelineSpec, TableSpec
from semistream.etl.tables import Owner, Table

OUTBOX = "outbox"
"""The folder in the checkpoint that has rows which go elsewhere than to a table of files."""


Kinds = Mapping[str, type[Table]]
"""Kinds of tables by format, beside those that need no Spark."""


def open_tables(
    spec: PipelineSpec, source: pa.Schema, joined: pa.Schema, owner: Owner, kinds: Kinds
) -> dict[str, Table]:
    """The tables of a pipeline by outcome; those that are not there are made.

    ``source`` are the columns of the rows that come, ``joined`` those of the rows that have been through all steps.
    """
    stopped = stopped_schema(source)
    schemas = {"joined": joined, "unmatched": stopped, "duplicate": stopped, "invalid": INVALID_SCHEMA}
    if spec.overload is not None:
        schemas["shed"] = archive_schema(source)
    tables = {
        outcome: table_kind(table, kinds)(table, schemas[outcome], owner, spec.checkpoint / OUTBOX / outcome)
        for outcome, table in spec.tables.items()
    }
    for table in tables.values():
        table.open()
    return tables


def table_kind(table: TableSpec, kinds: Kinds) -> type[Table]:
    """The kind of table that a description is of."""
    if table.format in kinds:
        return kinds[table.format]
    if table.format == "parquet":
        return ParquetSink
    if table.format == "console":
        return ConsoleTable
    try:
        from semistream.etl.delta_table import DeltaSink  # noqa: PLC0415 (deltalake comes with semistream[delta] only)
    except ModuleNotFoundError as error:
        raise PipelineError(
            f"{table.path} is a Delta table, which takes the package {error.name!r}: install semistream[delta]."
        ) from error
    return DeltaSink
