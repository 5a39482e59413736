"""Build a relation: turn rows in any order into pages clustered by key code."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

from semistream.budget import parse_bytes
from semistream.errors import BudgetError, ColumnNotFound, InvalidArgument, require_names, shortened
from semistream.keys import KeyCodec
from semistream.relation.format.column_groups import choose_groups
from semistream.relation.format.manifest import Manifest, WholeFile
from semistream.relation.format.page_layout import PageLayout
from semistream.relation.write.external_sort import sort_batches
from semistream.relation.write.page_writer import PageWriter
from semistream.relation.write.sources import open_source
from semistream.relation.write.version_draft import Draft, new_version, seal_whole

DEFAULT_PAGE_BYTES = 64 * 1024
SEGMENT_BYTES = 40 * 1024  # average bytes of a page in each column group: large enough to be worth a request
LEAST_PAGE_BYTES = 512
MOST_PAGE_BYTES = 1 << 30
LEAST_MEMORY = 128 * 10**6

Progress = Callable[[str, int], None]


def build_relation(
    data: Any,
    path: Path,
    *,
    key: str | Sequence[str],
    page_bytes: int | None = None,
    memory: int | str = "512MB",
    fill_factor: float = 1.0,
    overwrite: bool = False,
    column_groups: Sequence[Sequence[str]] | None = None,
    progress: Progress | None = None,
) -> Manifest:
    """See `Relation.build`."""
    memory_bytes = parse_bytes(memory)
    if memory_bytes < LEAST_MEMORY:
        raise BudgetError(f"memory is {memory!r}; the sort needs at least {LEAST_MEMORY} bytes. Raise it to 128MB.")
    source = open_source(data)
    names = key_names(key, source.schema)
    groups = choose_groups(source.schema, names, column_groups)
    options = PageOptions(page_bytes, fill_factor, groups=len(groups))
    codec = KeyCodec.of(names, [source.schema.field(name).type for name in names])
    layout = PageLayout.of(source.schema, names, codec, groups)
    with new_version(path, create=True, overwrite=overwrite) as draft:
        draft.scratch.mkdir()
        nulls = NullKeyRows(draft, source.schema)
        coded = with_codes(_counted(source, "read", progress), names, codec, layout, nulls)
        by = layout.code_column
        files = draft.name_files("0", len(layout.segments))
        writer = PageWriter([path / name for name in files], layout, by, page_bytes=options.fill_bytes)
        try:
            ordered = sort_batches(coded, layout.schema, by=by, memory_bytes=memory_bytes // 2, scratch=draft.scratch)
            for batch in _counted(ordered, "write", progress):
                writer.write(batch)
            entries, table = writer.close(files, 0)
        except BaseException:
            writer.abandon()
            nulls.abandon()
            raise
        return draft.publish(
            key=names,
            schema=source.schema,
            page_bytes=options.page_bytes,
            fill_factor=fill_factor,
            files=entries,
            table=table,
            null_files=nulls.close(),
            null_key_rows=nulls.rows,
            column_groups=groups,
        )


class PageOptions:
    """Validated page options: the size of pages and the share of it to fill."""

    def __init__(self, page_bytes: int | None, fill_factor: float, *, groups: int = 0) -> None:
        default = max(groups * SEGMENT_BYTES, DEFAULT_PAGE_BYTES)
        self.page_bytes = default if page_bytes is None else page_bytes
        if self.page_bytes < LEAST_PAGE_BYTES:
            raise InvalidArgument(f"page_bytes is {shortened(self.page_bytes)}; give at least {LEAST_PAGE_BYTES}.")
        if self.page_bytes > MOST_PAGE_BYTES:
            raise InvalidArgument(f"page_bytes is {shortened(self.page_bytes)}; give at most {MOST_PAGE_BYTES}.")
        if not 0.1 <= fill_factor <= 1.0:
            raise InvalidArgument(f"fill_factor is {fill_factor}; give a number between 0.1 and 1.0.")
        self.fill_bytes = int(self.page_bytes * fill_factor)


class NullKeyRows:
    """Writer of the rows with a null key, to a separate file, because no equality join on the key matches them."""

    def __init__(self, draft: Draft, schema: pa.Schema) -> None:
        self._draft = draft
        self._schema = schema
        self._name: str | None = None
        self._sink: pa.OSFile | None = None
        self._writer: Any = None
        self.rows = 0

    def add(self, batch: pa.RecordBatch) -> None:
        """Write rows to the file, creating it on the first call."""
        if self._writer is None:
            self._name = self._draft.name_file("null-keys")
            self._sink = pa.OSFile(str(self._draft.folder / self._name), "wb")
            self._writer = pa.ipc.new_file(self._sink, self._schema)
        self._writer.write_batch(batch)
        self.rows += batch.num_rows

    def close(self) -> list[WholeFile]:
        """Finish the file and return it in a list; return an empty list if there were no rows."""
        if self._name is None:
            return []
        self._writer.close()
        self.abandon()
        return [seal_whole(self._draft.folder, self._name)]

    def abandon(self) -> None:
        """Close the file. A failed draft removes it."""
        if self._sink is not None:
            self._sink.close()


def key_names(key: str | Sequence[str], schema: pa.Schema) -> tuple[str, ...]:
    """Return the names of the key columns, checked against the schema."""
    names = tuple(require_names("key", key))
    if not names:
        raise InvalidArgument("key is empty; name at least one column.")
    if len(set(names)) < len(names):
        raise InvalidArgument(f"key names a column twice: {', '.join(names)}. Name each column once.")
    for name in names:
        if name not in schema.names:
            raise ColumnNotFound(name, schema.names, where="the relation's data")
    require_distinct(schema, where="the data")
    return names


def require_distinct(schema: pa.Schema, *, where: str) -> None:
    """Raise `InvalidArgument` if two columns share a name."""
    if len(set(schema.names)) < len(schema.names):
        twice = sorted({name for name in schema.names if schema.names.count(name) > 1})
        raise InvalidArgument(f"{where} has several columns called {', '.join(twice)}; rename them.")


def with_codes(
    batches: Iterator[pa.RecordBatch], names: tuple[str, ...], codec: KeyCodec, layout: PageLayout, nulls: NullKeyRows
) -> Iterator[pa.RecordBatch]:
    """Yield batches in the columns of pages, with key codes; rows with a null key go to ``nulls`` instead."""
    for batch in batches:
        codes, matchable = codec.encode([batch.column(name) for name in names])
        kept = batch
        if matchable is not None and not matchable.all():
            nulls.add(batch.filter(pa.array(~matchable)))
            kept = batch.filter(pa.array(matchable))
            codes = codes[matchable]
        yield layout.stored(kept, codes)


def _counted(batches: Iterator[pa.RecordBatch], phase: str, progress: Progress | None) -> Iterator[pa.RecordBatch]:
    rows = 0
    for batch in batches:
        rows += batch.num_rows
        if progress is not None:
            progress(phase, rows)
        yield batch
