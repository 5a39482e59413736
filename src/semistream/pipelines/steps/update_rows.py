"""Rows that change a relation by upserts and deletes; the last row of each key counts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from semistream.relation import Change, Relation

_POSITION = "__position"


@dataclass(frozen=True)
class UpdateRows:
    """Update rows in order of arrival, with R's columns; ``deletes`` flags rows that delete their key."""

    rows: pa.Table
    deletes: pa.ChunkedArray | pa.Array

    def change(self, relation: Relation) -> Change:
        """Return the combined change of all rows."""
        last = last_of_keys(self.rows, relation.key)
        rows, deletes = self.rows.take(last), pc.take(self.deletes, last)
        upserts = rows.filter(pc.invert(deletes))
        return Change(
            upserts=upserts if upserts.num_rows else None, deletes=rows.filter(deletes).select(list(relation.key))
        )


def last_of_keys(rows: pa.Table, key: Sequence[str]) -> pa.Array:
    """Return the position of the last row of each key, in ascending order.

    >>> last_of_keys(pa.table({"k": [1, 2, 1]}), ["k"]).to_pylist()
    [1, 2]
    """
    positions = rows.select(list(key)).append_column(_POSITION, pa.array(np.arange(rows.num_rows)))
    last = positions.group_by(list(key)).aggregate([(_POSITION, "max")]).column(f"{_POSITION}_max")
    return pa.array(np.sort(last.to_numpy()))


def without_key(rows: pa.Table, key: Sequence[str]) -> pa.BooleanArray | pa.ChunkedArray:
    """Return a mask of the rows with a null in their key."""
    return reduce(pc.or_, [pc.is_null(rows.column(name)) for name in key])
