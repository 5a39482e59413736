"""Packed rows: many rows of a window join in one binary value, for the way between Spark's tasks.

`transformWithState` keeps the state, but converts its input and output to pandas, in places row by row, at 0.2 million
rows/s. Each of its rows is therefore a whole record batch. Tasks divide the streams' rows by key partition, and send
each part as one Arrow IPC message; results return the same way, and are unpacked afterwards. Arrow types are preserved
throughout, and the state log stores the messages unchanged.
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
        ("group", pa.int32()),  # group number of the key partition
        ("side", pa.int32()),
        ("task", pa.int32()),  # task that packed them
        ("number", pa.int32()),  # number of the message within its task
        ("rows", pa.binary()),  # null: no rows
    ]
)
"""Schema of packed rows."""

PACK_BYTES = 16_000_000
"""Bytes of rows that are divided by partition at once."""


def pack_rows(plan: WindowPlan, side: int, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Pack the rows of a task by key partition.

    Each partition gets at least one message, empty if it has no rows. Spark therefore calls every partition in each
    micro-batch with data, and all of them report their counts.
    """
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
            order = np.argsort(parts.astype(np.int32), kind="stable")  # keeps the stream's order within each part
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
    """Unpack results, and cast them to types that Spark has."""
    for batch in batches:
        for message in batch.column(0):
            if message.is_valid:
                yield convert_batch(read_message(message.as_buffer()), plan.schema)


def write_message(batch: pa.RecordBatch) -> bytes:
    """Serialize a batch as an Arrow IPC stream.

    >>> read_message(write_message(pa.record_batch({"k": [1, 2]}))).to_pydict()
    {'k': [1, 2]}
    """
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema) as writer:
        writer.write_batch(batch)
    content: bytes = sink.getvalue().to_pybytes()
    return content


def read_message(content: pa.Buffer | bytes) -> pa.RecordBatch:
    """Read a batch from its Arrow IPC stream, without a copy."""
    with pa.ipc.open_stream(content) as reader:
        return reader.read_next_batch()
