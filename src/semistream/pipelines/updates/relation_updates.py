"""RelationUpdates: updates of a relation while a pipeline runs, applied between batches, each exactly once."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from semistream.pipelines.ledger.faults import reached
from semistream.pipelines.ledger.ledger import Ledger
from semistream.pipelines.spec.column_types import type_name
from semistream.pipelines.spec.source_spec import RESERVED
from semistream.pipelines.spec.step_spec import UpdatesSpec
from semistream.pipelines.steps.update_rows import UpdateRows, without_key
from semistream.pipelines.tables.quarantine import UNREADABLE, row_texts
from semistream.pipelines.task.batch_task import RAW
from semistream.pipelines.task.row_checks import too_wide, why_each
from semistream.pipelines.updates.folder_updates import FolderUpdates
from semistream.pipelines.updates.topic_updates import TopicUpdates, write_aside
from semistream.pipelines.updates.update_reader import DELETES, UpdateReader
from semistream.relation import Relation, Transaction

_MOST_S = 5.0  # after which a batch goes on, though more updates are there
REJECTED = pa.schema([("raw", pa.string()), ("reason", pa.string())])


class RelationUpdates:
    """Updates of one relation.

    The ledger records the input of an update before it is applied, and the relation records the number of the last one
    applied. Each recorded update is therefore applied once, whatever crashes. Rows that cannot be read, have no key, or
    take more than ``most_row_bytes`` go to the quarantine with the next batch.
    """

    def __init__(
        self,
        spec: UpdatesSpec,
        path: Path,
        step: int,
        ledger: Ledger,
        writer: str,
        *,
        most_row_bytes: int | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._spec, self._path, self._ledger, self._clock = spec, path, ledger, clock
        self._most_row_bytes = most_row_bytes
        self._label = f"{step}-{path.name}"  # another step may use a relation of the same name, or the same one
        self._writer = f"{writer}/updates/{step}"
        self._source = (
            TopicUpdates(spec, ledger.updates_folder, self._label)
            if spec.format == "kafka"
            else FolderUpdates(spec, path, ledger.updates_folder, self._label)
        )

    def apply(self, reader: UpdateReader) -> bool:
        """Apply the recorded update if it is unfinished, then new input; return True if anything was applied.

        Input that comes meanwhile is for the next call. After some seconds, so is the rest of what was there: a batch
        must not wait for ever, however fast updates come.
        """
        began, last = self._clock(), self._ledger.update(self._label)
        done = False if last is None else self._apply(reader, *last)
        number, before = (0, {}) if last is None else last
        for content in self._source.pieces(reader, before, number + 1):
            number += 1
            self._ledger.write_update(self._label, number, content)
            done = self._apply(reader, number, content) or done
            if self._clock() - began > _MOST_S:
                break
        return done

    def _apply(self, reader: UpdateReader, number: int, content: dict[str, Any]) -> bool:
        relation = Relation.open(self._path)
        transaction = Transaction(self._writer, number)
        applied = relation.made_by(transaction) is not None or content.get("rows") == 0
        if not applied:
            rows = self._read(reader, relation, content, number)
            reached("before update")
            relation.change(rows.change, transaction)
            reached("after update")
        self._source.forget(content)
        return not applied

    def _read(self, reader: UpdateReader, relation: Relation, content: dict[str, Any], number: int) -> UpdateRows:
        """Read the rows of an update; write the unusable ones to a file for the quarantine."""
        table = self._source.rows(reader, relation, self._columns(relation), content)
        nullable = pa.schema([field.with_nullable(True) for field in relation.schema])
        own = table.select(nullable.names).cast(nullable)
        rows = own.append_column(DELETES, self._deletes(table))
        reasons = [why_each(batch, partial(self._broken, relation)) for batch in rows.to_batches()]
        why = pc.if_else(pc.is_valid(table.column(RAW)), UNREADABLE, pa.chunked_array(reasons, pa.string()))
        wrong = pc.is_valid(why)
        if pc.any(wrong).as_py():
            self._reject(table.filter(wrong), why.filter(wrong), number)
        right = pc.invert(wrong)
        return UpdateRows(own.filter(right), rows.column(DELETES).filter(right))

    def _deletes(self, table: pa.Table) -> pa.ChunkedArray:
        """Return a mask of the rows that delete their key."""
        deletes = pa.repeat(False, table.num_rows)
        if self._spec.op is not None:
            deletes = pc.fill_null(pc.equal(table.column(self._spec.op), self._spec.delete), False)
        if DELETES in table.column_names:
            deletes = pc.or_(deletes, table.column(DELETES))
        return deletes if isinstance(deletes, pa.ChunkedArray) else pa.chunked_array([deletes])

    def _broken(self, relation: Relation, rows: pa.RecordBatch) -> pa.StringArray:
        """Return why each row cannot change the relation, or null if it can."""
        rows.validate(full=True)
        upserts, reasons = pc.invert(rows.column(DELETES)), pa.nulls(rows.num_rows, pa.string())
        for name in (field.name for field in relation.schema if not field.nullable):
            reasons = pc.if_else(pc.and_(upserts, rows.column(name).is_null()), f"{name} is null", reasons)
        if self._most_row_bytes is not None:  # a join has no room for a page that is too large
            reasons = too_wide(rows, max(self._most_row_bytes, relation.largest_page), reasons)
        keyless = without_key(rows, relation.key)
        return pc.if_else(keyless, f"a row without its key ({', '.join(relation.key)})", reasons)

    def _columns(self, relation: Relation) -> dict[str, str]:
        columns = {field.name: type_name(field.type) for field in relation.schema}
        return columns if self._spec.op is None else {**columns, self._spec.op: "string"}

    def _reject(self, rows: pa.Table, reasons: pa.ChunkedArray, number: int) -> None:
        own = [name for name in rows.column_names if not name.startswith(RESERVED)]
        texts = [text for batch in rows.to_batches() for text in row_texts(batch.select(own), batch.column(RAW))]
        table = pa.table([pa.array(texts, pa.string()), reasons.combine_chunks()], schema=REJECTED)
        write_aside(self._ledger.updates_folder / f"{self._label}-{number}.rejected.parquet", table)


def all_updates(
    steps: Sequence[Any],
    ledger: Ledger,
    writer: str,
    *,
    most_row_bytes: int | None = None,
    clock: Callable[[], float] = time.monotonic,
) -> list[RelationUpdates]:
    """Return the updates of all steps that have them; rows of more than ``most_row_bytes`` are rejected."""
    return [
        RelationUpdates(
            step.join.updates, step.join.relation, number, ledger, writer, most_row_bytes=most_row_bytes, clock=clock
        )
        for number, step in enumerate(steps)
        if step.join is not None and step.join.updates is not None
    ]
