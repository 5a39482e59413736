"""Positions of stream values among the codes of R's type, including values that the type cannot hold.

A comparison needs less than equality does: 2**40 has no equal among int32, but it is greater than all of them. For each
value it is enough to know its floor, the greatest code not above it, and whether the floor equals the value. The
results of <, <=, > and >= follow.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

import numpy as np
import pyarrow as pa
from pyarrow import types as is_a

from semistream.errors import KeyTypeError
from semistream.keys.conversion import (
    SIGN_BIT,
    as_decimals,
    decimal_words,
    decoded,
    float_codes,
    floor_among_floats,
    floor_of_decimals,
    floor_of_floats,
    stored_days,
    stored_integers,
    typed,
    wide_words,
)
from semistream.keys.kernels import floor_decimals
from semistream.keys.key_types import UNITS_PER_SECOND, Family, family_of, value_type
from semistream.keys.ranges import GREATEST, LEAST, CodeRanges, every
from semistream.keys.values import Codes, Mask, both

_EXACT = Fraction(0)


@dataclass(frozen=True)
class CodeBounds:
    """The floor of each value: the greatest code not above it.

    ``exact`` marks the values equal to their floor (None: all). ``below`` marks the values less than every code (None:
    none); their ``floor`` is undefined. ``valid`` marks the non-null values (None: all).
    """

    floor: Codes
    exact: Mask | None
    below: Mask | None
    valid: Mask | None

    def at_least(self) -> CodeRanges:
        """Return the codes greater than or equal to each value."""
        if self.exact is None:
            return CodeRanges(self._raised(self.floor), every(GREATEST, self.floor.size), self.valid)
        return self._from(~self.exact)

    def above(self) -> CodeRanges:
        """Return the codes greater than each value."""
        return self._from(np.True_)

    def at_most(self) -> CodeRanges:
        """Return the codes less than or equal to each value."""
        return CodeRanges(every(LEAST, self.floor.size), self.floor, both(self.valid, self._reached()))

    def under(self) -> CodeRanges:
        """Return the codes less than each value."""
        exact = np.True_ if self.exact is None else self.exact
        none = (self.floor == LEAST) & exact
        possible = both(self.valid, self._reached())
        high = self.floor - np.where(none, 0, exact)
        return CodeRanges(every(LEAST, high.size), high, both(possible, ~none) if none.any() else possible)

    def _from(self, next_one: Mask | np.bool_) -> CodeRanges:
        """Return the codes from the floor upwards, or from its successor where ``next_one`` is set.

        Rows whose floor is the greatest code have no successor and become impossible.
        """
        none = (self.floor == GREATEST) & next_one
        if self.below is not None:
            none &= ~self.below
        low = self._raised(self.floor + np.where(none, 0, next_one))
        return CodeRanges(low, every(GREATEST, low.size), both(self.valid, ~none) if none.any() else self.valid)

    def _raised(self, low: Codes) -> Codes:
        return low if self.below is None else np.where(self.below, LEAST, low)

    def _reached(self) -> Mask | None:
        return None if self.below is None else ~self.below


def locate(array: pa.Array, like: pa.DataType, plus: Fraction = _EXACT) -> CodeBounds:
    """Locate the values of ``array``, each increased by ``plus``, among the codes of the ordered type ``like``.

    ``plus`` is a number: in days for dates, in seconds for other temporal types. Booleans and floats, of either side,
    ignore it. The arithmetic is exact: nothing overflows, and only the floor is rounded.

    >>> bounds = locate(pa.array([1500, 2000], pa.timestamp("ms")), pa.timestamp("s"))
    >>> bounds.floor.tolist(), bounds.exact.tolist()
    ([1, 2], [False, True])
    """
    family, like = family_of(like), value_type(like)
    array = typed(decoded(array), like)
    valid = array.is_valid().to_numpy(zero_copy_only=False) if array.null_count else None
    match family:
        case Family.INTEGER:
            return _integers(array, like, plus, valid)
        case Family.BOOLEAN:
            return CodeBounds(stored_integers(array.cast(pa.uint8())).astype(np.int64), None, None, valid)
        case Family.DATE:
            return _affine(stored_days(array), 1, 1, plus, valid)
        case Family.TIMESTAMP | Family.DURATION | Family.TIME:
            have = UNITS_PER_SECOND[array.type.unit]
            want = UNITS_PER_SECOND["ns" if family is Family.TIME else like.unit]
            stored = stored_integers(array).astype(np.int64, copy=False)
            return _affine(stored, max(want // have, 1), max(have // want, 1), plus * want, valid)
        case Family.FLOAT:
            if family_of(array.type) is Family.INTEGER:
                return CodeBounds(*floor_among_floats(array), None, valid)
            return CodeBounds(float_codes(array), None, None, valid)
        case Family.DECIMAL:
            return _decimals(array, like, plus, valid)
        case Family.NULL:
            return CodeBounds(np.zeros(len(array), np.int64), None, None, np.zeros(len(array), np.bool_))
        case _:
            raise KeyTypeError(f"the codes of type {like} do not sort as its values do.")


def _integers(array: pa.Array, like: pa.DataType, plus: Fraction, valid: Mask | None) -> CodeBounds:
    family = family_of(array.type)
    if family is Family.DECIMAL:
        added = plus * Fraction(10) ** max(array.type.scale, 0)
        floor, exact, below = floor_of_decimals(array, like, added // 1)
        return CodeBounds(floor, exact if added.denominator == 1 else np.zeros_like(exact), below, valid)
    if family is Family.FLOAT:
        floor, exact, below = floor_of_floats(array, like)
        return CodeBounds(floor, exact, below, valid)
    values, sign = stored_integers(array), SIGN_BIT
    if is_a.is_uint64(like) and is_a.is_signed_integer(array.type):  # among the codes, which are 2**63 less
        return _affine(values.astype(np.int64, copy=False), 1, 1, plus - (1 << 63), valid)
    if is_a.is_uint64(like):
        return _affine((values.astype(np.uint64) ^ sign).view(np.int64), 1, 1, plus, valid)
    if is_a.is_uint64(array.type):  # half its values exceed int64: subtract 2**63, and add it back through plus
        return _affine((values ^ sign).view(np.int64), 1, 1, plus + (1 << 63), valid)
    return _affine(values.astype(np.int64, copy=False), 1, 1, plus, valid)


def _affine(values: Codes, times: int, by: int, plus: Fraction, valid: Mask | None) -> CodeBounds:
    """Return the floor of ``values * times / by + plus``. ``times`` or ``by`` must be 1, and both less than 2**62."""
    whole = plus * by // 1
    rounds = whole != plus * by
    exact: Mask | None = None
    if by > 1:
        quotient, rest = values // by, values % by
        more, least = divmod(whole, by)
        rest = rest + least
        exact = (rest == 0) | (rest == by)
        floor, above, below = _shifted(quotient + (rest >= by), more)
    else:
        more, least = divmod(whole, times)
        floor, above, below = _shifted(values, more)
        if times > 1:
            too_high, too_low = floor > (GREATEST - least) // times, floor < -((least - LEAST) // times)
            if above is not None:  # these wrapped around, and would count as below
                too_high, too_low = too_high | above, too_low & ~above
            if below is not None:
                too_high, too_low = too_high & ~below, too_low | below
            above, below = too_high, too_low
            floor = floor * times + least
    if above is not None:
        floor = np.where(above, GREATEST, floor)
        exact = both(exact, ~above)
    if rounds:
        exact = np.zeros(values.size, np.bool_)
    return CodeBounds(floor, exact, below, valid)


def _shifted(values: Codes, plus: int) -> tuple[Codes, Mask | None, Mask | None]:
    """Return ``values + plus``, and masks of the sums above and below the int64 range, which wrap around."""
    if plus == 0:
        return values, None, None
    moved = (values.view(np.uint64) + np.uint64(plus % 2**64)).view(np.int64)
    if plus > 0:
        return moved, values > GREATEST - plus if plus <= 2**64 else np.ones(values.size, np.bool_), None
    return moved, None, values < LEAST - plus if plus >= -(2**64) else np.ones(values.size, np.bool_)


def _decimals(array: pa.Array, like: pa.DataType, plus: Fraction, valid: Mask | None) -> CodeBounds:
    array = as_decimals(array)
    shift = like.scale - array.type.scale
    added = plus * Fraction(10) ** max(like.scale, array.type.scale)
    whole = added // 1
    rows = len(array)
    floor, exact, below = np.empty(rows, np.int64), np.empty(rows, np.bool_), np.empty(rows, np.bool_)
    floor_decimals(decimal_words(array), shift, wide_words(whole, shift), floor, exact, below)
    if whole != added:
        exact[:] = False
    return CodeBounds(floor, exact, below if below.any() else None, valid)
