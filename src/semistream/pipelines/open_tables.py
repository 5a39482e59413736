"""Open a pipeline's target tables by row outcome, and derive the rules that its source rows must meet."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import pyarrow as pa

from semistream.errors import PipelineError
from semistream.pipelines.inputs.shed_archive import archive_schema
from semistream.pipelines.spec.pipeline_spec import PipelineSpec, TableSpec
from semistream.pipelines.spec.row_rules import RowRule, readable_time
from semistream.pipelines.tables.outbox import ConsoleTable
from semistream.pipelines.tables.parquet import ParquetSink
from semistream.pipelines.tables.quarantine import INVALID_SCHEMA
from semistream.pipelines.tables.table import Owner, Table
from semistream.pipelines.task.batch_task import stopped_schema

OUTBOX = "outbox"
"""Folder in the checkpoint for rows bound for Kafka or the console rather than a table of files."""


Kinds = Mapping[str, type[Table]]
"""Table classes by format, for the formats that need Spark."""


def open_tables(
    spec: PipelineSpec, source: pa.Schema, joined: pa.Schema, owner: Owner, kinds: Kinds
) -> dict[str, Table]:
    """Open the tables of a pipeline and return them by outcome; create missing ones.

    ``source`` is the schema of the incoming rows, ``joined`` the schema of rows after the last step.
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
    """Return the class that writes a table of this format: one of ``kinds`` if it has the format."""
    if table.format in kinds:
        return kinds[table.format]
    if table.format == "parquet":
        return ParquetSink
    if table.format == "console":
        return ConsoleTable
    try:
        from semistream.pipelines.tables.delta import DeltaSink  # noqa: PLC0415 (deltalake comes with semistream[delta] only)
    except ModuleNotFoundError as error:
        raise PipelineError(
            f"{table.path} is a Delta table, which needs the package {error.name!r}: install semistream[delta]."
        ) from error
    return DeltaSink


def entry_rules(spec: PipelineSpec, source: pa.Schema, tables: Iterable[Table]) -> tuple[RowRule, ...]:
    """Return the rules that every source row must meet before it is joined.

    These are the source's own rules, a not-null rule for each key column of a keyed step, and a year from 1 to 9999 in
    each date or time column that partitions one of the ``tables``, so that other readers can parse the folder names.
    """
    keyed = [name for step in spec.steps if step.keyed is not None for name in step.keyed.key]
    parted = {name for table in tables for name in table.partition_by if name in source.names}
    rules = [each.rule for each in spec.source.rules]
    rules += [RowRule(name, not_null=True) for name in keyed if name in source.names]
    dated = (readable_time(name, source.field(name).type) for name in sorted(parted))
    return (*rules, *(rule for rule in dated if rule is not None))
