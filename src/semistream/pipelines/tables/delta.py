"""A Delta table: files are added in a transaction that carries the number of the batch, by delta-rs, without a JVM."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from urllib.parse import unquote

import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, Transaction
from deltalake.exceptions import DeltaError
from deltalake.transaction import AddAction

from semistream.errors import InvalidArgument, PipelineError
from semistream.pipelines.ledger.entries import WrittenFile
from semistream.pipelines.ledger.faults import reached
from semistream.pipelines.spec.pipeline_spec import TableSpec
from semistream.pipelines.tables.table import Owner, Table, require_same_columns
from semistream.pipelines.tables.writer import TableLayout

_WRITTEN_BY = "semistream"


class DeltaSink(Table):
    """Appends to a Delta table.

    A commit has two application transactions (Delta's ``txn`` action) with the batch as version: that of the pipeline's
    checkpoint says what need not be committed again, and that of the pipeline tells a table that it has written to with
    another checkpoint, where all rows would come twice.
    """

    def __init__(self, spec: TableSpec, schema: pa.Schema, owner: Owner, outbox: Path) -> None:
        super().__init__(spec, schema, owner, outbox)
        self.schema = pa.schema([field.with_type(_delta_type(field)) for field in self.schema])

    @property
    def layout(self) -> TableLayout:
        """Files lie in the table's folder, where no reader sees them before the log names them."""
        return TableLayout(str(self.path), self.schema, self.partition_by, owner=self._files, takes_copies=True)

    def open(self) -> None:
        """Make the table if there is none, and refuse one with other columns, or of another checkpoint."""

        try:
            DeltaTable.create(
                str(self.path), schema=self.schema, mode="ignore", partition_by=list(self.partition_by) or None
            )
            table = DeltaTable(str(self.path))
        except (DeltaError, OSError) as error:
            raise PipelineError(f"the Delta table {self.path} cannot be opened or made: {error}") from error
        require_same_columns(self.path, _plain(pa.schema(table.schema().to_arrow())), _plain(self.schema))
        if (there := tuple(table.metadata().partition_columns)) != self.partition_by:
            raise PipelineError(
                f"the Delta table {self.path} is partitioned by ({', '.join(there)}), the pipeline's rows by "
                f"({', '.join(self.partition_by)}). Say so in the pipeline, or give it another table."
            )
        if table.transaction_version(self._app) is not None and table.transaction_version(self._checkpoint) is None:
            raise PipelineError(
                f"the Delta table {self.path} has rows of the pipeline {self.owner.name!r} from another checkpoint. "
                "All rows would come twice: restore that checkpoint, give the pipeline another name, or another table."
            )

    def commit(self, batch: int, files: Sequence[WrittenFile]) -> None:
        """Add the files of a batch in one transaction, unless the table has that batch."""

        if not files:
            return
        try:
            table = DeltaTable(str(self.path))
            last = table.transaction_version(self._checkpoint)
            if last is not None and last >= batch:
                return
            now_ms = int(time.time() * 1000)
            added = [
                AddAction(f.path, f.nbytes, f.partition, now_ms, True, json.dumps(f.stats, allow_nan=False))
                for f in files
            ]
            transactions = [Transaction(app, batch) for app in (self._checkpoint, self._app)]
            properties = CommitProperties(
                custom_metadata={"userMetadata": f"{_WRITTEN_BY} {self.owner.name} batch {batch}"},
                app_transactions=transactions,
            )
            reached("before delta commit")
            table.create_write_transaction(
                added, "append", self.schema, list(self.partition_by) or None, commit_properties=properties
            )
            reached("after delta commit")
        except (DeltaError, OSError) as error:
            raise PipelineError(
                f"batch {batch} cannot be committed to the Delta table {self.path}: {error}. Its files are written; "
                "start the pipeline again when the table can be written."
            ) from error

    def vacuum(self, in_use: set[str]) -> list[Path]:
        """Remove files of this checkpoint that no version of the table names: others' may be about to be committed."""
        named = {Path(name).resolve() for name in DeltaTable(str(self.path)).file_uris()}
        known = named | {(self.path / name).resolve() for name in {*in_use, *self._logged()}}
        removed = [path for path in self.path.rglob(f"{self._files}*.parquet") if path.resolve() not in known]
        for path in removed:
            path.unlink()
        return removed

    def _logged(self) -> Iterator[str]:
        """The files that the log has added, also those that a later version has removed."""
        for path in (self.path / "_delta_log").glob("*.json"):
            for line in path.read_text().splitlines():
                if added := json.loads(line).get("add"):
                    yield unquote(added["path"])

    @property
    def _files(self) -> str:
        return f"{self.owner.name}-{self.owner.token}-"

    @property
    def _app(self) -> str:
        return f"{_WRITTEN_BY}/{self.owner.name}"

    @property
    def _checkpoint(self) -> str:
        return f"{self._app}/{self.owner.token}"


def _delta_type(field: pa.Field) -> pa.DataType:
    """A type that Delta has; times with a zone are in UTC there."""
    if pa.types.is_time(field.type) or pa.types.is_duration(field.type):
        raise InvalidArgument(
            f"column {field.name!r} is {field.type}, and Delta has no such type. Leave it out (columns: [...]), or let "
            "the table be one of Parquet files."
        )
    if pa.types.is_timestamp(field.type) and field.type.tz is not None:
        return pa.timestamp("us", "UTC")
    return field.type


def _plain(schema: pa.Schema) -> pa.Schema:
    """Types as Delta tells them apart: long texts and bytes are the same as others, nothing is required."""
    same = {pa.large_string(): pa.string(), pa.large_binary(): pa.binary()}
    return pa.schema([(field.name, same.get(field.type, field.type)) for field in schema])
