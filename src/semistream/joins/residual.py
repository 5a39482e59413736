"""Residual: an Arrow expression over the joined row, as a check of candidate pairs."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import acero

from semistream.errors import InvalidArgument
from semistream.kernels.types import Bools


@dataclass(frozen=True, eq=False)  # expressions compare to expressions
class Residual:
    """An expression over the joined row, and the columns of the row that it reads: all that is gathered for it."""

    expression: pc.Expression
    columns: tuple[int, ...]
    names: tuple[str, ...]

    @classmethod
    def of(cls, expression: pc.Expression, schema: pa.Schema) -> Residual:
        """Bind an expression to the columns of the joined row, and find out which of them it reads.

        >>> row = pa.schema([("a", pa.int64()), ("b", pa.int64()), ("c", pa.string())])
        >>> Residual.of(pc.field("a") + 1 > pc.field("b"), row).names
        ('a', 'b')
        """
        if "FieldPath(" in str(expression):
            raise InvalidArgument(
                f"where has columns by position: {expression}. Name them: pyarrow.compute.field('x')."
            )
        try:
            result = _evaluate(expression, schema.empty_table()).type
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError, pa.ArrowTypeError) as error:
            raise InvalidArgument(
                f"where cannot be evaluated: {expression}: {error}. The joined row has the columns "
                f"{', '.join(f'{field.name}: {field.type}' for field in schema)}."
            ) from error
        if not pa.types.is_boolean(result):
            raise InvalidArgument(f"where is of type {result}, not boolean: {expression}.")
        needed = [i for i in range(len(schema)) if not _binds(expression, schema.remove(i))]
        if not needed:
            raise InvalidArgument(
                f"where reads no column: {expression}. A condition of constants joins all or nothing."
            )
        return cls(expression, tuple(needed), tuple(schema.names[i] for i in needed))

    def holds(self, arrays: list[pa.Array]) -> Bools:
        """Row by row, whether the expression is true; null is not. ``arrays`` are the values of ``columns``."""
        flags = _evaluate(self.expression, pa.Table.from_arrays(arrays, names=list(self.names)))
        known: Bools = flags.fill_null(False).to_numpy()
        return known


def _evaluate(expression: pc.Expression, table: pa.Table) -> pa.ChunkedArray:
    source = acero.Declaration("table_source", acero.TableSourceNodeOptions(table))
    project = acero.Declaration("project", acero.ProjectNodeOptions([expression], ["holds"]), [source])
    return project.to_table(use_threads=False).column(0)


def _binds(expression: pc.Expression, schema: pa.Schema) -> bool:
    try:
        _evaluate(expression, schema.empty_table())
    except pa.ArrowInvalid:
        return False
    return True
