"""ResultRows: builds joined rows from pairs of tuples, gathering each column once and as late as possible."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from semistream.errors import InvalidArgument
from semistream.kernels.array_types import Int64s
from semistream.windows.join.row_store import RowStore
from semistream.windows.streams.result_weight import ResultWeight
from semistream.windows.streams.window_match import WindowMatch

Batches = tuple[pa.RecordBatch, pa.RecordBatch]


class ResultRows:
    """Builder of result rows: checks candidate pairs and weighs results. ``columns`` stores the tuples in memory."""

    def __init__(
        self,
        schemas: tuple[pa.Schema, pa.Schema],
        condition: WindowMatch,
        weight: ResultWeight | None,
        weight_column: str | None,
    ) -> None:
        self._condition = condition
        self.weight = weight
        self._weight_column = weight_column
        self._checked = condition.checked
        self._given = (tuple(schemas[0].names), condition.right_columns)
        self.schema = condition.schema
        if weight_column is not None:
            if weight is None or weight_column in condition.row.names:
                raise InvalidArgument(
                    f"weight_column is {weight_column!r}; it needs a weight, and a name that no other column has."
                )
            self.schema = self.schema.append(pa.field(weight_column, pa.float64()))
        self.columns = (RowStore(0), RowStore(1))
        self.count = 0
        self.total_weight = 0.0

    def joined(self, left: Int64s, right: Int64s, arriving: Batches) -> pa.RecordBatch:
        """Return the joined rows of the pairs that fulfil the condition; origins below 0 are rows of ``arriving``."""
        if self._condition.must_check:
            own, other = self._gather(left, right, arriving, self._checked)
            holds = self._condition.holds(own, other, left.size)
            if not holds.all():
                left, right = left[holds], right[holds]
        weights = np.empty(0)
        if self.weight is not None:
            own, other = self._gather(left, right, arriving, self.weight.reads)
            weights = self.weight.of_results(own, other, left.size)
            self.total_weight += float(weights.sum())
        self.count += left.size
        own, other = self._gather(left, right, arriving, self._given)
        arrays = [*own.values(), *other.values()]
        if self._weight_column is not None:
            arrays.append(pa.array(weights))
        return pa.RecordBatch.from_arrays(arrays, schema=self.schema)

    def _gather(
        self, left: Int64s, right: Int64s, arriving: Batches, names: tuple[tuple[str, ...], tuple[str, ...]]
    ) -> tuple[dict[str, pa.Array], dict[str, pa.Array]]:
        own = self.columns[0].gather(left, arriving[0], names[0])
        other = self.columns[1].gather(right, arriving[1], names[1])
        return dict(zip(names[0], own, strict=True)), dict(zip(names[1], other, strict=True))
