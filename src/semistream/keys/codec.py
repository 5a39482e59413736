"""KeyCodec: encodes the join-key columns of a relation and a stream as 64-bit codes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce
from operator import and_

import numpy as np
import pyarrow as pa

from semistream.errors import InvalidArgument, KeyTypeError
from semistream.kernels.xxhash64 import SEED
from semistream.keys.conversion import decoded, exact_values
from semistream.keys.key_types import SUPPORTED, comparable, family_of, has_order, is_own_code
from semistream.keys.values import Codes, Mask, OrderedValues, both


@dataclass(frozen=True)
class KeyCodec:
    """Encoder of key columns as int64 codes in the code space of one relation R.

    Equal keys always get equal codes. If `ordered`, different keys get different codes, and codes sort as the keys
    do. Otherwise the code is Spark's ``xxhash64(col1, col2, ...)``, and equal codes must be verified with `equal`.

    A key is ordered if it is a single column of one of these types: integer (uint64 with its top bit flipped, so that
    it sorts as signed), bool, date (days), time (nanoseconds), timestamp and duration (R's unit), decimal up to 18
    digits (the unscaled value), float (as float64; -0.0 is 0.0; all NaNs are equal and greatest, as in Spark).
    Strings, binaries, longer decimals and composite keys are hashed. Types unknown to Spark are hashed as the nearest
    type it has: float16 as float; unsigned integers, times, durations and timestamps not in microseconds as the
    ``bigint`` of their ordered code. A dictionary column is encoded by its values.

    In a ``null_safe`` column null equals null. The codes of such a codec are hashes other than Spark's.

    >>> codec = KeyCodec.of(["id"], [pa.int32()])
    >>> codec.accept(["order_id"], [pa.int64()])
    >>> codes, possible = codec.encode([pa.array([7, None, 2**40])])
    >>> codec.ordered, int(codes[0]), possible.tolist()
    (True, 7, [True, False, False])
    """

    names: tuple[str, ...]
    types: tuple[pa.DataType, ...]
    null_safe: tuple[bool, ...] = ()

    def __post_init__(self) -> None:
        if not self.names or len(self.names) != len(self.types):
            raise InvalidArgument(
                f"got {len(self.names)} key names and {len(self.types)} key types; "
                "give at least one key column, and one type for each."
            )
        for name, type_ in zip(self.names, self.types, strict=True):
            if family_of(type_) is None:
                raise KeyTypeError(
                    f"key column {name!r} has type {type_}, which cannot be a join key. "
                    f"Keys can be {SUPPORTED}, lists and structs. Cast the column to one of them, or join on another."
                )

    @classmethod
    def of(cls, names: Sequence[str], types: Sequence[pa.DataType], null_safe: Sequence[bool] = ()) -> KeyCodec:
        """Create the codec of a relation whose key columns have these names and types."""
        return cls(tuple(names), tuple(types), tuple(null_safe) if any(null_safe) else ())

    @property
    def ordered(self) -> bool:
        """True if codes are injective and sort as the keys do; otherwise they are hashes."""
        return len(self.types) == 1 and has_order(self.types[0]) and not self.null_safe

    @property
    def in_place_code(self) -> bool:
        """True if the data buffer of R's single key column already holds the codes, so they need no column."""
        return len(self.types) == 1 and is_own_code(self.types[0]) and not self.null_safe

    def accept(self, names: Sequence[str], types: Sequence[pa.DataType]) -> None:
        """Raise `KeyTypeError` unless a stream's key columns compare with R's without loss.

        >>> KeyCodec.of(["day"], [pa.date32()]).accept(["at"], [pa.timestamp("us")])
        Traceback (most recent call last):
        semistream.errors.KeyTypeError: stream key 'at' is timestamp[us] but relation key 'day' is \
date32[day]; they cannot be compared without loss. Cast one side to the type of the other.
        """
        if len(names) != len(self.names) or len(types) != len(self.names):
            raise KeyTypeError(
                f"the stream has {len(names)} key columns {list(names)} of {len(types)} types, the relation "
                f"has {len(self.names)}: {list(self.names)}. Name one stream column for each."
            )
        for name, type_, own_name, own in zip(names, types, self.names, self.types, strict=True):
            if not comparable(type_, own):
                raise KeyTypeError(
                    f"stream key {name!r} is {type_} but relation key {own_name!r} is {own}; "
                    "they cannot be compared without loss. Cast one side to the type of the other."
                )

    def encode(self, columns: Sequence[pa.Array]) -> tuple[Codes, Mask | None]:
        """Return the codes of key columns of the stream or of R, and a mask of the rows that can match (None: all).

        A row cannot match if one of its values is null or has no equal in R's type (out of range, or finer than its
        unit or scale). The code of such a row is undefined. If R and the column are both int64, or both a timestamp,
        duration or time64 of the same unit, the codes are a read-only view of the column.
        """
        self._check(columns)
        values = [exact_values(column, own) for column, own in zip(columns, self.types, strict=True)]
        nulls = self._nulls(columns)
        possible = reduce(both, (_or(column.possible, null) for column, null in zip(values, nulls, strict=True)))
        if possible is not None and possible.all():
            possible = None
        first = values[0]
        if len(values) == 1 and isinstance(first, OrderedValues) and not self.null_safe:
            return first.codes, possible
        hashes = np.full(len(columns[0]), SEED, dtype=np.uint64)
        for column, null in zip(values, nulls, strict=True):
            before = None if null is None else hashes[null]
            column.hash_into(hashes)
            if before is not None:
                hashes[null] = ~before  # of what lies under the nulls, nothing may remain
        return hashes.view(np.int64), possible

    def _nulls(self, columns: Sequence[pa.Array]) -> list[Mask | None]:
        """Return the nulls of each null-safe column that has any; None for the others."""
        safe = self.null_safe or (False,) * len(columns)
        plain = [decoded(column) if nulls_match else column for column, nulls_match in zip(columns, safe, strict=True)]
        return [
            column.is_null().to_numpy(zero_copy_only=False) if nulls_match and column.null_count else None
            for column, nulls_match in zip(plain, safe, strict=True)
        ]

    def equal(self, left: Sequence[pa.Array], right: Sequence[pa.Array]) -> Mask:
        """Compare the keys themselves row by row: ``left`` from the stream, ``right`` from R.

        Null equals nothing, NaN equals NaN, -0.0 equals 0.0, and a value that R's type cannot hold equals nothing.

        >>> codec = KeyCodec.of(["name"], [pa.string()])
        >>> codec.equal([pa.array(["a", None]).dictionary_encode()], [pa.array(["a", None])]).tolist()
        [True, False]
        """
        self._check(left)
        self._check(right)
        if len(left[0]) != len(right[0]):
            raise InvalidArgument(
                f"the left keys have {len(left[0])} rows and the right keys {len(right[0])}; "
                "equal compares row by row, so give the same number on each side."
            )
        same = [
            exact_values(a, own).equal(exact_values(b, own)) for a, b, own in zip(left, right, self.types, strict=True)
        ]
        for i, (mine, other) in enumerate(zip(self._nulls(left), self._nulls(right), strict=True)):
            if mine is not None and other is not None:
                same[i] = same[i] | (mine & other)
        return reduce(and_, same)

    def _check(self, columns: Sequence[pa.Array]) -> None:
        if len(columns) != len(self.names):
            raise InvalidArgument(
                f"got {len(columns)} key columns; the relation's key is {list(self.names)}. "
                f"Give {len(self.names)}, in that order."
            )
        types = [column.type for column in columns]
        if types != list(self.types):
            self.accept(self.names, types)
        lengths = sorted({len(column) for column in columns})
        if len(lengths) > 1:
            raise InvalidArgument(f"the key columns have {lengths} rows; give columns of one length.")


def _or(possible: Mask | None, null: Mask | None) -> Mask | None:
    return possible if possible is None or null is None else possible | null
