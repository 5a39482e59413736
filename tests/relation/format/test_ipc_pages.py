"""Walking Arrow's own messages: the buffers found are those that Arrow wrote."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from semistream.relation.format.kernels import locate_blocks, locate_buffers

SCHEMA = pa.schema(
    [("i", pa.int32()), ("n", pa.null()), ("s", pa.string()), ("b", pa.bool_()), ("l", pa.list_(pa.int64()))]
)
BUFFERS = 2 + 0 + 3 + 2 + 2 + 2
ROWS = st.lists(
    st.fixed_dictionaries(
        {
            "i": st.one_of(st.none(), st.integers(-(2**31), 2**31 - 1)),
            "n": st.none(),
            "s": st.one_of(st.none(), st.text(max_size=9)),
            "b": st.one_of(st.none(), st.booleans()),
            "l": st.one_of(st.none(), st.lists(st.integers(0, 9), max_size=3)),
        }
    ),
    max_size=20,
)


@settings(deadline=None)
@given(st.lists(ROWS, min_size=1, max_size=4), st.integers(0, 3).map(lambda words: 8 * words))
def test_buffers_stand_where_arrow_put_them(pages: list[list[dict[str, object]]], gap: int) -> None:
    batches = [pa.RecordBatch.from_pylist(rows, schema=SCHEMA) for rows in pages]
    messages = [bytes(batch.serialize()) for batch in batches]
    data, starts = b"", []
    for message in messages:
        data += b"\xee" * gap
        starts.append(len(data))
        data += message
    data += b"\xee" * (-len(data) % 8)
    run = np.frombuffer(data, np.uint8)
    positions = np.empty((len(pages), BUFFERS), np.int64)
    locate_buffers(run, np.array(starts, np.int64), 0, positions.shape[1], positions)
    for batch, message, start, found in zip(batches, messages, starts, positions.tolist(), strict=True):
        parsed = pa.ipc.read_record_batch(pa.py_buffer(message), SCHEMA)
        assert parsed.equals(batch)
        wanted = [
            buffer
            for column in parsed.columns
            for buffer in column.buffers()[: 0 if column.type == pa.null() else None]
        ]
        assert len(wanted) == BUFFERS
        for at, buffer in zip(found, wanted, strict=True):
            if at < 0:
                assert buffer is None or buffer.size == 0
            else:
                assert start < at < start + len(message)
                assert run[at : at + buffer.size].tobytes() == buffer.to_pybytes()


@pytest.mark.parametrize("batches", [0, 1, 5])
def test_blocks_are_those_of_the_footer(batches: int) -> None:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_file(sink, SCHEMA) as writer:
        for i in range(batches):
            writer.write_batch(pa.RecordBatch.from_pylist([{"i": j} for j in range(i + 1)], schema=SCHEMA))
    content = sink.getvalue().to_pybytes()
    footer = int.from_bytes(content[-10:-6], "little")
    blocks = locate_blocks(np.frombuffer(content[-10 - footer : -10], np.uint8)).tolist()
    assert len(blocks) == batches
    for i, (offset, nbytes) in enumerate(blocks):
        page = pa.ipc.read_record_batch(pa.py_buffer(content[offset : offset + nbytes]), SCHEMA)
        assert page.column("i").to_pylist() == list(range(i + 1))
    assert all(a[0] + a[1] == b[0] for a, b in pairwise(blocks))  # no gaps between pages
