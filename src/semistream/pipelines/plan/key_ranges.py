"""Key ranges: divide R by key code into parts, and find the part that a stream row belongs to."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from semistream.keys import KeyCodec
from semistream.relation import Relation


def cut_codes(relation: Relation, parts: int) -> tuple[int, ...]:
    """Return ascending codes that divide R at page borders into at most ``parts`` parts of about equal bytes.

    Part i holds the codes from cut i - 1 (inclusive) to cut i (exclusive). A code is never divided, so there are fewer
    parts if many rows share a key.
    """
    table = relation.table
    parts = min(parts, len(table))
    if parts < 2:
        return ()
    ends = np.cumsum(table.nbytes)
    wanted = ends[-1] * np.arange(1, parts) // parts
    page = np.searchsorted(ends, wanted, "right")  # page with the wanted byte: cut at its nearer end
    pages = np.minimum(page + (ends[page] - wanted < table.nbytes[page] // 2), len(table) - 1)
    cuts = np.unique(table.first_code[pages])
    return tuple(int(cut) for cut in cuts if cut > table.first_code[0])


def part_bounds(cuts: tuple[int, ...], part: int) -> tuple[int | None, int | None]:
    """Return the first code of a part and the first code after it; None at an open end."""
    return cuts[part - 1] if part > 0 else None, cuts[part] if part < len(cuts) else None


def split_rows(
    batch: pa.RecordBatch, keys: tuple[str, ...], codec: KeyCodec, cuts: tuple[int, ...], default: int
) -> Iterator[tuple[int, pa.RecordBatch]]:
    """Yield the rows of a batch by the part of R that holds their matches; rows that match nothing join the others.

    A batch without any row that can match goes to the part ``default``. Workers use this rather than the number of
    their partition: Spark renumbers tasks after a ``union`` or ``coalesce``, and a row looked up in the wrong part
    would silently find no match. After routing, all rows of a batch are usually in one part; to find this out costs
    only the codes and their range.
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
