"""Key look-ups in a relation, reading only the pages that may hold the keys.

`KeySet` holds the keys and flags the rows of a page run that have one of them; `lookup_rows` collects these rows.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from semistream.errors import InvalidArgument, KeyTypeError
from semistream.kernels.array_types import Bools, Int64s
from semistream.kernels.merge import match_pages
from semistream.keys import KeyCodec
from semistream.keys.plain_types import converted, plain_type
from semistream.relation.read.page_run import PageRun
from semistream.relation.write.build import key_names

if TYPE_CHECKING:
    from semistream.relation.relation import Relation

_MATCHES = 1 << 16


class KeySet:
    """A set of key values of a relation. ``codes`` are ascending; null keys are left out."""

    def __init__(self, codec: KeyCodec, columns: Sequence[pa.Array]) -> None:
        self._codec = codec
        codes, matchable = codec.encode(columns)
        rows = np.argsort(codes, kind="stable")
        if matchable is not None:
            rows = rows[matchable[rows]]
        self.codes: Int64s = codes[rows]
        self._columns = [] if codec.ordered else [column.take(pa.array(rows)) for column in columns]

    @classmethod
    def of(cls, relation: Relation, keys: Any) -> KeySet:
        """Create the set from a caller's keys, in any form that `Relation.lookup` accepts."""
        return cls(relation.codec, key_columns(relation, keys))

    def flag_rows(self, run: PageRun) -> Bools:
        """Return a mask over the rows of the run, page by page: True if the row's key is in the set."""
        first_rows = np.concatenate([np.zeros(1, np.int64), np.cumsum(run.rows, dtype=np.int64)])
        flags = np.zeros(int(first_rows[-1]), np.bool_)
        position = np.empty(_MATCHES, np.int64)
        page, row = np.empty(_MATCHES, np.int32), np.empty(_MATCHES, np.int32)
        cursor = np.array([0, -1, -1], np.int64)
        keys = [run.layout.column(name) for name in self._codec.names]
        while cursor[0] < run.pages.size:
            n = match_pages(run.words, run.code_starts, run.rows, self.codes, cursor, position, page, row)
            found = first_rows[page[:n]] + row[:n]
            if self._columns:  # keys with equal hashes may differ
                wanted = [column.take(pa.array(position[:n])) for column in self._columns]
                found = found[self._codec.equal(wanted, run.gather(keys, page[:n], row[:n]))]
            flags[found] = True
        return flags


def key_columns(relation: Relation, keys: Any) -> list[pa.Array]:
    """Convert key values in any accepted form to one array per key column of the relation."""
    if len(relation.key) == 1 and not _is_tabular(keys):
        columns, names = [_values(keys, relation.schema.field(relation.key[0]).type)], list(relation.key)
    else:
        if not _is_tabular(keys):
            raise InvalidArgument(
                f"keys is a {type(keys).__name__}, but the relation's key is ({', '.join(relation.key)}). "
                "Give a table with these columns."
            )
        table = pa.table(keys)
        names = list(key_names(relation.key, table.schema))
        columns = [_one_array(table.column(name)) for name in names]
    columns = [converted(column, plain_type(column.type)) for column in columns]
    relation.codec.accept(names, [column.type for column in columns])
    return columns


def _is_tabular(keys: Any) -> bool:
    if isinstance(keys, pa.Array | pa.ChunkedArray):
        return False
    tables = pa.Table | pa.RecordBatch | pa.RecordBatchReader | dict
    return isinstance(keys, tables) or hasattr(keys, "column_names") or hasattr(keys, "columns")


def _values(keys: Any, declared: pa.DataType) -> pa.Array:
    if isinstance(keys, pa.ChunkedArray):
        return _one_array(keys)
    if isinstance(keys, pa.Array):
        return keys
    if isinstance(keys, str | bytes) or not isinstance(keys, Iterable):
        raise InvalidArgument(f"keys is {keys!r}; give a list or array of keys, even for a single key.")
    keys = keys if hasattr(keys, "__len__") else list(keys)
    try:
        return pa.array(keys, declared)
    except (pa.ArrowException, OverflowError, TypeError, ValueError):
        try:
            return pa.array(keys)  # another type: the codec decides if it is comparable
        except (pa.ArrowException, OverflowError) as error:
            raise KeyTypeError(f"keys do not share one Arrow type: {error}. The key's type is {declared}.") from error


def _one_array(column: pa.ChunkedArray) -> pa.Array:
    combined = column.combine_chunks()
    return combined if isinstance(combined, pa.Array) else pa.concat_arrays(combined.chunks)


_RUN_BYTES = 1 << 20


def lookup_rows(relation: Relation, keys: Any, columns: list[str]) -> pa.Table:
    """See `Relation.lookup`."""
    wanted = KeySet.of(relation, keys)
    pages = np.flatnonzero(relation.table.pages_holding(wanted.codes))
    schema = pa.schema([relation.schema.field(name) for name in columns])
    layouts = [relation.layout.column(name) for name in columns]
    found = []
    for run in relation.read_pages(pages, run_bytes=_RUN_BYTES):
        chosen = np.flatnonzero(wanted.flag_rows(run))
        ends = np.cumsum(run.rows)
        page = np.searchsorted(ends, chosen, "right").astype(np.int32)
        row = (chosen - (ends - run.rows)[page]).astype(np.int32)
        found.append(pa.RecordBatch.from_arrays(run.gather(layouts, page, row), schema=schema))
    return pa.Table.from_batches(found, schema)
