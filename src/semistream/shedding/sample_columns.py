"""Columns that rows of a sample carry through the join, so that estimates can be made of its results alone."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from semistream.errors import InvalidArgument
from semistream.shedding.decision import Decision, Kept
from semistream.shedding.stream_part import StreamPart

WEIGHT, BATCH, ROW, DRAWN, SPREAD = "_weight", "_sample_batch", "_sample_row", "_sample_drawn", "_sample_spread"

SAMPLE_COLUMNS = pa.schema(
    [
        pa.field(WEIGHT, pa.float64(), nullable=False),
        pa.field(BATCH, pa.int64(), nullable=False),
        pa.field(ROW, pa.int64(), nullable=False),
        pa.field(DRAWN, pa.int64(), nullable=False),
        pa.field(SPREAD, pa.float64(), nullable=False),
    ]
)
"""What is added to rows that are kept:

- ``_weight``: for how many rows of the stream this one stands, 1 over its probability to be kept;
- ``_sample_batch``, ``_sample_row``: the batch, and the row in it: all results with the same two come of one stream row
  and are a cluster;
- ``_sample_drawn``, ``_sample_spread``: how the batch was drawn (`SampleDesign`), the same for all its rows.
"""


def with_sample_columns(
    batch: pa.RecordBatch, part: StreamPart, kept: Kept, decision: Decision, *, batch_id: int
) -> pa.RecordBatch:
    """The kept rows of a part, ``batch``, with the columns that `estimate` reads from the results.

    >>> from semistream.shedding import SampleW
    >>> part, rows = StreamPart(4), pa.record_batch({"id": [1, 2, 3, 4]})
    >>> decision = SampleW().decide([SampleW().summarize(part)], 2, seed=5)
    >>> kept = decision.apply(part)
    >>> with_sample_columns(kept.split(rows)[0], part, kept, decision, batch_id=0).column("_weight").to_pylist()
    [2.0, 2.0]
    """
    design = decision.design
    if design is None:
        raise InvalidArgument(
            f"{decision.strategy} keeps no sample, so rows have no weights. Shed by sample_w or cluster_sampling "
            "(loss: random_sample) to make estimates."
        )
    if batch.num_rows != kept.rows:
        raise InvalidArgument(f"the batch has {batch.num_rows} rows, but {kept.rows} are kept; give those.")
    if taken := [name for name in SAMPLE_COLUMNS.names if name in batch.schema.names]:
        raise InvalidArgument(f"the stream has columns called {', '.join(taken)}; rename them.")
    n = batch.num_rows
    columns = [
        pa.array(kept.weights),
        pa.array(np.full(n, batch_id, np.int64)),
        pa.array(part.row_ids[kept.mask]),
        pa.array(np.full(n, design.drawn, np.int64)),
        pa.array(np.full(n, design.spread)),
    ]
    return pa.RecordBatch.from_arrays([*batch.columns, *columns], schema=pa.schema([*batch.schema, *SAMPLE_COLUMNS]))
