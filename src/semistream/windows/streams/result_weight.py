"""ResultWeight: the value of a result to the user, val(r, s) of WINDOW 6.1.3."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from semistream.errors import InvalidArgument
from semistream.kernels.array_types import Floats
from semistream.keys.row_expression import RowExpression
from semistream.windows.streams.event_time import LEFT
from semistream.windows.streams.window_match import WindowMatch

Weight: TypeAlias = pc.Expression | Callable[[pa.RecordBatch], Any]


@dataclass(frozen=True, eq=False)
class ResultWeight:
    """Weight of results: an Arrow expression over the joined row, or a function from joined rows to numbers.

    Policies must weigh a tuple before its partners arrive. For this the weight is computed on a half-known row, in
    which the other stream's columns are null, except those equal by ``on``. A weight known then is right for all
    results of the tuple; a null counts as 1. The weight of a result counts as 0 if it is null.
    """

    function: Weight
    condition: WindowMatch
    left: pa.Schema
    right: pa.Schema
    expression: RowExpression | None

    @classmethod
    def of(cls, weight: Weight, condition: WindowMatch, left: pa.Schema, right: pa.Schema) -> ResultWeight:
        """Bind a weight to the joined row."""
        expression = None
        if isinstance(weight, pc.Expression):
            expression = RowExpression.of(weight, condition.row, what="weight")
            if not (pa.types.is_integer(expression.type_) or pa.types.is_floating(expression.type_)):
                raise InvalidArgument(f"weight is of type {expression.type_}; it must be a number: {weight}.")
        elif not callable(weight):
            raise InvalidArgument(f"weight is {weight!r}; give an Arrow expression, or a function of joined rows.")
        return cls(weight, condition, left, right, expression)

    @property
    def reads(self) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """Columns of the left and the right stream that the weight reads."""
        names = self.condition.row.names if self.expression is None else self.expression.names
        own = {out: name for name, out in self.condition.right_names.items()}
        return tuple(n for n in names if n not in own), tuple(own[n] for n in names if n in own)

    def of_results(self, left: Mapping[str, pa.Array], right: Mapping[str, pa.Array], rows: int) -> Floats:
        """Return the weights of results, given the columns named by `reads`."""
        renamed = {self.condition.right_names[name]: column for name, column in right.items()}
        return np.nan_to_num(self._evaluate({**left, **renamed}, rows), nan=0.0)

    def of_tuples(self, side: int, batch: pa.RecordBatch) -> Floats:
        """Return the weight of a result of each tuple, as far as it is known before the partner arrives."""
        names, own_keys, other_keys = self.condition.right_names, *self.condition.keys
        if side != LEFT:
            own_keys, other_keys = other_keys, own_keys
        equal = dict(zip(other_keys, own_keys, strict=True))
        own = {(name if side == LEFT else names[name]): batch.column(name) for name in batch.schema.names}
        other: dict[str, pa.Array] = {}
        for field in self.right if side == LEFT else self.left:
            known = _as_type(batch.column(equal[field.name]), field.type) if field.name in equal else None
            column = pa.nulls(batch.num_rows, field.type) if known is None else known
            other[names[field.name] if side == LEFT else field.name] = column
        return np.nan_to_num(self._evaluate({**own, **other}, batch.num_rows), nan=1.0)

    def _evaluate(self, columns: Mapping[str, pa.Array], rows: int) -> Floats:
        """Return the weight of each row, NaN for null."""
        if self.expression is not None:
            table = pa.table({name: columns[name] for name in self.expression.names} or {"": pa.nulls(rows)})
            values = self.expression.values(table)
        else:
            ordered = [columns[field.name] for field in self.condition.row]
            given = self.function(pa.RecordBatch.from_arrays(ordered, schema=self.condition.row))
            values = given if isinstance(given, pa.Array | pa.ChunkedArray) else pa.array(given, from_pandas=True)
        if len(values) != rows:
            raise InvalidArgument(f"weight returned {len(values)} values for {rows} rows; return one for each.")
        numbers: Floats = values.cast(pa.float64()).to_numpy(zero_copy_only=False).astype(np.float64)
        if np.isinf(numbers).any():
            raise InvalidArgument("weight is infinite for some rows; give finite numbers, or null for 0.")
        return numbers


def _as_type(column: pa.Array, type_: pa.DataType) -> pa.Array | None:
    """Cast a key to the other stream's type; return None if a value does not fit."""
    try:
        return column.cast(type_)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        return None
