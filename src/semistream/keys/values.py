"""Exact forms of a key column in the relation's type: the basis of codes, hashes and equality.

`semistream.keys.conversion.exact_values` creates them. All forms give the same guarantee: a row whose ``possible`` is
False has no equal in the relation's type (it is null, or its conversion would lose information), and two possible rows
are equal exactly when their values are.

>>> values = ByteStrings(None, pa.array(["a", "b"]))
>>> values.equal(ByteStrings(None, pa.array(["a", "c"]))).tolist()
[True, False]
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import types as is_a

from semistream.kernels.xxhash64 import hash_big_integers, hash_bytes, hash_ints, hash_longs
from semistream.keys.key_types import HashAs

Codes = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]
Hashes = npt.NDArray[np.uint64]


def both(left: Mask | None, right: Mask | None) -> Mask | None:
    """Return the conjunction of two masks, where None means all True."""
    if left is None or right is None:
        return right if left is None else left
    return left & right


def twist(bits: Codes) -> Codes:
    """Turn the bits of float64 into codes that sort as the floats do, and back: the function is its own inverse."""
    # IEEE 754 bits sort as sign and magnitude; flipping the magnitude of negatives makes them sort as int64.
    return bits ^ ((bits >> 63) & np.iinfo(np.int64).max)


@dataclass(frozen=True)
class KeyValues(ABC):
    """One key column in exact form; ``possible`` marks the rows that can match (None: all)."""

    possible: Mask | None

    @abstractmethod
    def hash_into(self, hashes: Hashes) -> None:
        """Fold the column into running hashes as Spark's ``xxhash64`` does."""

    @abstractmethod
    def equal(self, other: Self) -> Mask:
        """Test row by row that both sides are possible and equal."""

    def _where_possible(self, same: Mask, other: Self) -> Mask:
        possible = both(self.possible, other.possible)
        return same if possible is None else same & possible


@dataclass(frozen=True)
class OrderedValues(KeyValues):
    """Values as injective int64 codes that sort as the values do."""

    codes: Codes
    spark: HashAs

    def hash_into(self, hashes: Hashes) -> None:
        """Fold the column into running hashes, after undoing the order-preserving `twist` of floats."""
        match self.spark:
            case HashAs.INT:
                hash_ints(self.codes, hashes)
            case HashAs.LONG:
                hash_longs(self.codes, hashes)
            case HashAs.DOUBLE:
                hash_longs(twist(self.codes), hashes)
            case HashAs.FLOAT:
                with np.errstate(over="ignore"):  # only impossible rows overflow
                    narrow = twist(self.codes).view(np.float64).astype(np.float32)
                hash_ints(narrow.view(np.int32), hashes)

    def equal(self, other: Self) -> Mask:
        """Compare codes."""
        return self._where_possible(self.codes == other.codes, other)


@dataclass(frozen=True)
class WideDecimals(KeyValues):
    """Unscaled values of decimals over 18 digits: rows of eight 32-bit words, least first."""

    words: npt.NDArray[np.uint32]

    def hash_into(self, hashes: Hashes) -> None:
        """Fold the bytes of each unscaled value into running hashes."""
        hash_big_integers(self.words, hashes)

    def equal(self, other: Self) -> Mask:
        """Compare word by word."""
        return self._where_possible((self.words == other.words).all(axis=1), other)


@dataclass(frozen=True)
class ByteStrings(KeyValues):
    """Strings or binaries in an Arrow layout with offsets."""

    array: pa.Array

    def hash_into(self, hashes: Hashes) -> None:
        """Fold the bytes of each row into running hashes."""
        offsets, data = self.layout()
        hash_bytes(offsets, data, hashes)

    def equal(self, other: Self) -> Mask:
        """Compare bytes."""
        left, right = self.array, other.array
        if left.type != right.type:
            left, right = left.cast(pa.large_binary()), right.cast(pa.large_binary())
        same = pc.equal(left, right)
        return self._where_possible(same.fill_null(False).to_numpy(zero_copy_only=False), other)

    def layout(self) -> tuple[npt.NDArray[np.signedinteger[Any]], npt.NDArray[np.uint8]]:
        """Return the offsets of this slice and the data they point into."""
        large = is_a.is_large_string(self.array.type) or is_a.is_large_binary(self.array.type)
        _, offsets, data = self.array.buffers()
        dtype: type[np.signedinteger[Any]] = np.int64 if large else np.int32
        if len(self.array) == 0:
            return np.zeros(1, dtype=dtype), np.empty(0, dtype=np.uint8)
        start = self.array.offset * np.dtype(dtype).itemsize
        ends = np.frombuffer(offsets, dtype=dtype, count=len(self.array) + 1, offset=start)
        return ends, np.frombuffer(b"" if data is None else data, dtype=np.uint8)
