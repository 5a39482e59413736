"""Comparing the stream's strings with those of pages, against plain Python."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from semistream.kernels.byte_strings import same_strings

STRINGS = st.lists(st.text("ab", max_size=3).map(str.encode), min_size=1, max_size=6)


def _stored(strings: list[bytes], offset_type: type) -> tuple[np.ndarray, np.ndarray]:
    offsets = np.concatenate([[0], np.cumsum([len(s) for s in strings])]).astype(offset_type)
    return offsets, np.frombuffer(b"".join(strings), np.uint8)


@pytest.mark.parametrize("own_type", [np.int32, np.int64])
@pytest.mark.parametrize("offset_type", [np.int32, np.int64])
@settings(deadline=None)
@given(stream=STRINGS, pages=st.lists(STRINGS, min_size=1, max_size=3), data=st.data())
def test_only_the_same_bytes_are_the_same(
    stream: list[bytes], pages: list[list[bytes]], data: st.DataObject, own_type: type, offset_type: type
) -> None:
    own_offsets, own = _stored(stream, own_type)
    run, starts, data_starts = b"", [], []
    for strings in pages:
        offsets, values = _stored(strings, offset_type)
        starts.append(len(run) // offsets.itemsize)
        run += offsets.tobytes()
        data_starts.append(len(run) if values.size else -1)
        run += values.tobytes()
        run += b"\xee" * (-len(run) % 8)
    places = [(page, row) for page, strings in enumerate(pages) for row in range(len(strings))]
    pairs = data.draw(st.lists(st.tuples(st.integers(0, len(stream) - 1), st.sampled_from(places)), max_size=20))
    buffer = np.frombuffer(run, np.uint8)
    out = np.empty(len(pairs), np.bool_)
    every = same_strings(
        own,
        own_offsets,
        np.array([position for position, _ in pairs], np.int64),
        buffer,
        buffer.view(offset_type),
        np.array(starts, np.int64),
        np.array(data_starts, np.int64),
        np.array([page for _, (page, _) in pairs], np.int32),
        np.array([row for _, (_, row) in pairs], np.int32),
        out,
    )
    assert out.tolist() == [stream[position] == pages[page][row] for position, (page, row) in pairs]
    assert every == all(out)
