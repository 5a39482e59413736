"""repair: produce the results that a window join missed, from its archive."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
import pyarrow.compute as pc

from semistream.keys.plain_types import plain_schema
from semistream.windows.join.archive import ARRIVAL_COLUMN, NEVER, TIME_COLUMN, UNTIL_COLUMN, Archive, archived_schema
from semistream.windows.join.operator import WindowJoin
from semistream.windows.streams.band import Band
from semistream.windows.streams.event_time import SIDES
from semistream.windows.streams.lengths import OneWindow, Tuples, WindowLength
from semistream.windows.streams.window_match import JoinOn

_OWN = {TIME_COLUMN, ARRIVAL_COLUMN, UNTIL_COLUMN}


def repair(
    archive: Archive,
    left_schema: pa.Schema,
    right_schema: pa.Schema,
    *,
    on: JoinOn | None = None,
    band: Band | None = None,
    where: pc.Expression | None = None,
    suffix: str = "_right",
) -> Iterator[pa.RecordBatch]:
    """Return the missing results of a finished join, from the archive it filled.

    Together with the join's output they are the exact result, each pair once. Late tuples are in neither:
    `WindowJoin.take_late` returned them.

    Repair is a window join of the archived tuples without a memory limit, restricted to pairs that did not meet.
    Window changes are repeated at their original instants. The archive is read and sorted in memory.

    Parameters
    ----------
    archive : Archive
        The archive of the join, after its `WindowJoin.finish`.
    left_schema, right_schema : pyarrow.Schema
        Schemas of the streams, as given to the join.
    on, band, where : optional
        The condition of the join, unchanged (see `WindowJoin`).
    suffix : str
        Appended to the names of right columns that the left stream has too.

    Returns
    -------
    iterator of pyarrow.RecordBatch
        Results with the columns of the join, without a weight.

    Examples
    --------
    >>> from semistream.windows import MemoryArchive, WindowJoin
    >>> stream, archive = pa.schema([("k", pa.int64())]), MemoryArchive()
    >>> join = WindowJoin(stream, stream, on="k", window=3, memory=2, policy="random", archive=archive)
    >>> rows = pa.record_batch({"k": [1, 1, 1, 1]})
    >>> found = sum(b.num_rows for b in [*join.push_left(rows), *join.push_right(rows), *join.finish()])
    >>> found + sum(b.num_rows for b in repair(archive, stream, stream, on="k"))
    14

    References
    ----------
    WINDOW 2.2, semantic load smoothing. docs/windows.md.
    """
    schemas = [archived_schema(left_schema), archived_schema(right_schema)]
    join = WindowJoin(
        schemas[0],
        schemas[1],
        on=on,
        band=band,
        where=_missed(suffix) if where is None else where & _missed(suffix),
        time=TIME_COLUMN,
        window=_as_given(archive.changes[0].windows),
        policy="random",  # nothing is evicted, so there is nothing to learn
        lateness=None,
        suffix=suffix,
        max_waiting=2**62,
    )
    kept = [i for i, name in enumerate(join.schema.names) if name.removesuffix(suffix) not in _OWN]
    order = [(TIME_COLUMN, "ascending"), (ARRIVAL_COLUMN, "ascending")]
    for side, schema in enumerate(map(plain_schema, (left_schema, right_schema))):
        for batch in archive.read(side, schema).sort_by(order).to_batches():
            yield from (found.select(kept) for found in join.push(SIDES[side], batch))
    for change in archive.changes[1:]:
        yield from (found.select(kept) for found in join.advance(change.instant))
        join.set_window(_as_given(change.windows))
    yield from (found.select(kept) for found in join.finish())


def _missed(suffix: str) -> pc.Expression:
    """Return the condition that two tuples did not meet: one never came to the join, or left before the other came."""
    arrival, until = pc.field(ARRIVAL_COLUMN), pc.field(UNTIL_COLUMN)
    other_arrival, other_until = pc.field(ARRIVAL_COLUMN + suffix), pc.field(UNTIL_COLUMN + suffix)
    never = (until == NEVER) | (other_until == NEVER)
    return never | (other_arrival > until) | (arrival > other_until)


def _as_given(windows: tuple[WindowLength, WindowLength]) -> dict[str, OneWindow]:
    given: dict[str, OneWindow] = {}
    for side, window in zip(SIDES, windows, strict=True):
        length = Tuples(window.length) if window.by_tuples else window.length
        given[side] = length if window.bounded else None
    return given
