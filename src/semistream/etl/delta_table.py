"""A Delta table: files are added in a transaction that carries the number of the batch, by delta-rs, without a JVM."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from pathlib import Path
from urllib.parse import unquote

import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, Transaction
from deltalake.exceptions import DeltaError
from deltalake.transaction import AddAction

from semistream.errors import PipelineError
from semistream.etl.faults import reached
from semistream.etl.ledger_entries import WrittenFile
from semistream.etl.table_writer import TableLayout
from semistream.etl.tables import Table, require_same_columns

_WRITTEN_BY = "semistream"


class DeltaSink(Table):
    """Appends to a Delta table.

    A commit has two application transactions (Delta's ``txn`` action) with the batch as version: that of the pipeline's
    checkpoint says what need not be committed again, and that of the pipeline tells a table that it has written to with
    another checkpoint, where all rows would come twice.
    """

    @property
    def layout(self) -> TableLayout:
        """Files lie in the table's folder, where no reader sees them before the log names them."""
        return TableLayout(str(self.path), self.schema, self.partition_by, token=self.owner.token)

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
        """Remove files of this checkpoint that no version of the table names.

        Those of other writers stay, as they may be about to commit them. A file that the last version does not have,
        but one before, was removed by a commit whose entry is still in the log.
        """

        named = {Path(name) for name in DeltaTable(str(self.path)).file_uris()} | self._taken_out()
        known = {path.resolve() for path in (*named, *(self.path / name for name in in_use))}
        own = self.path.rglob(f"{self.owner.token}-*.parquet")
        removed = [path for path in own if path.resolve() not in known]
        for path in removed:
            path.unlink()
        return removed

    def _taken_out(self) -> set[Path]:
        """Files that were in some version and are not in a later one."""
        taken: set[Path] = set()
        for entry in (self.path / "_delta_log").glob("*.json"):
            actions = [json.loads(line) for line in entry.read_text().splitlines() if '"remove"' in line]
            taken |= {self.path / unquote(action["remove"]["path"]) for action in actions if "remove" in action}
        return taken

    @property
    def _app(self) -> str:
        return f"{_WRITTEN_BY}/{self.owner.name}"

    @property
    def _checkpoint(self) -> str:
        return f"{self._app}/{self.owner.token}"


def _plain(schema: pa.Schema) -> pa.Schema:
    """Types as Delta tells them apart: long texts and bytes are the same as others, nothing is required."""
    same = {pa.large_string(): pa.string(), pa.large_binary(): pa.binary()}
    return pa.schema([(field.name, same.get(field.type, field.type)) for field in schema])
