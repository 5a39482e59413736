"""RelationUpdates: updates of a relation while a pipeline runs, applied between batches, each exactly once."""

from __future__ import annotations

from collections.abc import Sequence
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
from semistream.pipelines.tables.quarantine import UNREADABLE, as_json
from semistream.pipelines.task.batch_task import RAW
from semistream.pipelines.updates.folder_updates import FolderUpdates
from semistream.pipelines.updates.topic_updates import TopicUpdates, write_aside
from semistream.pipelines.updates.update_reader import DELETES, UpdateReader
from semistream.relation import Relation, Transaction

REJECTED = pa.schema([("raw", pa.string()), ("reason", pa.string())])


class RelationUpdates:
    """Updates of one relation.

    The ledger records the input of an update before it is applied, and the relation records the number of the last one
    applied. Each recorded update is therefore applied once, whatever crashes. Rows that cannot be read, or have no key,
    go to the quarantine with the next batch.
    """

    def __init__(self, spec: UpdatesSpec, path: Path, step: int, ledger: Ledger, writer: str) -> None:
        self._spec, self._path, self._ledger = spec, path, ledger
        self._label = f"{step}-{path.name}"  # another step may use a relation of the same name, or the same one
        self._writer = f"{writer}/updates/{step}"
        self._source = (
            TopicUpdates(spec, ledger.updates_folder, self._label)
            if spec.format == "kafka"
            else FolderUpdates(spec, path)
        )

    def apply(self, reader: UpdateReader) -> bool:
        """Apply the recorded update if it is unfinished, then all new input; return True if anything was applied."""
        last = self._ledger.update(self._label)
        done = False if last is None else self._apply(reader, *last)
        number, content = (0, {}) if last is None else last
        while (new := self._source.next(reader, content, number + 1)) is not None:
            number, content = number + 1, new
            self._ledger.write_update(self._label, number, content)
            done = self._apply(reader, number, content) or done
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
        op = self._spec.op
        own = table.select(relation.schema.names).cast(relation.schema)
        reasons = pc.if_else(without_key(own, relation.key), f"a row without its key ({', '.join(relation.key)})", None)
        reasons = pc.if_else(pc.is_valid(table.column(RAW)), UNREADABLE, reasons)
        wrong = pc.is_valid(reasons)
        if pc.any(wrong).as_py():
            self._reject(table.filter(wrong), reasons.filter(wrong), number)
        deletes = (
            pc.fill_null(pc.equal(table.column(op), self._spec.delete), False)
            if op
            else pa.array([False]).take(pa.array([0] * table.num_rows, pa.int64()))
        )
        if DELETES in table.column_names:
            deletes = pc.or_(deletes, table.column(DELETES))
        right = pc.invert(wrong)
        return UpdateRows(own.filter(right), deletes.filter(right))

    def _columns(self, relation: Relation) -> dict[str, str]:
        columns = {field.name: type_name(field.type) for field in relation.schema}
        return columns if self._spec.op is None else {**columns, self._spec.op: "string"}

    def _reject(self, rows: pa.Table, reasons: pa.ChunkedArray, number: int) -> None:
        raw = rows.column(RAW).to_pylist()
        own = rows.drop_columns([name for name in rows.column_names if name.startswith(RESERVED)]).to_pylist()
        texts = [as_json(row) if text is None else text for text, row in zip(raw, own, strict=True)]
        table = pa.table([pa.array(texts, pa.string()), reasons.combine_chunks()], schema=REJECTED)
        write_aside(self._ledger.updates_folder / f"{self._label}-{number}.rejected.parquet", table)


def all_updates(steps: Sequence[Any], ledger: Ledger, writer: str) -> list[RelationUpdates]:
    """Return the updates of all steps that have them."""
    return [
        RelationUpdates(step.join.updates, step.join.relation, number, ledger, writer)
        for number, step in enumerate(steps)
        if step.join is not None and step.join.updates is not None
    ]
