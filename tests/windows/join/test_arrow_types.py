"""Window joins of streams with columns of every Arrow type, compared with all pairs by brute force."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from semistream.errors import InvalidArgument, KeyTypeError
from semistream.windows import FileArchive, MemoryArchive, WindowJoin, repair
from tests.arrow_types import TYPES, Celsius, python, several, turned

ROWS = 24
every_type = pytest.mark.parametrize("label", TYPES)
NOT_KEYS = ("interval", "list", "struct", "map", "union", "tensor")


@pytest.fixture(autouse=True, scope="module")
def _registered() -> Iterator[None]:
    pa.register_extension_type(Celsius())
    yield
    pa.unregister_extension_type(Celsius().extension_name)


def batches(table: pa.Table) -> list[pa.RecordBatch]:
    """Batches whose dictionaries differ."""
    pieces = table.to_batches(max_chunksize=5)
    return [
        pa.RecordBatch.from_arrays([turned(column) if i % 2 else column for column in each.columns], schema=each.schema)
        for i, each in enumerate(pieces)
    ]


def drive(join: WindowJoin, left: pa.Table, right: pa.Table) -> Iterator[pa.RecordBatch]:
    for own, other in zip(batches(left), batches(right), strict=True):
        yield from join.push_left(own)
        yield from join.push_right(other)
    yield from join.finish()


def pairs(left: pa.Table, right: pa.Table) -> Counter[Any]:
    """All rows of both streams with the same key, the right ones without it."""
    own = list(zip(*map(python, left.columns), strict=True))
    other = list(zip(*map(python, right.columns), strict=True))
    return Counter((*a, *b[1:]) for a in own for b in other if a[0] is not None and a[0] == b[0])


def rows_of(found: list[pa.RecordBatch], schema: pa.Schema) -> Counter[Any]:
    table = pa.Table.from_batches(found, schema)
    table.validate(full=True)
    return Counter(zip(*map(python, table.columns), strict=True))


@every_type
def test_payload_of_every_type_comes_out_archived_and_repaired(label: str, tmp_path: Path) -> None:
    keys = np.arange(ROWS) % 7
    left = pa.table({"k": keys, "v": several(TYPES[label], ROWS, 1)})
    right = pa.table({"k": keys[::-1].copy(), "w": several(TYPES[label], ROWS)})
    schemas = left.schema, right.schema
    for memory, archive in (
        (None, None),
        ("1MB", MemoryArchive()),
        (4, MemoryArchive()),
        (4, FileArchive(tmp_path / "a")),
    ):
        join = WindowJoin(*schemas, on="k", window=ROWS, memory=memory, policy="random", archive=archive)
        found = list(drive(join, left, right))
        if archive is not None:
            assert archive.read(0, left.schema).num_rows == ROWS
            found += repair(archive, *schemas, on="k")
        assert rows_of(found, join.schema) == pairs(left, right), memory
        for name, given in (("v", left), ("w", right)):
            own = given.schema.field(name).type
            encodable = label not in ("dictionary of decimal32", "dictionary of lists")
            assert join.schema.field(name).type == (own if encodable else own.value_type)


@every_type
def test_keys_of_every_comparable_type(label: str) -> None:
    left = pa.table({"k": several(TYPES[label], ROWS, 1), "l": np.arange(ROWS)})
    right = pa.table({"k": several(TYPES[label], ROWS), "r": np.arange(ROWS)})
    if any(word in label for word in NOT_KEYS):
        with pytest.raises(KeyTypeError, match=r"key 'k' of the left stream has type .* cannot be a join key"):
            WindowJoin(left.schema, right.schema, on="k", window=ROWS)
        return
    join = WindowJoin(left.schema, right.schema, on="k", window=ROWS)
    assert rows_of(list(drive(join, left, right)), join.schema) == pairs(left, right)


def test_late_tuples_and_states_keep_their_types() -> None:
    words = pa.array(["a", "b"], pa.string_view())
    stream = pa.schema([("k", pa.string_view()), ("t", pa.int64())])

    def join() -> WindowJoin:
        return WindowJoin(stream, stream, on="k", time="t", window=5, lateness=1)

    first, second = join(), join()
    assert list(first.push_left(pa.record_batch([words, pa.array([9, 2])], schema=stream))) == []
    second.restore(first.state())
    (late,) = second.take_late("left")
    assert late.schema == stream
    assert late.to_pylist() == [{"k": "b", "t": 2}]
    (found,) = [*second.push_right(pa.record_batch([words, pa.array([9, 9])], schema=stream)), *second.finish()]
    assert found.schema.types == [pa.string_view(), pa.int64(), pa.int64()]
    with pytest.raises(InvalidArgument, match=r"a batch of the left stream has the columns \(k: int64"):
        first.push_left(pa.record_batch({"k": [1], "t": [1]}))
