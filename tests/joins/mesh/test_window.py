"""The window when its number of slots changes."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from semistream import MemoryBudget
from semistream.joins.mesh.window import StreamWindow
from semistream.joins.parts.intake import Admitted
from semistream.keys import CodeRanges

actions = st.lists(st.tuples(st.integers(0, 6), st.integers(0, 20), st.booleans()), max_size=30)


@given(actions=actions, seed=st.integers(0, 100))
@settings(deadline=None)
def test_tuples_keep_their_marks_when_the_slots_change(actions: list[tuple[int, int, bool]], seed: int) -> None:
    """Any order of admitting, marking, expiring and resizing, against a dictionary."""
    generator = np.random.default_rng(seed)
    window = StreamWindow(5, MemoryBudget("1MB"))
    marks: dict[int, bool] = {}
    admitted = 0
    for entered, (rows, slots, expire) in enumerate(actions):
        if 0 < rows <= window.free:
            codes = generator.integers(0, 9, rows)
            batch = pa.record_batch({"k": codes})
            window.admit(Admitted(batch, np.full(rows, 8), CodeRanges(codes, None, None)), entered)
            marks |= dict.fromkeys(range(admitted, admitted + rows), False)
            admitted += rows
            chosen = np.flatnonzero(generator.random(len(marks)) < 0.4) + admitted - len(marks)
            window.mark(chosen)
            marks |= dict.fromkeys(chosen.tolist(), True)
        if expire and window.packets:
            packet = window.packets[0]
            expected = [marks.pop(packet.first + i) for i in range(packet.rows)]
            assert window.oldest_matched().tolist() == expected
            window.expire()
        assert window.held == len(marks)
        window.resize(max(slots, window.held, 1))
        assert window.slots == max(slots, window.held, 1)
    while window.packets:
        packet = window.packets[0]
        assert window.oldest_matched().tolist() == [marks.pop(packet.first + i) for i in range(packet.rows)]
        window.expire()
    assert not marks
