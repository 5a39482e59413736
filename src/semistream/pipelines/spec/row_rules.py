"""RowRule: a condition that the values of a source column must meet; rows that break it are quarantined."""

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

from semistream.errors import ColumnNotFound, InvalidArgument, shortened


@dataclass(frozen=True)
class RowRule:
    """Rule for the values of a column: not null, between ``least`` and ``most``, and among ``one_of``, where given.

    Only ``not_null`` refuses a null; the other conditions let it pass. NaN breaks every bound.

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
        if not self.not_null and self.least is None and self.most is None and self.one_of is None:
            raise InvalidArgument(f"the rule for {self.column!r} is empty; give not_null, min, max or one_of.")

    def require_fits(self, schema: pa.Schema) -> None:
        """Refuse a rule for a missing column, with values of another type, or with min above max."""
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
                    f"the rule for {self.column!r} lets no value pass: min is {self.least}, but max is {self.most}."
                )

    def broken(self, values: pa.Array) -> pa.BooleanArray:
        """Return a mask of the values that break the rule."""
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
        """Reason given in the quarantine for a row that breaks the rule."""
        return f"{self.column} {' or '.join(self._parts)}"


def first_broken(rules: Sequence[RowRule], batch: pa.RecordBatch) -> pa.StringArray:
    """Return for each row of a batch the reason of the first rule that it breaks, or null if it breaks none.

    >>> rows = pa.record_batch({"a": [1, None], "b": [0, 7]})
    >>> first_broken([RowRule("a", not_null=True), RowRule("b", least=1)], rows).to_pylist()
    ['b is below 1', 'a is null']
    """
    reasons = pa.nulls(batch.num_rows, pa.string())
    for rule in reversed(rules):
        reasons = pc.if_else(rule.broken(batch.column(rule.column)), rule.reason, reasons)
    return reasons


def readable_time(column: str, type_: pa.DataType) -> RowRule | None:
    """Return a rule for years from 1 to 9999, which other readers can parse, or None if the column has no dates."""
    if pa.types.is_date(type_):
        return RowRule(column, least=date.min, most=date.max)
    if pa.types.is_timestamp(type_):
        zone = None if type_.tz is None else UTC
        return RowRule(column, least=datetime.min.replace(tzinfo=zone), most=datetime.max.replace(tzinfo=zone))
    return None


def _one_zero(values: pa.Array) -> pa.Array:
    """Replace -0.0 by 0.0: the two are equal, but `is_in` tells them apart."""
    return pc.add(values, pa.scalar(0.0, values.type)) if pa.types.is_floating(values.type) else values


def _scalar(value: Any, type_: pa.DataType, column: str) -> pa.Scalar:
    """Convert a value of a rule to the type of its column."""
    try:
        plain = pa.scalar(value)
        if pa.types.is_boolean(plain.type) != pa.types.is_boolean(type_):
            raise pa.ArrowInvalid("booleans compare only with booleans")
        if isinstance(value, float) and math.isnan(value):
            raise pa.ArrowInvalid("NaN is neither above nor below any value")
        if pa.types.is_decimal(type_) and isinstance(value, int | float):
            return pa.scalar(Decimal(str(value)), type_)
        return plain.cast(type_)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, pa.ArrowTypeError, OverflowError) as error:
        raise InvalidArgument(
            f"column {column!r} is {type_}, but its rule compares it with {shortened(value)} ({error}). Give a value "
            "of the column's type."
        ) from error
