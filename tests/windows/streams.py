"""Small streams for tests of window joins, their cuts and interleavings, and their results."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any

import pyarrow as pa
from hypothesis import strategies as st

from semistream.windows import MemoryArchive, WindowJoin
from semistream.windows.streams.event_time import SIDES

SCHEMAS = (
    pa.schema([("k", pa.int64()), ("t", pa.int64()), ("l", pa.int64())]),
    pa.schema([("k", pa.int64()), ("t", pa.int64()), ("r", pa.int64())]),
)
Stream = list[tuple[int, Any]]


def streams(*, keys: int = 4, rows: int = 25, step: int = 2, nulls: bool = False) -> st.SearchStrategy[Stream]:
    """(time, key) in the order of time, with several or no tuples at an instant."""
    key = st.integers(0, keys - 1)
    one = st.tuples(st.integers(0, step), key | st.none() if nulls else key)

    def timed(steps: list[tuple[int, Any]]) -> Stream:
        now, stream = 0, []
        for ahead, k in steps:
            now += ahead
            stream.append((now, k))
        return stream

    sizes = st.integers(0, rows)  # lists of Hypothesis are short if they may be
    return sizes.flatmap(lambda n: st.lists(one, min_size=n, max_size=n)).map(timed)


def batch_of(stream: Stream, side: int, first: int = 0) -> pa.RecordBatch:
    """Rows with their positions in column l or r."""
    positions = range(first, first + len(stream))
    columns = [[key for _, key in stream], [time for time, _ in stream], list(positions)]
    return pa.RecordBatch.from_arrays([pa.array(c, pa.int64()) for c in columns], schema=SCHEMAS[side])


def cuts(left: Stream, right: Stream) -> st.SearchStrategy[list[tuple[int, int, int]]]:
    """Pieces (side, begin, end) of both streams, in some interleaving."""

    def pieces(ends: tuple[set[int], set[int]], order: list[int]) -> list[tuple[int, int, int]]:
        queues = []
        for side, stream in enumerate((left, right)):
            marks = sorted({0, len(stream), *(e for e in ends[side] if e < len(stream))})
            queues.append([(side, b, e) for b, e in pairwise(marks)])
        out = []
        for side in [*order, *([0] * 30), *([1] * 30)]:
            if queues[side]:
                out.append(queues[side].pop(0))
        return out

    ends = st.tuples(st.sets(st.integers(1, 30), max_size=4), st.sets(st.integers(1, 30), max_size=4))
    return st.builds(pieces, ends, st.lists(st.integers(0, 1), max_size=10))


def drive(
    join: WindowJoin, left: Stream, right: Stream, pieces: Sequence[tuple[int, int, int]]
) -> Iterator[pa.RecordBatch]:
    """Push the pieces, finish, and give all results."""
    for side, begin, end in pieces:
        yield from join.push(SIDES[side], batch_of((left, right)[side][begin:end], side, begin))
    yield from join.finish()


def whole(left: Stream, right: Stream) -> list[tuple[int, int, int]]:
    """Both streams in one piece each."""
    return [(0, 0, len(left)), (1, 0, len(right))]


def pairs_of(batches: Sequence[pa.RecordBatch]) -> Counter[tuple[int, int]]:
    """Results as (left position, right position)."""
    found: Counter[tuple[int, int]] = Counter()
    for batch in batches:
        found.update(zip(batch.column("l").to_pylist(), batch.column("r").to_pylist(), strict=True))
    return found


def evictions(archive: MemoryArchive) -> dict[tuple[int, int], int]:
    """(side, position) of evicted tuples, with the arrival number of the last tuple they met."""
    gone = {}
    for side, column in enumerate(("l", "r")):
        table = archive.read(side, SCHEMAS[side])
        for position, until in zip(
            table.column(column).to_pylist(), table.column("semistream until").to_pylist(), strict=True
        ):
            if until != 2**63 - 1:
                gone[side, position] = until
    return gone
