"""Key ranges: R divided by key code into parts, and the part that a stream row belongs to."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from semistream.keys import KeyCodec
from semistream.relation import Relation


def cut_codes(relation: Relation, parts: int) -> tuple[int, ...]:
    """Ascending codes that divide R at page borders into at most ``parts`` parts of about equal bytes.

    Part i holds the codes from cut i - 1 (inclusive) to cut i. One code is never divided, so many rows of one key make
    fewer parts.
    """
    table = relation.table
    parts = min(parts, len(table))
    if parts < 2:
        return ()
    ends = np.cumsum(table.nbytes)
    wanted = ends[-1] * np.arange(1, parts) // parts
    page = np.searchsorted(ends, wanted, "right")  # the page that holds the byte wanted: it starts or ends nearest
    pages = np.minimum(page + (ends[page] - wanted < table.nbytes[page] // 2), len(table) - 1)
    cuts = np.unique(table.first_code[pages])
    return tuple(int(cut) for cut in cuts if cut > table.first_code[0])


def part_bounds(cuts: tuple[int, ...], part: int) -> tuple[int | None, int | None]:
    """The first code of a part and the first code behind it; None where it is open."""
    return cuts[part - 1] if part > 0 else None, cuts[part] if part < len(cuts) else None


def split_rows(
    batch: pa.RecordBatch, keys: tuple[str, ...], codec: KeyCodec, cuts: tuple[int, ...], default: int
) -> Iterator[tuple[int, pa.RecordBatch]]:
    """The rows of a batch by the part that holds their matches; those that match nothing go where the others do.

    Workers go by this and not by the number of their partition: Spark numbers tasks anew under a ``union`` or a
    ``coalesce``, and a row looked for in the wrong part would silently find nothing. If routing did its work, all rows
    of a batch are of one part, and finding that out costs the codes and their range.
    """
    if not cuts:
        yield 0, batch
        return
    codes, possible = codec.encode([batch.column(name) for name in keys])
    if possible is not None:
        codes = codes[possible]
    if codes.size == 0:
        yield default, batch
        return
    first, last = np.searchsorted(cuts, [codes.min(), codes.max()], "right").tolist()
    if first == last:
        yield first, batch
        return
    parts = np.full(batch.num_rows, first, np.intp)
    parts[slice(None) if possible is None else possible] = np.searchsorted(cuts, codes, "right")
    for part in np.unique(parts).tolist():
        rows: npt.NDArray[np.intp] = np.flatnonzero(parts == part)
        yield part, batch.take(pa.array(rows))
