"""EventTime: the time columns of two streams as instants on one integer axis.

Also defines the two sides of a window join, by name and by number.
"""

from __future__ import annotations

import operator
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from fractions import Fraction
from typing import Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from semistream.errors import ColumnNotFound, InvalidArgument, KeyTypeError
from semistream.kernels.array_types import Int64s
from semistream.keys.conversion import exact_values
from semistream.keys.duration_text import EXAMPLES, duration_seconds
from semistream.keys.key_types import UNITS_PER_SECOND, Family, comparable, family_of, value_type
from semistream.keys.values import OrderedValues

Side = Literal["left", "right"]
SIDES: tuple[Side, Side] = ("left", "right")
LEFT = 0


def side_number(side: str) -> int:
    """Return 0 for the left stream, 1 for the right one.

    >>> side_number("right")
    1
    """
    if side not in SIDES:
        raise InvalidArgument(f"side is {side!r}; give 'left' or 'right'.")
    return SIDES.index(side)


TimeColumns = str | Mapping[str, str] | None
Length = int | timedelta | str
Instant = int | date | datetime

LAST_INSTANT = 2**62
"""Bound of instants, which are between -2**62 and 2**62 so that their differences do not overflow."""

LONGEST = 2**61
"""Longest window and lateness, in instants."""

_DAY_S = 86_400


@dataclass(frozen=True)
class EventTime:
    """Event time of two streams: the columns ``names``, or if None the position of a tuple in its own stream.

    ``type_`` is the common type of both: int64, date32, or timestamps of the finer of the two units. An instant is
    one unit of it. Without columns the streams are those of WINDOW 2.1: one tuple of each at every instant.

    >>> time = EventTime.of(pa.schema([("at", pa.timestamp("ms"))]), pa.schema([("at", pa.timestamp("us"))]), "at")
    >>> time.length("5 minutes", "window"), time.instants(0, pa.record_batch({"at": pa.array([7], pa.timestamp("ms"))}))
    (300000000, array([7000]))
    """

    names: tuple[str, str] | None
    type_: pa.DataType

    @classmethod
    def of(cls, left: pa.Schema, right: pa.Schema, time: TimeColumns) -> EventTime:
        """Parse the time columns: one name for both streams, or ``{"left": ..., "right": ...}``."""
        if time is None:
            return cls(None, pa.int64())
        if isinstance(time, Mapping) and set(time) != set(SIDES):
            raise InvalidArgument(f"time is {dict(time)}; give one column, or {{'left': ..., 'right': ...}}.")
        names = (time, time) if isinstance(time, str) else (time["left"], time["right"])
        types = []
        for side, schema, name in zip(SIDES, (left, right), names, strict=True):
            if name not in schema.names:
                raise ColumnNotFound(name, schema.names, where=f"the {side} stream")
            types.append(value_type(schema.field(name).type))
        return cls(names, _common_type(names, types[0], types[1]))

    def instants(self, side: int, batch: pa.RecordBatch) -> Int64s:
        """Return the instants at which the rows of a batch arrive. There must be time columns."""
        assert self.names is not None
        name, column = self.names[side], batch.column(self.names[side])
        if column.null_count:
            raise InvalidArgument(
                f"time column {name!r} of the {SIDES[side]} stream is null in {column.null_count} of {len(column)} "
                f"rows (the first is row {int(pc.index(column.is_null(), True).as_py())}); a tuple without a time has "
                "no place in a window. The batch was not taken: filter or fill these rows, and push it again."
            )
        values = exact_values(column, self.type_)
        assert isinstance(values, OrderedValues)
        codes = values.codes
        wrong = (codes <= -LAST_INSTANT) | (codes >= LAST_INSTANT)
        if values.possible is not None:
            wrong |= ~values.possible
        if wrong.any():
            raise InvalidArgument(
                f"time column {name!r} of the {SIDES[side]} stream has {column[int(wrong.argmax())]} in row "
                f"{int(wrong.argmax())}, which is out of range for {self.type_}. The batch was not taken."
            )
        return codes

    def instant(self, value: Instant) -> int:
        """Convert a number, date or datetime to an instant."""
        if isinstance(value, bool) or (isinstance(value, int) != pa.types.is_integer(self.type_)):
            raise InvalidArgument(f"a time is {value!r}; these streams have times of type {self.type_}.")
        if isinstance(value, int):
            instant = value
        else:
            codes = exact_values(pa.array([value], self.type_), self.type_)
            assert isinstance(codes, OrderedValues)
            instant = int(codes.codes[0])
        return max(-LAST_INSTANT, min(LAST_INSTANT, instant))

    def length(self, value: Length, name: str, *, least: int = 1) -> int:
        """Convert a window or lateness to instants: a number of them, or for dates and timestamps a duration."""
        limit = f"at least {least} instant" if least else "0 or more"
        if pa.types.is_integer(self.type_):
            try:
                instants = operator.index(value)  # type: ignore[arg-type]
            except TypeError:
                instants = least - 1
            if isinstance(value, bool) or not least <= instants <= LONGEST:
                raise InvalidArgument(f"{name} is {value!r}; give a whole number of instants, {limit}.")
            return instants
        seconds = duration_seconds(value)
        if seconds is None:
            raise InvalidArgument(
                f"{name} is {value!r}, but times are of type {self.type_}; give a timedelta or text like {EXAMPLES}."
            )
        per_second = Fraction(1, _DAY_S) if pa.types.is_date32(self.type_) else UNITS_PER_SECOND[self.type_.unit]
        exact = seconds * per_second
        if exact.denominator != 1 or not least <= exact <= LONGEST:
            raise InvalidArgument(
                f"{name} is {value!r}, which is {float(exact):g} units of {self.type_}; give a whole number of units, "
                f"{limit}."
            )
        return int(exact)


def _common_type(names: tuple[str, str], left: pa.DataType, right: pa.DataType) -> pa.DataType:
    families = family_of(left), family_of(right)
    usable = families[0] in (Family.INTEGER, Family.DATE, Family.TIMESTAMP) and families[0] is families[1]
    if not usable or not comparable(left, right) or pa.types.is_uint64(left) or pa.types.is_uint64(right):
        raise KeyTypeError(
            f"time columns {names[0]!r} and {names[1]!r} have the types {left} and {right}; they must both be integers "
            "(not uint64), dates, or timestamps with or without a zone. Cast one side."
        )
    if families[0] is Family.INTEGER:
        return pa.int64()
    if families[0] is Family.DATE:
        return pa.date32()
    return max(left, right, key=lambda type_: UNITS_PER_SECOND[type_.unit])


def in_order(times: Int64s) -> bool:
    """True if times never decrease."""
    return bool(times.size < 2 or (times[1:] >= times[:-1]).all())


def running_maximum(times: Int64s, before: int) -> Int64s:
    """Return for each row the largest time of the rows before it; ``before`` is the largest of earlier batches."""
    greatest = np.empty_like(times)
    if times.size:
        greatest[0] = before
        np.maximum.accumulate(times[:-1], out=greatest[1:])
        np.maximum(greatest, before, out=greatest)
    return greatest
