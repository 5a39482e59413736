"""Comparisons of a stream column with a relation column: order, inequality, and distance."""

from __future__ import annotations

import operator
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from semistream.errors import InvalidArgument, KeyTypeError
from semistream.keys.bounds import locate
from semistream.keys.codec import KeyCodec
from semistream.keys.conversion import (
    as_decimals,
    decimal_words,
    decoded,
    exact_values,
    float_codes,
    stored_integers,
    typed,
    wide_words,
)
from semistream.keys.kernels import compare_decimals
from semistream.keys.key_types import Family, comparable, family_of, has_order, value_type
from semistream.keys.ranges import CodeRanges
from semistream.keys.values import Mask, OrderedValues, both, twist

Order = Literal["<", "<=", ">", ">="]

_ORDERS: dict[Order, Callable[[Any, Any], Any]] = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
_BY_BYTES = {"<": pc.less, "<=": pc.less_equal, ">": pc.greater, ">=": pc.greater_equal}
_NUMBERS = (Family.INTEGER, Family.DECIMAL, Family.FLOAT)
_TEMPORAL = (Family.DATE, Family.TIME, Family.TIMESTAMP, Family.DURATION)
_DAY_S = 86_400


@dataclass(frozen=True)
class Comparison(ABC):
    """A condition on a stream value and a relation value of type ``relation_type``.

    Values compare by what they denote, whatever their widths, units and scales. NaN equals itself and is the greatest
    value, -0.0 equals 0.0, strings and binaries compare by their bytes, and null fulfils no condition.
    """

    relation_type: pa.DataType

    @property
    def has_ranges(self) -> bool:
        """True if the codes that fulfil the condition form one range, returned by `ranges`."""
        return has_order(self.relation_type)

    @property
    def ranges_are_exact(self) -> bool:
        """True if every code in the range fulfils the condition; otherwise `holds` must decide."""
        return True

    @abstractmethod
    def ranges(self, stream: pa.Array) -> CodeRanges:
        """Return, for each stream value, the range of R's codes that fulfil the condition."""

    @abstractmethod
    def holds(self, stream: pa.Array, relation: pa.Array) -> Mask:
        """Evaluate the condition row by row."""

    def _decoded(self, stream: pa.Array) -> pa.Array:
        """Return a stream column without a dictionary, and nulls in the type of R's column."""
        return typed(decoded(stream), value_type(self.relation_type))

    def _in_ranges(self, stream: pa.Array, relation: pa.Array) -> Mask:
        values = exact_values(relation, self.relation_type)
        assert isinstance(values, OrderedValues)
        inside = self.ranges(stream).contain(values.codes)
        return inside if values.possible is None else inside & values.possible


@dataclass(frozen=True)
class Ordered(Comparison):
    """The condition that the stream value is less than, at most, greater than, or at least the relation value.

    >>> less = Ordered(pa.int32(), "<")
    >>> less.holds(pa.array([1, 2**40]), pa.array([2, 2], pa.int32())).tolist()
    [True, False]
    """

    order: Order

    def ranges(self, stream: pa.Array) -> CodeRanges:
        """Return, for each stream value, the range of R's codes that fulfil the condition."""
        bounds = locate(stream, self.relation_type)
        match self.order:
            case "<":
                return bounds.above()
            case "<=":
                return bounds.at_least()
            case ">":
                return bounds.under()
            case ">=":
                return bounds.at_most()

    def holds(self, stream: pa.Array, relation: pa.Array) -> Mask:
        """Evaluate the condition row by row."""
        if self.has_ranges:
            return self._in_ranges(stream, relation)
        stream, relation = self._decoded(stream), decoded(relation)
        if family_of(self.relation_type) is Family.DECIMAL:
            stream = as_decimals(stream)
            return _where_valid(_ORDERS[self.order](_difference(stream, relation, 0), 0), stream, relation)
        if stream.type != relation.type:
            stream, relation = stream.cast(pa.large_binary()), relation.cast(pa.large_binary())
        return _true(_BY_BYTES[self.order](stream, relation))


