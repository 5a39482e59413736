"""RowExpression: an Arrow expression over the joined row and the columns it reads (used by windows, WINDOW 6.1.2)."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import acero

from semistream.errors import InvalidArgument


@dataclass(frozen=True, eq=False)  # == on Arrow expressions builds another expression
class RowExpression:
    """An expression over the joined row, its result type, and the positions and names of the columns it reads."""

    expression: pc.Expression
    columns: tuple[int, ...]
    names: tuple[str, ...]
    type_: pa.DataType

    @classmethod
    def of(cls, expression: pc.Expression, schema: pa.Schema, *, what: str) -> RowExpression:
        """Bind an expression to the joined row.

        >>> row = pa.schema([("a", pa.int64()), ("b", pa.int64()), ("c", pa.string())])
        >>> RowExpression.of(pc.field("a") + 1 > pc.field("b"), row, what="where").names
        ('a', 'b')
        """
        if "FieldPath(" in str(expression):
            raise InvalidArgument(
                f"{what} refers to columns by position: {expression}. Name them: pyarrow.compute.field('x')."
            )
        try:
            type_ = evaluate(expression, pa.Table.from_batches([], schema)).type
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError, pa.ArrowTypeError) as error:
            raise InvalidArgument(
                f"{what} cannot be evaluated: {expression}: {error}. The joined row has the columns "
                f"{', '.join(f'{field.name}: {field.type}' for field in schema)}."
            ) from error
        needed = tuple(i for i in range(len(schema)) if not _binds(expression, schema.remove(i)))
        return cls(expression, needed, tuple(schema.names[i] for i in needed), type_)

    def values(self, table: pa.Table) -> pa.ChunkedArray:
        """Evaluate the expression for each row of a table that has the columns it reads."""
        return evaluate(self.expression, table)


def evaluate(expression: pc.Expression, table: pa.Table) -> pa.ChunkedArray:
    """Evaluate an expression for each row of a table."""
    source = acero.Declaration("table_source", acero.TableSourceNodeOptions(table))
    project = acero.Declaration("project", acero.ProjectNodeOptions([expression], ["value"]), [source])
    return project.to_table(use_threads=False).column(0)


def _binds(expression: pc.Expression, schema: pa.Schema) -> bool:
    try:
        evaluate(expression, pa.Table.from_batches([], schema))
    except pa.ArrowInvalid:
        return False
    return True
