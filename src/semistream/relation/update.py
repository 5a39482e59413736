"""Copy-on-write updates: touched pages go to a new file, the new version shares all others with the old one."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from semistream.errors import ColumnNotFound, InvalidArgument, SemistreamError
from semistream.kernels.array_types import Int64s
from semistream.keys.plain_types import empty_batch
from semistream.relation.format.page_table import PageTable
from semistream.relation.lookup import KeySet
from semistream.relation.write.build import NullKeyRows, PageOptions, require_distinct, with_codes
from semistream.relation.write.page_writer import PageWriter
from semistream.relation.write.sources import open_source
from semistream.relation.write.version_draft import Draft, new_version
from semistream.storage.local_files import sync_folder

if TYPE_CHECKING:
    from semistream.relation.relation import Relation


@dataclass(frozen=True)
class Transaction:
    """The identity of an update: its ``writer`` and an increasing ``number``. No transaction is applied twice."""

    writer: str
    number: int


@dataclass(frozen=True)
class Change:
    """The content of an update: rows that replace all rows of their key, keys to drop, and new values of counters."""

    upserts: Any = None
    deletes: Any = None
    counters: Mapping[str, int] = field(default_factory=dict)


def update_relation(
    relation: Relation,
    change: Callable[[Relation], Change],
    transaction: Transaction | None = None,
    wait_s: float | None = None,
) -> None:
    """See `Relation.update` and `Relation.change`.

    The update applies to the current version, whatever version ``relation`` has open.
    """
    with new_version(relation.path, create=False, wait_s=wait_s) as draft:
        relation = type(relation).open(relation.path)  # the one given may be old, or a part
        if transaction is not None and relation.made_by(transaction) is not None:
            sync_folder(relation.path)  # its writer may have died before it did so
            return
        wanted = change(relation)
        rows = _upsert_rows(relation, wanted.upserts)
        nulls = NullKeyRows(draft, relation.schema)
        try:
            _Update(relation, draft, rows, wanted, nulls, transaction).run()
        finally:
            nulls.abandon()


class _Update:
    def __init__(
        self,
        relation: Relation,
        draft: Draft,
        upserts: pa.Table,
        change: Change,
        nulls: NullKeyRows,
        transaction: Transaction | None,
    ) -> None:
        self._relation = relation
        self._draft = draft
        self._nulls = nulls
        self._transaction = transaction
        self._counters = change.counters
        self._by = relation.layout.code_column
        self._inserts = self._sorted_inserts(upserts)
        self._insert_codes = self._codes(self._inserts)
        self._touched = [KeySet(relation.codec, [_one_array(upserts, name) for name in relation.key])]
        if change.deletes is not None:
            self._touched.append(KeySet.of(relation, change.deletes))

    def run(self) -> None:
        relation, table, manifest = self._relation, self._relation.table, self._relation.manifest
        last = max(len(table) - 1, 0)
        home = np.minimum(np.searchsorted(table.last_code, self._insert_codes, "left"), last)
        touched = np.logical_or.reduce([table.pages_holding(keys.codes) for keys in self._touched])
        if len(table):
            touched[home] = True
        groups = manifest.num_groups
        names = self._draft.name_files("0", groups)
        paths = [relation.path / name for name in names]
        options = PageOptions(manifest.page_bytes, manifest.fill_factor)
        writer = PageWriter(paths, relation.layout, self._by, page_bytes=options.fill_bytes)
        origin: list[npt.NDArray[np.intp]] = []  # for each new page, the old page it replaces
        try:
            for page, kept in self._kept_rows(np.flatnonzero(touched)):
                begin, end = np.searchsorted(home, [page, page + 1]) if len(table) else (0, home.size)
                before = writer.pages
                writer.write_apart(self._merge(kept, int(begin), int(end)), most_bytes=options.page_bytes)
                origin.append(np.full(writer.pages - before, page))
            entries, pages = writer.close(names, len(manifest.files) // groups)
        except BaseException:
            writer.abandon()
            raise
        stays = np.flatnonzero(~touched)
        merged = PageTable.concat([table.take(stays), pages])
        merged = merged.take(np.argsort(np.concatenate([stays, *origin]), kind="stable"))
        used, merged_files = np.unique(merged.file, return_inverse=True)
        files = [*manifest.files, *entries]
        if used.size and used[-1] < len(manifest.files) // groups:
            for path in paths:
                path.unlink()  # without pages: no page was touched, or none of their rows remain
        self._draft.publish(
            key=relation.key,
            schema=relation.schema,
            page_bytes=manifest.page_bytes,
            fill_factor=manifest.fill_factor,
            files=[files[i * groups + group] for i in used for group in range(groups)] or entries,
            table=merged.with_files(merged_files.astype(np.int32)),
            null_files=[*manifest.null_files, *self._nulls.close()],
            null_key_rows=manifest.null_key_rows + self._nulls.rows,
            changes=np.unique(np.concatenate([keys.codes for keys in self._touched])),
            column_groups=manifest.column_groups,
            transactions=self._transactions(),
            counters={**manifest.counters, **self._counters},
        )

    def _transactions(self) -> dict[str, tuple[int, int]]:
        known = self._relation.manifest.transactions
        if self._transaction is None:
            return known
        return {**known, self._transaction.writer: (self._transaction.number, self._draft.version)}

    def _sorted_inserts(self, upserts: pa.Table) -> pa.RecordBatch:
        """Return the upserted rows in the columns of pages, sorted by code."""
        relation = self._relation
        coded = with_codes(iter(upserts.to_batches()), relation.key, relation.codec, relation.layout, self._nulls)
        batch = pa.concat_batches([*coded, empty_batch(relation.layout.schema)])
        return batch.take(pa.array(np.argsort(self._codes(batch), kind="stable")))

    def _codes(self, batch: pa.RecordBatch) -> Int64s:
        codes: Int64s = batch.column(self._by).view(pa.int64()).to_numpy()
        return codes

    def _kept_rows(self, pages: npt.NDArray[np.intp]) -> Iterator[tuple[int, pa.RecordBatch]]:
        """Yield each touched page and the rows it keeps."""
        relation = self._relation
        if len(relation.table) == 0:
            yield 0, empty_batch(relation.layout.schema)
            return
        for run in relation.read_pages(pages):
            dropped = np.logical_or.reduce([keys.flag_rows(run) for keys in self._touched])
            row = 0
            for position, page in enumerate(run.pages.tolist()):
                rows = int(run.rows[position])
                yield page, run.batch(position).filter(pa.array(~dropped[row : row + rows]))
                row += rows

    def _merge(self, kept: pa.RecordBatch, begin: int, end: int) -> pa.RecordBatch:
        if begin == end:
            return kept
        both = pa.concat_batches([kept, self._inserts.slice(begin, end - begin)])
        return both.take(pa.array(np.argsort(self._codes(both), kind="stable")))


def _upsert_rows(relation: Relation, upserts: Any) -> pa.Table:
    """Return the upserts with R's columns in R's order and types."""
    if upserts is None:
        return pa.Table.from_batches([], relation.schema)
    table = open_source(upserts).read_all()
    require_distinct(table.schema, where="upserts")
    for name in relation.schema.names:
        if name not in table.column_names:
            raise ColumnNotFound(name, table.column_names, where="upserts")
    if extra := [name for name in table.column_names if name not in relation.schema.names]:
        raise InvalidArgument(f"upserts have columns unknown to the relation: {', '.join(extra)}. Drop them.")
    try:
        columns = [_cast(table.column(field.name), field) for field in relation.schema]
        return pa.Table.from_arrays(columns, schema=relation.schema)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, ValueError) as error:
        raise SemistreamError(f"upserts do not fit the relation's columns: {error}. Cast them first.") from error


def _cast(column: pa.ChunkedArray, field: pa.Field) -> pa.ChunkedArray:
    if column.null_count and not field.nullable:
        raise ValueError(f"column {field.name!r} has nulls, but is not nullable")
    return column if column.type == field.type else column.cast(field.type)  # Arrow breaks some slices that need none


def _one_array(table: pa.Table, name: str) -> pa.Array:
    return pa.concat_arrays([*table.column(name).chunks, pa.array([], table.schema.field(name).type)])
