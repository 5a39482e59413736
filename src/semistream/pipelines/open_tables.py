"""The tables of a pipeline by the outcome of the rows that end in them, opened and checked.

What rows of a pipeline's source are held against before they are joined.
"""

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
        from semistream.pipelines.tables.delta import DeltaSink  # noqa: PLC0415 (deltalake comes with semistream[delta] only)
    except ModuleNotFoundError as error:
        raise PipelineError(
            f"{table.path} is a Delta table, which takes the package {error.name!r}: install semistream[delta]."
        ) from error
    return DeltaSink


def entry_rules(spec: PipelineSpec, source: pa.Schema, tables: Iterable[Table]) -> tuple[RowRule, ...]:
    """The source's rules, that keys which are looked up are there, and that dates which name a folder of one of the
    ``tables`` are such that others can read them.
    """
    keyed = [name for step in spec.steps if step.keyed is not None for name in step.keyed.key]
    parted = {name for table in tables for name in table.partition_by if name in source.names}
    rules = [each.rule for each in spec.source.rules]
    rules += [RowRule(name, not_null=True) for name in keyed if name in source.names]
    dated = (readable_time(name, source.field(name).type) for name in sorted(parted))
    return (*rules, *(rule for rule in dated if rule is not None))
