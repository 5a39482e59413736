"""The queue with random deletion against a list that does the same one tuple at a time."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from semistream import MemoryBudget
from semistream.joins.intake import Admitted
from semistream.joins.row_sizes import row_sizes
from semistream.joins.stream_queue import StreamQueue
from semistream.keys import CodeRanges
from tests.joins.page_tables import page_table

PAGES = [(0, 3), (3, 3), (3, 6), (8, 9), (9, 12)]  # 3 is on three pages, 9 on two, 7 on none
BUCKET = {0: 0, 1: 0, 2: 0, 3: 1, 4: 4, 5: 4, 6: 4, 7: 10, 8: 6, 9: 7, 10: 8, 11: 8, 12: 8, None: 10}
KEYS = st.one_of(st.integers(0, 12), st.none())


def tuples(keys: list[int | None], texts: list[str]) -> Admitted:
    """Tuples of a number and a text, as the intake gives them."""
    batch = pa.record_batch({"key": pa.array(keys, pa.int64()), "text": pa.array(texts, pa.string())})
    codes = np.array([0 if key is None else key for key in keys], np.int64)
    return Admitted(batch, row_sizes(batch), CodeRanges(codes, None, np.array([key is not None for key in keys])))


def drop(queue: StreamQueue, begin: int, end: int) -> list[str]:
    """Let the tuples of some buckets go; gives their texts."""
    texts = []
    queue.serve(begin, end)
    for positions, codes in queue.leaving(begin, end):
        assert (np.diff(codes) >= 0).all()
        texts += queue.take(positions, [1])[0].to_pylist()
        queue.remove(positions)
    return texts


def every(queue: StreamQueue) -> list[str]:
    """The texts of all tuples that are in some bucket."""
    listed = [p for bucket in range(queue.waiting.size) for p, _ in queue.staying(bucket)]
    return [text for positions in listed for text in queue.take(positions, [1])[0].to_pylist()]


actions = st.lists(
    st.one_of(
        st.tuples(st.just("admit"), st.lists(KEYS, min_size=1, max_size=9)),
        st.tuples(st.just("drop"), st.tuples(st.integers(0, 11), st.integers(0, 11))),
        st.tuples(st.just("compact"), st.none()),
    ),
    max_size=25,
)


@settings(deadline=None, max_examples=200)
@given(actions, st.integers(20, 400))
def test_random_deletion_is_that_of_a_list(actions, packet_bytes: int) -> None:
    budget = MemoryBudget(100_000)
    queue = StreamQueue(1000, page_table(PAGES), budget, packet_bytes)
    model: list[tuple[int | None, str]] = []
    held = came = 0
    for action, value in actions:
        if action == "admit":
            new = [(key, "x" * (came + i) + str(came + i)) for i, key in enumerate(value)]
            came += len(new)
            admitted = tuples(value, [text for _, text in new])
            held += int(admitted.sizes.sum())
            assert queue.admit(admitted) == sum(BUCKET[key] < 10 for key in value)
            model += new
        elif action == "drop":
            begin, end = sorted(value)
            expected = [text for key, text in model if begin <= BUCKET[key] < end]
            assert sorted(drop(queue, begin, end)) == sorted(expected)
            model = [(key, text) for key, text in model if not begin <= BUCKET[key] < end]
        else:
            held -= sum(int(sizes.sum()) for sizes in queue.compact())
            assert queue.vacant_share == 0
            assert queue.free == 1000 - len(model)
            assert held == sum(int(packet.sizes.sum()) for packet in queue.packets)
            assert held >= sum(packet.batch.nbytes for packet in queue.packets)
            # Nine rows may have come as one packet of more bytes; what was put together has no more.
            assert all(packet.sizes.sum() <= packet_bytes for packet in queue.packets if packet.rows > 9)
        assert queue.live == len(model)
        assert sorted(every(queue)) == sorted(text for _, text in model)
        counts = [sum(BUCKET[key] == bucket for key, _ in model) for bucket in range(11)]
        assert queue.waiting.tolist() == counts
        assert budget.used == 0
    drop(queue, 10, 11)
    model = [(key, text) for key, text in model if BUCKET[key] < 10]
    assert queue.oldest_code() == next((key for key, _ in model), None)
    assert queue.oldest_code(besides=(2, 8)) == next((key for key, _ in model if not 2 <= key <= 8), None)


def test_packets_stay_few_however_small_they_come() -> None:
    queue = StreamQueue(4000, page_table(PAGES), MemoryBudget(10**6), 10**5)
    for i in range(3000):
        queue.admit(tuples([i % 13], ["text"]))
        if i % 7 == 0:
            drop(queue, 0, 2)
        if queue.vacant_share >= 0.25:
            list(queue.compact())
    assert len(queue.packets) < 30


def test_compaction_frees_what_the_tuples_that_left_held() -> None:
    queue = StreamQueue(1000, page_table(PAGES), MemoryBudget(10**7), 200_000)
    before = pa.total_allocated_bytes()
    for _ in range(10):
        queue.admit(tuples([5] * 40 + [11], ["x" * 10_000] * 41))
    full = pa.total_allocated_bytes() - before
    drop(queue, 4, 5)
    given_back = sum(int(sizes.sum()) for sizes in queue.compact())
    assert given_back > 10 * 40 * 10_000
    assert pa.total_allocated_bytes() - before < full - 0.9 * given_back
    assert queue.live == 10
