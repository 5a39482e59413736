"""Delta tables, written by delta-rs without a JVM: one transaction adds the files of a batch and records its number."""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, Transaction
from deltalake.exceptions import DeltaError
from deltalake.transaction import AddAction

from semistream.errors import InvalidArgument, PipelineError
from semistream.pipelines.ledger.entries import WrittenFile
from semistream.pipelines.ledger.faults import reached
from semistream.pipelines.spec.pipeline_spec import TableSpec
from semistream.pipelines.tables.delta_log import DeltaLog
from semistream.pipelines.tables.table import Owner, Table, require_same_columns
from semistream.pipelines.tables.writer import TableLayout
from semistream.storage.local_files import make_folder

_LOG = logging.getLogger(__name__)
_WRITTEN_BY = "semistream"


class DeltaSink(Table):
    """Table that appends to a Delta table.

    Each commit carries two application transactions (Delta's ``txn`` action) with the batch number as version. The one
    named after the checkpoint prevents a second commit of the same batch. The one named after the pipeline reveals a
    table that the same pipeline wrote from another checkpoint, where every row would be added twice.

    A commit returns when the log entry is durable, so that a batch called done survives a power cut.
    """

    def __init__(self, spec: TableSpec, schema: pa.Schema, owner: Owner, outbox: Path) -> None:
        super().__init__(spec, schema, owner, outbox)
        self._table: DeltaTable | None = None
        self._log = DeltaLog(self.path)
        self._lost_all = False  # a power cut has torn the whole log
        self.schema = pa.schema([field.with_type(_delta_type(field)) for field in self.schema])

    @property
    def layout(self) -> TableLayout:
        """Layout of the data files: in the table's folder, unseen by readers until the Delta log names them."""
        return TableLayout(str(self.path), self.schema, self.partition_by, owner=self.owner.prefix, takes_copies=True)

    def open(self) -> None:
        """Create the table if it is missing; refuse one with other columns, other partitions or another checkpoint.

        Entries of the log that a power cut has torn are moved aside first: nobody could read the table with them.
        """
        try:
            make_folder(self._log.folder)
            self._lost_all = self._log.mend()
            DeltaTable.create(
                str(self.path), schema=self.schema, mode="ignore", partition_by=list(self.partition_by) or None
            )
            table = DeltaTable(str(self.path))
            self._log.sync(table.version())
        except (DeltaError, OSError) as error:
            raise PipelineError(f"the Delta table {self.path} cannot be opened or created: {error}") from error
        require_same_columns(self.path, _plain(pa.schema(table.schema().to_arrow())), _plain(self.schema))
        if (there := tuple(table.metadata().partition_columns)) != self.partition_by:
            raise PipelineError(
                f"the Delta table {self.path} is partitioned by ({', '.join(there)}), but the pipeline partitions by "
                f"({', '.join(self.partition_by)}). Set partition_by to match the table, or use another table."
            )
        if table.transaction_version(self._app) is not None and table.transaction_version(self._checkpoint) is None:
            raise PipelineError(
                f"the Delta table {self.path} has rows of the pipeline {self.owner.name!r} from another checkpoint. "
                "All rows would be added twice: restore that checkpoint, or use another pipeline name or table."
            )

    def commit(self, batch: int, files: Sequence[WrittenFile]) -> None:
        """Add the files of a batch in one transaction, unless the table already has that batch; sync the log."""
        if not files:
            return
        try:
            table = self._current()
            if self._has(table, batch):
                if not self._log.withdraw(self._checkpoint, batch, {file.path for file in files}):
                    self._log.sync(table.version())
                    return
                table = self._table = DeltaTable(str(self.path))
            self._log.sync(table.version())  # other writers' entries: none before this one is torn alone
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
            self._log.sync(self._current().version())
            reached("after delta sync")
        except (DeltaError, OSError) as error:
            self._table = None
            raise PipelineError(
                f"batch {batch} cannot be committed to the Delta table {self.path}: {error}. Its files are written; "
                "make the table writable and start the pipeline again."
            ) from error

    def delete(self, where: str, said: str) -> None:
        """Delete the rows that meet a condition in one transaction, which is ``said`` in the log; sync the log."""
        try:
            table = self._current()
            self._log.sync(table.version())
            properties = CommitProperties(custom_metadata={"userMetadata": f"{_WRITTEN_BY} {self.owner.name} {said}"})
            table.delete(where, commit_properties=properties)
            self._log.sync(self._current().version())
        except (DeltaError, OSError) as error:
            self._table = None
            raise PipelineError(
                f"rows cannot be deleted from the Delta table {self.path}: {error}. Make the table writable and start "
                "again."
            ) from error

    def restore(self, done: Sequence[tuple[int, Sequence[WrittenFile]]]) -> None:
        """Commit ``done`` batches again that the table has lost, oldest first, with their files."""
        table = self._current()
        lost = [(batch, files) for batch, files in done if files and not self._has(table, batch)]
        if not lost:
            return
        if self._lost_all and done[0][0] > 0:
            raise PipelineError(
                f"a power cut has destroyed the whole log of the Delta table {self.path}, and the ledger has only the "
                f"batches from {done[0][0]} on. Restore the folder _delta_log from a copy, or give the pipeline a new "
                "table and a new checkpoint."
            )
        named = set(self._log.added())
        for batch, files in lost:
            if all(file.path in named for file in files):  # the table has forgotten old transactions, not the rows
                continue
            if missing := [file.path for file in files if not (self.path / file.path).exists()]:
                raise PipelineError(
                    f"the Delta table {self.path} has no rows of batch {batch}, which the ledger calls done, and its "
                    f"file {missing[0]} is missing. Restore the table from a copy, or give the pipeline a new table "
                    "and a new checkpoint."
                )
            _LOG.warning("the log of the Delta table %s has lost batch %d; it is committed again", self.path, batch)
            self.commit(batch, files)

    def _has(self, table: DeltaTable, batch: int) -> bool:
        """True if the table has the batch, or a later one, of this checkpoint."""
        last = table.transaction_version(self._checkpoint)
        return last is not None and last >= batch

    def _current(self) -> DeltaTable:
        """Return the table's latest version; only the log's new entries are read."""
        if self._table is None:
            self._table = DeltaTable(str(self.path))
        else:
            self._table.update_incremental()
        return self._table

    def vacuum(self, in_use: set[str]) -> list[Path]:
        """Remove files of this checkpoint that no version of the table names.

        Files of other checkpoints stay: their owner may be about to commit them.
        """
        if not self._log.begun:  # killed before the table was created
            return []
        try:
            named = {Path(name).resolve() for name in DeltaTable(str(self.path)).file_uris()}
        except DeltaError as error:
            raise PipelineError(
                f"the Delta table {self.path} cannot be read: {error}. Run the pipeline, which mends a log that a "
                "power cut has torn, then vacuum."
            ) from error
        known = named | {(self.path / name).resolve() for name in {*in_use, *self._log.added()}}
        removed = [path for path in self.path.rglob(f"{self.owner.prefix}*.parquet") if path.resolve() not in known]
        for path in removed:
            path.unlink()
        return removed

    @property
    def _app(self) -> str:
        return f"{_WRITTEN_BY}/{self.owner.name}"

    @property
    def _checkpoint(self) -> str:
        return f"{self._app}/{self.owner.token}"


def _delta_type(field: pa.Field) -> pa.DataType:
    """Return the Delta type of a field: timestamps with a zone become UTC, times and durations are refused."""
    if pa.types.is_time(field.type) or pa.types.is_duration(field.type):
        raise InvalidArgument(
            f"column {field.name!r} is {field.type}, and Delta has no such type. Leave it out (columns: [...]), or "
            "write the table as Parquet (format: parquet)."
        )
    if pa.types.is_timestamp(field.type) and field.type.tz is not None:
        return pa.timestamp("us", "UTC")
    return field.type


def _plain(schema: pa.Schema) -> pa.Schema:
    """Return the schema in the types that Delta distinguishes: no large strings or binaries, every field nullable."""
    same = {pa.large_string(): pa.string(), pa.large_binary(): pa.binary()}
    return pa.schema([(field.name, same.get(field.type, field.type)) for field in schema])
