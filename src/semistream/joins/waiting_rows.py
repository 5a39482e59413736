"""WaitingRows: how many bytes a stream tuple takes while it waits for a sweep, as far as a sample tells."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from semistream.joins.level import NARROW
from semistream.joins.packed_column import PackedColumn, PackedValues, is_packable
from semistream.joins.spec import JoinSpec
from semistream.joins.stream_buffer import StreamBuffer
from semistream.joins.sweep_memory import StoredCodes
from semistream.kernels.packed import value_span
from semistream.relation import Relation

_GROWS = 1.5  # times the span of half of a sample, from which that of all shows that values count on


@dataclass(frozen=True)
class WaitingRows:
    """Bytes of a tuple in a level of ``level_rows``, by how many tuples of the stream there are for each that waits.

    ``row_bytes`` are those of the sample. Of each column that counts on there, ``counting`` has the width that it had
    and how much it counts on from one tuple to the next.
    """

    row_bytes: int
    level_rows: int
    counting: tuple[tuple[int, float], ...] = ()

    @classmethod
    def of(
        cls, relation: Relation, spec: JoinSpec, sample: pa.RecordBatch | None, codes: StoredCodes, level_rows: int
    ) -> WaitingRows:
        """What a sample tells. Without one, all but codes take what their types do, and codes what R's need."""
        schema, condition = spec.stream_schema, spec.condition
        if sample is None or sample.num_rows == 0:
            most = StreamBuffer.most_bytes(
                1,
                schema,
                code_stored=codes.column is not None,
                single_codes=condition.single_codes,
                code_shift=codes.shift,
            )
            table = relation.table
            span = int(table.last_code.max(initial=0)) - int(table.first_code.min(initial=0))
            narrow = condition.single_codes and not codes.shift and span < 1 << (8 * NARROW)
            return cls(most - (8 - NARROW if narrow else 0), level_rows)
        rows = sample.slice(0, level_rows)
        stored = StreamBuffer(
            schema,
            4 * rows.nbytes + (1 << 16),
            rows.num_rows,
            codes.column,
            single_codes=condition.single_codes,
            code_shift=codes.shift,
        ).stored_row_bytes(rows, condition.ranges(rows))
        integers = {i: PackedColumn(t) for i, t in enumerate(schema.types) if is_packable(t) and i != codes.column}
        parts = [part for i, column in integers.items() for part in column.integers(rows.column(i))]
        counting = [(PackedValues.of(part).width, step) for part in parts if (step := _step(part))]
        return cls(stored, level_rows, tuple(counting))

    def __call__(self, spread: float) -> int:
        """Bytes of a tuple if the stream has ``spread`` for each that waits."""
        rows = min(self.level_rows * spread, 2.0**62)
        return self.row_bytes + sum(max(_width(step * rows) - width, 0) for width, step in self.counting)


def _step(values: np.ndarray) -> float:
    """How much values count on from one to the next, on average; 0 if they do not."""
    half = values.size // 2
    if half == 0:
        return 0.0
    some, every = int(value_span(values[:half])[1]), int(value_span(values)[1])
    return every / values.size if every > _GROWS * max(some, 1) else 0.0


def _width(span: float) -> int:
    return next(width for width in (0, 1, 2, 4, 8) if width == 8 or span < 1 << (8 * width))
