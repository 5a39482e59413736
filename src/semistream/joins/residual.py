"""Residual: an Arrow expression over the joined row, as a check of candidate pairs."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from semistream.errors import InvalidArgument
from semistream.kernels.types import Bools
from semistream.keys.row_expression import RowExpression


@dataclass(frozen=True, eq=False)  # expressions compare to expressions
class Residual:
    """An expression over the joined row that is to be true, and the columns that it reads: all that is gathered for it.

    >>> row = pa.schema([("a", pa.int64()), ("b", pa.int64()), ("c", pa.string())])
    >>> Residual.of(pc.field("a") + 1 > pc.field("b"), row).names
    ('a', 'b')
    """

    bound: RowExpression

    @classmethod
    def of(cls, expression: pc.Expression, schema: pa.Schema) -> Residual:
        """Bind an expression to the columns of the joined row."""
        bound = RowExpression.of(expression, schema, what="where")
        if not pa.types.is_boolean(bound.type_):
            raise InvalidArgument(f"where is of type {bound.type_}, not boolean: {expression}.")
        if not bound.columns:
            raise InvalidArgument(
                f"where reads no column: {expression}. A condition of constants joins all or nothing."
            )
        return cls(bound)

    @property
    def columns(self) -> tuple[int, ...]:
        """The columns that it reads, by place."""
        return self.bound.columns

    @property
    def names(self) -> tuple[str, ...]:
        """The same by name."""
        return self.bound.names

    def holds(self, arrays: list[pa.Array]) -> Bools:
        """Row by row, whether the expression is true; null is not. ``arrays`` are the values of ``columns``."""
        flags = self.bound.values(pa.Table.from_arrays(arrays, names=list(self.names)))
        known: Bools = flags.fill_null(False).to_numpy()
        return known
