"""RoutedKeys: which task owns a row, where R is divided among tasks by key."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from semistream.keys import KeyCodec


@dataclass(frozen=True)
class RoutedKeys:
    """R is divided at the codes ``cuts``; a row is of the part that holds its matches, by the key in its ``columns``.

    ``key`` and ``types`` are R's.

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
        """How many parts R has."""
        return len(self.cuts) + 1

    @cached_property
    def _codec(self) -> KeyCodec:
        return KeyCodec.of(self.key, self.types)

    def parts(self, rows: pa.RecordBatch) -> npt.NDArray[np.intp]:
        """The part of each row; those that match nothing are of the first."""
        codes, possible = self._codec.encode([rows.column(name) for name in self.columns])
        parts = np.searchsorted(self.cuts, codes, "right")
        if possible is not None:
            parts[~possible] = 0
        return parts
