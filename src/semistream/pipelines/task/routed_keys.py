"""RoutedKeys: find the task that owns a row, where R is divided among tasks by key range."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from semistream.keys import KeyCodec


@dataclass(frozen=True)
class RoutedKeys:
    """Division of R into parts at the key codes ``cuts``; a row belongs to the part that holds its matches.

    ``columns`` hold a row's key; ``key`` and ``types`` are the key columns of R and their types.

    >>> keys = RoutedKeys(("product",), ("id",), (pa.int64(),), (10,))
    >>> orders = pa.record_batch({"product": [12, 3, None, 10]})
    >>> keys.parts(orders).tolist()
    [1, 0, 0, 1]
    """

    columns: tuple[str, ...]
    key: tuple[str, ...]
    types: tuple[pa.DataType, ...]
    cuts: tuple[int, ...]

    @property
    def num_parts(self) -> int:
        """Number of parts of R."""
        return len(self.cuts) + 1

    @cached_property
    def _codec(self) -> KeyCodec:
        return KeyCodec.of(self.key, self.types)

    def parts(self, rows: pa.RecordBatch) -> npt.NDArray[np.intp]:
        """Return the part of each row; rows that cannot match belong to the first."""
        codes, possible = self._codec.encode([rows.column(name) for name in self.columns])
        parts = np.searchsorted(self.cuts, codes, "right")
        if possible is not None:
            parts[~possible] = 0
        return parts
