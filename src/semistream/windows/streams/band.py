"""Band: a condition that two columns differ by at most epsilon (WINDOW 6.1.2), and the cells of nearby values."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from decimal import Decimal
from fractions import Fraction

import numpy as np
import pyarrow as pa

from semistream.errors import InvalidArgument, KeyTypeError
from semistream.kernels.array_types import Int64s
from semistream.keys.comparison import Comparison, within
from semistream.keys.conversion import exact_values
from semistream.keys.duration_text import EXAMPLES, duration_seconds
from semistream.keys.key_types import Family, family_of, value_type
from semistream.keys.ranges import CodeRanges
from semistream.keys.values import Codes, Mask, OrderedValues, twist

_MOST = 2**62


@dataclass(frozen=True)
class Band:
    """Condition ``abs(left - right) <= epsilon`` on numbers, or on dates and times with a duration.

    Integers, decimals and times are subtracted exactly, floats in float64. Null and NaN match nothing.

    Parameters
    ----------
    left, right : str
        Column of the left and of the right stream.
    epsilon : int, float, Fraction, timedelta or str
        Largest difference, at least 0: a number, or for dates and times a timedelta or text such as ``"5 minutes"``.

    Examples
    --------
    >>> Band("x", "x", 5).distance
    Fraction(5, 1)
    >>> Band("at", "seen_at", "2 minutes").distance  # in seconds
    Fraction(120, 1)

    References
    ----------
    WINDOW 6.1.2, the epsilon-join.
    """

    left: str
    right: str
    epsilon: int | float | Fraction | timedelta | str

    def __post_init__(self) -> None:
        duration = duration_seconds(self.epsilon)
        if duration is None and (isinstance(self.epsilon, bool | str | timedelta) or not 0 <= self.epsilon < np.inf):
            raise InvalidArgument(
                f"epsilon is {self.epsilon!r}; give a non-negative number, or a duration such as {EXAMPLES}."
            )

    @property
    def is_duration(self) -> bool:
        """True if epsilon is a duration."""
        return isinstance(self.epsilon, str | timedelta)

    @property
    def distance(self) -> Fraction:
        """Epsilon as a number, in seconds if it is a duration."""
        duration = duration_seconds(self.epsilon)
        return Fraction(self.epsilon) if duration is None else duration  # type: ignore[arg-type]


@dataclass(frozen=True)
class BandSide:
    """One side of a band: the cells of its own values, and the cells of nearby values on the other side.

    A cell is as wide as a range of partners, so partners lie in two or three cells.
    """

    column: str
    type_: pa.DataType
    comparison: Comparison  # of this side's values with the other side's type
    cell_width: int  # in codes of this side, 0 for floats
    other_width: int
    span: float  # width of a cell of floats; 0 if cells are codes

    @classmethod
    def pair(cls, band: Band, left: pa.DataType, right: pa.DataType) -> tuple[BandSide, BandSide]:
        """Return the left and the right side."""
        if family_of(left) is not family_of(right):
            raise KeyTypeError(
                f"band compares {band.left!r}, {left}, with {band.right!r}, {right}; they cannot be compared without "
                "loss. Cast one side to the type of the other."
            )
        there = within(left, right, band.distance, is_duration=band.is_duration, strict=False)
        back = within(right, left, band.distance, is_duration=band.is_duration, strict=False)
        # The codes of floats of all widths are those of float64.
        span = 2.0 * float(band.distance) if family_of(left) is Family.FLOAT else 0.0
        widths = _cell_width(back, right), _cell_width(there, left)
        return (
            cls(band.left, left, there, widths[0], widths[1], span),
            cls(band.right, right, back, widths[1], widths[0], span),
        )

    def codes(self, array: pa.Array) -> tuple[Codes, Mask | None]:
        """Return codes in the order of the values, and a mask of the rows that can match."""
        values = exact_values(array, self.type_)
        assert isinstance(values, OrderedValues)
        return values.codes, values.possible

    def cells(self, codes: Codes) -> Int64s:
        """Return the cells of this side's codes."""
        return _cells(codes, self.cell_width, self.span)

    def ranges(self, array: pa.Array) -> CodeRanges:
        """Return the ranges of the other side's codes near these values."""
        return self.comparison.ranges(array)

    def other_cells(self, codes: Codes) -> Int64s:
        """Return the cells of the other side's codes."""
        return _cells(codes, self.other_width, self.span)


def _cells(codes: Codes, width: int, span: float) -> Int64s:
    if width:
        return codes // width
    if span == 0.0:
        return codes
    with np.errstate(invalid="ignore", over="ignore"):
        cells = np.floor(twist(codes).view(np.float64) / span)
    return np.asarray(np.nan_to_num(np.clip(cells, -_MOST, _MOST), nan=0.0), np.int64)


def _cell_width(comparison: Comparison, other: pa.DataType) -> int:
    """Return the number of codes near one value of type ``other``, in the type that ``comparison`` searches."""
    if family_of(comparison.relation_type) is Family.FLOAT:
        return 0
    other = value_type(other)
    if pa.types.is_decimal(other) or pa.types.is_integer(other):
        zero = pa.array([Decimal(0) if pa.types.is_decimal(other) else 0], other)
    else:
        zero = pa.array([0], pa.int32() if other.bit_width == 32 else pa.int64()).view(other)
    ranges = comparison.ranges(zero)
    return max(1, min(int(ranges.last[0]) - int(ranges.low[0]) + 1, _MOST))