@dataclass(frozen=True)
class Unequal(Comparison):
    """The condition that the two values differ."""

    @property
    def has_ranges(self) -> bool:
        """Always False: the codes on both sides of the value fulfil the condition."""
        return False

    def ranges(self, stream: pa.Array) -> CodeRanges:
        """Return the range of all codes for each stream value."""
        return CodeRanges.everything(len(stream))

    def holds(self, stream: pa.Array, relation: pa.Array) -> Mask:
        """Evaluate the condition row by row."""
        equal = KeyCodec.of(["r"], [self.relation_type]).equal([stream], [relation])
        return _where_valid(
            ~equal, self._decoded(stream), decoded(relation)
        )  # decoded, because the null count of a dictionary array misses nulls among the dictionary's values


@dataclass(frozen=True)
class Within(Comparison):
    """The condition that two values differ by at most ``distance``, or by less if ``strict``.

    Integers, decimals and temporal values use exact arithmetic; ``distance`` is in days for dates and in seconds for
    other temporal types. If one side or both are floats (``in_floats``), ``abs(s - r) <= distance`` is evaluated in
    float64. NaN is within no distance.

    >>> near = Within(pa.uint8(), Fraction(5), strict=False)
    >>> near.holds(pa.array([2, 2], pa.uint8()), pa.array([0, 8], pa.uint8())).tolist()
    [True, False]
    """

    distance: Fraction
    strict: bool
    in_floats: bool = False

    @property
    def ranges_are_exact(self) -> bool:
        """True except for floats, whose ranges are slightly too wide because of rounding."""
        return not self.in_floats

    def ranges(self, stream: pa.Array) -> CodeRanges:
        """Return, for each stream value, the range of R's codes that fulfil the condition."""
        if self.in_floats:
            return self._float_ranges(stream)
        low, high = (locate(stream, self.relation_type, plus) for plus in (-self.distance, self.distance))
        if self.strict:
            return low.above().intersect(high.under())
        return low.at_least().intersect(high.at_most())

    def _float_ranges(self, stream: pa.Array) -> CodeRanges:
        stream = self._decoded(stream)
        values = _as_floats(stream)
        valid = stream.is_valid().to_numpy(zero_copy_only=False) if stream.null_count else None
        # Rounding moves a difference by half a unit in the last place, and these sums too: widen each by one unit.
        with np.errstate(invalid="ignore", over="ignore"):
            far = np.nextafter(np.nextafter(_as_float(self.distance), np.inf), np.inf)
            low, high = np.nextafter(values - far, -np.inf), np.nextafter(values + far, np.inf)
        if np.isinf(far):
            low, high = np.full_like(low, -np.inf), np.full_like(high, np.inf)
        nan = np.isnan(values)
        low[nan] = high[nan] = 0.0
        valid = both(valid, ~nan) if nan.any() else valid
        if family_of(self.relation_type) is Family.INTEGER:  # an integer may have been rounded to a float in the range
            with np.errstate(over="ignore"):
                low, high = np.nextafter(low, -np.inf), np.nextafter(high, np.inf)
            least, most = (locate(pa.array(bound), self.relation_type) for bound in (low, high))
            inside = least.at_least().intersect(most.at_most())
            return CodeRanges(inside.low, inside.high, both(inside.possible, valid))
        codes = [twist((bound + 0.0).view(np.int64)) for bound in (low, high)]
        return CodeRanges.between(codes[0], codes[1], valid)

    def holds(self, stream: pa.Array, relation: pa.Array) -> Mask:
        """Evaluate the condition row by row."""
        if self.in_floats:
            return self._floats_hold(self._decoded(stream), decoded(relation))
        if self.has_ranges:
            return self._in_ranges(stream, relation)
        stream, relation = as_decimals(self._decoded(stream)), decoded(relation)
        scale = max(stream.type.scale, relation.type.scale)
        steps = self.distance * Fraction(10) ** scale
        most = -(-steps // 1) - 1 if self.strict else steps // 1  # at the finer of the two scales
        near = (_difference(stream, relation, most) >= 0) & (_difference(stream, relation, -most) <= 0)
        return _where_valid(near, stream, relation)

    def _floats_hold(self, stream: pa.Array, relation: pa.Array) -> Mask:
        left, right = _as_floats(stream), _as_floats(relation)
        with np.errstate(invalid="ignore", over="ignore"):
            apart = np.abs(left - right)
        limit = _as_float(self.distance)
        return _where_valid(apart < limit if self.strict else apart <= limit, stream, relation)


def compared(stream_type: pa.DataType, relation_type: pa.DataType, order: Order | Literal["!="]) -> Comparison:
    """Create the comparison of two columns; raise `KeyTypeError` if they cannot be compared without loss."""
    _require_comparable(stream_type, relation_type)
    if order != "!=" and Family.NESTED in (family_of(stream_type), family_of(relation_type)):
        raise KeyTypeError(
            f"values of types {stream_type} and {relation_type} have no order here; compare their parts."
        )
    return Unequal(relation_type) if order == "!=" else Ordered(relation_type, order)


def within(
    stream_type: pa.DataType, relation_type: pa.DataType, distance: Fraction, *, is_duration: bool, strict: bool
) -> Comparison:
    """Create the condition that two columns differ by at most ``distance``, or by less if ``strict``.

    ``distance`` is a number, or seconds if ``is_duration``.
    """
    _require_comparable(stream_type, relation_type)
    family = family_of(relation_type)
    if family not in (_TEMPORAL if is_duration else _NUMBERS):
        wanted = "a duration, as in abs(s.x - r.k) <= 5 minutes" if family in _TEMPORAL else "a number"
        if family not in _TEMPORAL + _NUMBERS:
            raise KeyTypeError(f"values of type {value_type(relation_type)} have no distance; compare them by order.")
        raise InvalidArgument(f"the distance between values of type {value_type(relation_type)} must be {wanted}.")
    in_floats = Family.FLOAT in (family, family_of(stream_type))
    return Within(relation_type, distance / _DAY_S if family is Family.DATE else distance, strict, in_floats)


def _require_comparable(stream_type: pa.DataType, relation_type: pa.DataType) -> None:
    if not comparable(stream_type, relation_type):
        raise KeyTypeError(
            f"stream type {stream_type} and relation type {relation_type} cannot be compared without loss. "
            "Cast one side to the type of the other."
        )


def _difference(stream: pa.Array, relation: pa.Array, plus: int) -> np.ndarray[tuple[int], np.dtype[np.int8]]:
    """Return the sign of stream + plus - relation for decimals of any width; ``plus`` is at the finer scale."""
    shift = relation.type.scale - stream.type.scale
    sign = np.empty(len(stream), np.int8)
    compare_decimals(decimal_words(stream), decimal_words(relation), shift, wide_words(plus, shift), sign)
    return sign


def _as_floats(array: pa.Array) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    if family_of(array.type) is Family.INTEGER:
        return stored_integers(array).astype(np.float64)
    return twist(float_codes(array)).view(np.float64)


def _as_float(distance: Fraction) -> np.float64:
    try:
        return np.float64(float(distance))
    except OverflowError:
        return np.float64(np.inf)


def _where_valid(holds: Mask, stream: pa.Array, relation: pa.Array) -> Mask:
    for side in (stream, relation):
        if side.null_count:
            holds = holds & side.is_valid().to_numpy(zero_copy_only=False)
    return holds


def _true(flags: pa.Array) -> Mask:
    known: Mask = flags.fill_null(False).to_numpy(zero_copy_only=False)
    return known
