"""HeavyKeys: the keys that a stream asks for most, and how often, in a table that does not grow."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple, Self

import numpy as np
from datasketches import frequent_items_error_type, frequent_items_sketch

from semistream.kernels.types import Int64s

LEAST_BITS = 3  # the sketch's own limit
_SLOT_BYTES = 18 + 24  # of the table: pointer, count and state; a Python int in three of four
_ITEM_BYTES = 8 + 72 + 4 * 32 + 2 * 8  # of a key that is given: a tuple of four ints in a list, and what is made of it
_GIVEN = 0.75  # of the slots, that have keys


class CountedKeys(NamedTuple):
    """Key codes, which ascend, and how often each came."""

    codes: Int64s
    counts: Int64s


class HeavyKeys:
    """Counts keys in at most ``2**bits`` slots: a key that came more often than others is not lost.

    A count is too high by at most 3.5 / 2**bits of all that was counted, and far less under skew, where few keys have
    most of it (D. Anderson, P. Bevin, K. Lang, E. Liberty, L. Rhodes & J. Thaler, IMC 2017; Apache DataSketches).
    """

    def __init__(self, bits: int) -> None:
        self._sketch = frequent_items_sketch(bits)
        self.total = 0  # how much was counted; the sketch's own is lost when it is merged while no key has a slot

    @staticmethod
    def memory_bytes(bits: int) -> int:
        """What it may hold. It grows by doubling, so that half as much is there once more for a moment."""
        return (_SLOT_BYTES << bits) * 3 // 2

    @staticmethod
    def given_bytes(bits: int) -> int:
        """What `above` takes for a moment."""
        return int(_GIVEN * (_ITEM_BYTES << bits))

    @property
    def num_keys(self) -> int:
        """How many keys have a slot."""
        return int(self._sketch.num_active_items)

    def add(self, codes: Int64s, counts: Int64s) -> None:
        """Count some keys, each so many times: a call of Python for each, so give few."""
        update = self._sketch.update
        for code, count in zip(codes.tolist(), counts.tolist(), strict=True):
            update(code, count)
        self.total += int(counts.sum())

    @classmethod
    def merged(cls, bits: int, counted: Iterable[HeavyKeys]) -> Self:
        """What several have counted together."""
        together = cls(bits)
        for each in counted:
            together._sketch.merge(each._sketch)
            together.total += each.total
        return together

    def above(self, count: int) -> CountedKeys:
        """All keys that surely came more often than that."""
        items = self._sketch.get_frequent_items(frequent_items_error_type.NO_FALSE_POSITIVES, count)
        codes = np.array([item[0] for item in items], np.int64)
        order = np.argsort(codes)
        return CountedKeys(codes[order], np.array([item[1] for item in items], np.int64)[order])
