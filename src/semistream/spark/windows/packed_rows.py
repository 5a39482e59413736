"""Rows of a window join on their way between Spark's tasks: packed as Arrow messages, many rows in one value.

State is kept by `transformWithState`, which takes pandas in and gives pandas out, row by row in places: 0.2 million
rows/s. So each of its rows is a whole record batch: tasks with the streams' rows cut them by key partition, and each
part travels as one binary value; results come back the same way, and are unpacked behind it. Types are Arrow's all the
way, and a state can be made of what came as it came.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa
from pyspark import TaskContext

from semistream.pipelines.carried_types import convert_batch
from semistream.spark.windows.key_partitions import partition_of
from semistream.spark.windows.window_plan import WindowPlan

PACKED = pa.schema(
    [
        ("group", pa.int32()),  # of the key partition
        ("side", pa.int32()),
        ("task", pa.int32()),  # that packed them
        ("number", pa.int32()),  # of what the task packed
        ("rows", pa.binary()),  # null: there are none
    ]
)
"""What packed rows of the streams travel in."""

PACK_BYTES = 16_000_000
"""Rows that are cut by partition at once."""


def pack_rows(plan: WindowPlan, side: int, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The rows of a task by key partition. Each partition gets at least one message, without rows if there are none:
    so each is called in every micro-batch that has data, and can say how it stands."""
    schema, waiting, nbytes, number = plan.schemas[side], [], 0, 0
    context = TaskContext.get()
    task = 0 if context is None else context.partitionId()
    for batch in batches:
        converted = convert_batch(batch, schema)
        waiting.append(converted)
        nbytes += converted.nbytes
        if nbytes >= PACK_BYTES:
            yield _packed(plan, side, waiting, task, number)
            waiting, nbytes, number = [], 0, number + 1
    yield _packed(plan, side, waiting, task, number)


def _packed(plan: WindowPlan, side: int, batches: list[pa.RecordBatch], task: int, number: int) -> pa.RecordBatch:
    messages: list[bytes | None] = [None] * plan.partitions
    if batches and (rows := pa.concat_batches(batches)).num_rows:
        codes = plan.condition.codes(side, rows)
        parts = partition_of(codes.code, codes.possible, plan.partitions)
        if plan.partitions > 1:
            order = np.argsort(parts.astype(np.int32), kind="stable")  # the stream's order stays within each part
            rows = rows.take(pa.array(order))
        ends = np.cumsum(np.bincount(parts, minlength=plan.partitions))
        for part, end in enumerate(ends.tolist()):
            begin = int(ends[part - 1]) if part else 0
            if end > begin:
                messages[part] = write_message(rows.slice(begin, end - begin))
    columns = [
        pa.array(plan.groups, pa.int32()),
        *(pa.array(np.full(plan.partitions, value, np.int32)) for value in (side, task, number)),
        pa.array(messages, pa.binary()),
    ]
    return pa.RecordBatch.from_arrays(columns, schema=PACKED)


def unpack_rows(plan: WindowPlan, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The rows of results that were packed, as Spark takes them."""
    for batch in batches:
        for message in batch.column(0):
            if message.is_valid:
                yield convert_batch(read_message(message.as_buffer()), plan.schema)


def write_message(batch: pa.RecordBatch) -> bytes:
    """A batch as an Arrow IPC stream.

    >>> read_message(write_message(pa.record_batch({"k": [1, 2]}))).to_pydict()
    {'k': [1, 2]}
    """
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema) as writer:
        writer.write_batch(batch)
    content: bytes = sink.getvalue().to_pybytes()
    return content


def read_message(content: pa.Buffer | bytes) -> pa.RecordBatch:
    """A batch from its Arrow IPC stream, without a copy."""
    with pa.ipc.open_stream(content) as reader:
        return reader.read_next_batch()
