"""expire(): tuples leave by the watermark, and nothing else changes."""

import numpy as np
import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from semistream.windows import MemoryArchive, SlowCpu, Tuples, WindowJoin

STREAM = pa.schema([("k", pa.int64()), ("at", pa.int64())])


def batch(rng, begin, rows):
    return pa.record_batch(
        [pa.array(rng.integers(0, 6, rows)), pa.array(begin + np.sort(rng.integers(0, 10, rows)))], schema=STREAM
    )


@settings(max_examples=40, deadline=None)
@given(
    seed=st.integers(0, 10**6),
    policy=st.sampled_from(["prob", "life", "expected", "random"]),
    window=st.sampled_from([{"left": 3, "right": 15}, 8, Tuples(5), {"left": None, "right": 4}]),
    memory=st.sampled_from([12, 30, None]),
    pauses=st.lists(st.integers(0, 40), min_size=2, max_size=6),
)
def test_no_result_and_no_eviction_changes(seed, policy, window, memory, pauses):
    if policy in ("life", "expected") and isinstance(window, dict) and None in window.values():
        policy = "prob"
    given_out = []
    for expires in (False, True):
        rng = np.random.default_rng(seed)
        join = WindowJoin(STREAM, STREAM, on="k", time="at", window=window, memory=memory, policy=policy, lateness=None)
        now, found = 0, []
        for pause in pauses:
            for side in ("left", "right"):
                found += list(join.push(side, batch(rng, now, 20)))
            now += 10 + pause
            found += list(join.advance(now))
            if expires:
                join.expire()
        found += list(join.finish())
        stats = join.stats
        given_out.append(
            (pa.Table.from_batches(found, join.schema).to_pylist(), stats.left.evicted, stats.right.evicted)
        )
    assert given_out[0] == given_out[1]


def test_what_has_expired_leaves_the_memory_and_is_archived_though_nothing_arrives():
    archive, rng = MemoryArchive(), np.random.default_rng(1)
    join = WindowJoin(
        STREAM, STREAM, on="k", time="at", window={"left": 5, "right": 50}, lateness=None, archive=archive
    )
    rows = batch(rng, 0, 20)
    list(join.push_left(rows)), list(join.push_right(rows))
    list(join.advance(20))
    held = join.stats.left.in_memory
    join.expire()
    assert held > 0
    assert (join.stats.left.in_memory, join.stats.left.expired) == (0, 20)
    assert (join.stats.right.in_memory, join.stats.right.expired) == (20, 0)
    assert archive.read(0, STREAM).num_rows == 20
    list(join.advance(59))
    join.expire()
    still = sum(time > 59 - 50 for time in rows["at"].to_pylist())
    assert join.stats.right.in_memory == still


def test_it_has_no_say_before_the_first_tuple_nor_over_a_queue():
    join = WindowJoin(STREAM, STREAM, on="k", time="at", window=5, lateness=None)
    join.expire()
    assert join.stats.left.in_memory == 0
    slow = WindowJoin(STREAM, STREAM, on="k", time="at", window=5, lateness=None, cpu=SlowCpu(1, 10))
    list(slow.push_left(batch(np.random.default_rng(1), 0, 10)))
    list(slow.advance(11))
    before = slow.stats
    slow.expire()
    assert slow.stats == before
