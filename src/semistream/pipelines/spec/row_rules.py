"""RowRule: what a value of a source's column must be like, for its row to be worth loading."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime
from decimal import Decimal
from functools import cached_property, reduce
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from semistream.errors import ColumnNotFound, InvalidArgument


@dataclass(frozen=True)
class RowRule:
    """A column's values are not null, lie between ``least`` and ``most``, and are among ``one_of``, as far as given.

    A null is none of the others' business: only ``not_null`` refuses it. NaN lies between no bounds.

    >>> rule = RowRule("quantity", least=1, most=1000)
    >>> rule.broken(pa.array([0, 1, None, 2000])).to_pylist()
    [True, False, False, True]
    >>> rule.reason
    'quantity is not between 1 and 1000'
    """

    column: str
    not_null: bool = False
    least: Any = None
    most: Any = None
    one_of: tuple[Any, ...] | None = None

    def __post_init__(self) -> None:
        if not self._parts:
            raise InvalidArgument(f"the rule for {self.column!r} asks for nothing; give not_null, min, max or one_of.")

    def require_fits(self, schema: pa.Schema) -> None:
        """Refuse a rule that a column of the schema cannot be held against."""
        if self.column not in schema.names:
            raise ColumnNotFound(self.column, schema.names, where="the source")
        type_ = schema.field(self.column).type
        for value in (self.least, self.most, *(self.one_of or ())):
            if value is not None:
                _scalar(value, type_, self.column)
        if self.least is not None and self.most is not None:
            least, most = _scalar(self.least, type_, self.column), _scalar(self.most, type_, self.column)
            if not pc.less_equal(least, most).as_py():
                raise InvalidArgument(
                    f"the rule for {self.column!r} lets no value pass: min is {self.least}, and max is {self.most}."
                )

    def broken(self, values: pa.Array) -> pa.BooleanArray:
        """Which values break the rule."""
        return reduce(pc.or_, self._flags(values))

    def _flags(self, values: pa.Array) -> Iterator[pa.Array]:
        if self.not_null:
            yield pc.is_null(values)
        if self.least is not None:
            holds = pc.greater_equal(values, _scalar(self.least, values.type, self.column))
            yield pc.fill_null(pc.invert(holds), False)
        if self.most is not None:
            holds = pc.less_equal(values, _scalar(self.most, values.type, self.column))
            yield pc.fill_null(pc.invert(holds), False)
        if self.one_of is not None:
            known = pa.array([_scalar(value, values.type, self.column) for value in self.one_of], values.type)
            yield pc.and_(pc.invert(pc.is_in(_one_zero(values), _one_zero(known))), pc.is_valid(values))

    @cached_property
    def _parts(self) -> list[str]:
        parts = ["is null"] if self.not_null else []
        if self.least is not None and self.most is not None:
            parts.append(f"is not between {self.least} and {self.most}")
        elif self.least is not None:
            parts.append(f"is below {self.least}")
        elif self.most is not None:
            parts.append(f"is above {self.most}")
        if self.one_of is not None:
            parts.append(f"is none of {', '.join(map(str, self.one_of))}")
        return parts

    @property
    def reason(self) -> str:
        """Why a row that breaks it is refused."""
        return f"{self.column} {' or '.join(self._parts)}"


def first_broken(rules: Sequence[RowRule], batch: pa.RecordBatch) -> pa.StringArray:
    """For each row of a batch the reason of the first rule that it breaks; null if it keeps all.

    >>> rows = pa.record_batch({"a": [1, None], "b": [0, 7]})
    >>> first_broken([RowRule("a", not_null=True), RowRule("b", least=1)], rows).to_pylist()
    ['b is below 1', 'a is null']
    """
    reasons = pa.nulls(batch.num_rows, pa.string())
    for rule in reversed(rules):
        reasons = pc.if_else(rule.broken(batch.column(rule.column)), rule.reason, reasons)
    return reasons


def readable_time(column: str, type_: pa.DataType) -> RowRule | None:
    """The rule that a date or time is of a year from 1 to 9999, as others write and read it; None for other types."""
    if pa.types.is_date(type_):
        return RowRule(column, least=date.min, most=date.max)
    if pa.types.is_timestamp(type_):
        zone = None if type_.tz is None else UTC
        return RowRule(column, least=datetime.min.replace(tzinfo=zone), most=datetime.max.replace(tzinfo=zone))
    return None


def _one_zero(values: pa.Array) -> pa.Array:
    """Values as they are, but for -0.0, which equals 0.0 and yet is another value to a look-up."""
    return pc.add(values, pa.scalar(0.0, values.type)) if pa.types.is_floating(values.type) else values


def _scalar(value: Any, type_: pa.DataType, column: str) -> pa.Scalar:
    """A value of a rule in the type of its column."""
    try:
        plain = pa.scalar(value)
        if pa.types.is_boolean(plain.type) != pa.types.is_boolean(type_):
            raise pa.ArrowInvalid("a boolean and something else")
        if isinstance(value, float) and math.isnan(value):
            raise pa.ArrowInvalid("NaN is neither more nor less than others")
        if pa.types.is_decimal(type_) and isinstance(value, int | float):
            return pa.scalar(Decimal(str(value)), type_)
        return plain.cast(type_)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, pa.ArrowTypeError, OverflowError) as error:
        raise InvalidArgument(
            f"a rule holds {column!r}, which is {type_}, against {value!r}, and that is not such a value ({error}). "
            "Give one that is."
        ) from error
