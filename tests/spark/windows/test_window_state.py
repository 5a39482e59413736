"""The state of a key partition: restored from its log, or served by another worker, it continues exactly."""

import doctest
import json
from collections import Counter
from unittest.mock import patch
from uuid import uuid4

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

pytest.importorskip("pyspark", reason="pip install 'semistream[spark]' to run these")

from semistream.errors import InvalidArgument, JoinFailed
from semistream.spark.windows import key_partitions, window_plan
from semistream.spark.windows import packed_rows as window_packing
from semistream.spark.windows import partition_join as kept_join
from semistream.spark.windows import state_log as window_log
from semistream.spark.windows.packed_rows import PACKED, pack_rows, read_message, unpack_rows, write_message
from semistream.spark.windows.partition_join import KeptJoin
from semistream.spark.windows.state_log import LogEntry, LogHeader, WindowLog
from semistream.spark.windows.window_plan import WindowPlan
from semistream.spark.windows.worker_homes import JoinHomes, Turn
from semistream.windows import WindowJoin
from tests.spark.windows.state_store import StateStore

SIDE = pa.schema([("k", pa.int64()), ("at", pa.timestamp("us", "UTC")), ("id", pa.int64())])
POLICIES = ("prob", "life", "expected", "random")


def plan_of(policy="prob", memory=30, **changes):
    usual = {
        "left": SIDE, "right": SIDE, "on": {"k": "k"}, "times": {"left": "at", "right": "at"}, "window": "20 ms",
        "memory": memory, "policy": policy, "allocation": "fixed", "suffix": "_right", "groups": (0,),
        "max_waiting": 10**6, "archive": None, "late": None, "secret": b"of these tests",
    }  # fmt: skip
    return WindowPlan(**{**usual, **changes})


def entries(seed, batches, rows):
    """Yield the rows of micro-batches, 10 ms each with times up to 3 ms late, and watermarks."""
    rng = np.random.default_rng(seed)
    for number in range(batches):
        parts = []
        for side in range(2):
            time = 1000 + 10 * number + np.sort(rng.integers(0, 10, rows)) - rng.integers(0, 3, rows)
            keys = rng.integers(0, 8, rows)
            ids = number * rows + np.arange(rows)
            columns = [pa.array(keys), pa.array(time * 1000, SIDE.field("at").type), pa.array(ids)]
            parts.append((side, write_message(pa.RecordBatch.from_arrays(columns, schema=SIDE))))
        yield parts, 1000 + 10 * number - 3 if number else 0


def step(homes, plan, store, parts, watermark_ms, *, commit=True):
    """One micro-batch of the partition, as the processor does it; gives the pairs of numbers that it joined."""
    log = WindowLog(store)
    header = log.header() or LogHeader("{}")
    entry = LogEntry(parts, watermark_ms, header.stamp)
    turn = Turn(entry, header.next, uuid4().hex, log.wants_snapshot(header, entry))
    found, running = [], homes.run(plan, "query", 0, header, log, turn)
    while True:
        try:
            found += [(row["id"], row["id_right"]) for row in read_message(next(running)).to_pylist()]
        except StopIteration as end:
            outcome = end.value
            break
    if commit and outcome.snapshot is None:
        log.append(header, entry, turn.stamp, 0)
    elif commit:
        log.replace(header, outcome.snapshot, turn.stamp, 0)
    return found, outcome


def straight(plan, seed, batches, rows):
    """Results of each micro-batch, of one operator that lives on."""
    join = WindowJoin(
        SIDE, SIDE, on="k", time="at", window="20 ms", memory=plan.memory, policy=plan.policy, lateness=None
    )
    for parts, watermark_ms in entries(seed, batches, rows):
        found = []
        for side, content in parts:
            found += list(join.push(("left", "right")[side], read_message(content)))
        if watermark_ms:
            found += list(join.advance(pa.scalar(watermark_ms * 1000, SIDE.field("at").type).as_py()))
        yield [(row["id"], row["id_right"]) for batch in found for row in batch.to_pylist()]


@settings(max_examples=15, deadline=None)
@given(
    seed=st.integers(0, 10**6),
    policy=st.sampled_from(POLICIES),
    rows=st.integers(1, 60),
    fates=st.lists(st.sampled_from(["same", "other", "lost", "failed"]), min_size=6, max_size=10),
    least=st.sampled_from([0, 3000, 10**9]),
)
def test_whatever_happens_to_workers_the_results_are_those_of_one_operator(seed, policy, rows, fates, least):
    plan, store, workers = plan_of(policy), StateStore(), [JoinHomes(), JoinHomes()]
    expected = straight(plan, seed, len(fates), rows)
    with patch.object(window_log, "LEAST_LOG_BYTES", least):
        for fate, (parts, watermark_ms), wanted in zip(fates, entries(seed, len(fates), rows), expected, strict=True):
            if fate == "other":  # the next worker has no operator, and asks the one that has it
                workers.reverse()
            elif fate == "lost":
                close(workers)
            elif fate == "failed":  # a task whose state is not written: its operator has gone too far
                step(workers[0], plan, store, parts, watermark_ms, commit=False)
            found, _ = step(workers[0], plan, store, parts, watermark_ms)
            assert Counter(found) == Counter(wanted)
    close(workers)


def close(workers):
    for worker in workers:
        for home in worker._homes.values():
            home.close()
        worker._homes.clear()


def test_another_worker_is_asked_instead_of_the_log():
    plan, store, workers = plan_of(), StateStore(), [JoinHomes(), JoinHomes()]
    for number, (parts, watermark_ms) in enumerate(entries(1, 4, 20)):
        _, outcome = step(workers[number % 2], plan, store, parts, watermark_ms)
        assert not outcome.restored
    assert [len(worker._homes) for worker in workers] == [1, 0]
    close(workers)
    parts, watermark_ms = next(entries(2, 1, 20))
    _, outcome = step(workers[1], plan, store, parts, watermark_ms)
    assert outcome.restored
    close(workers)


def test_a_worker_that_fails_when_it_is_asked_fails_the_task_and_the_next_one_restores():
    plan, store, workers = plan_of(), StateStore(), [JoinHomes(), JoinHomes()]
    all_entries, expected = list(entries(3, 3, 20)), list(straight(plan, 3, 3, 20))
    assert step(workers[0], plan, store, *all_entries[0])[0] == expected[0]
    with (
        patch.object(KeptJoin, "apply", side_effect=MemoryError("as if it were full")),
        pytest.raises(JoinFailed, match="could not join: MemoryError: as if it were full"),
    ):
        step(workers[1], plan, store, *all_entries[1])
    found, outcome = step(workers[1], plan, store, *all_entries[1])
    assert outcome.restored
    assert Counter(found) == Counter(expected[1])
    close(workers)


def test_an_operator_takes_only_its_next_turn():
    plan, store, homes = plan_of(), StateStore(), JoinHomes()
    parts, watermark_ms = next(entries(1, 1, 5))
    step(homes, plan, store, parts, watermark_ms)
    home = next(iter(homes._homes.values()))
    with pytest.raises(JoinFailed, match="is not in the state its task expects"):
        next(home.run(Turn(LogEntry(parts, 0, "another stamp"), 1, "new", snapshot=False)))
    close([homes])


def test_the_log_grows_until_a_snapshot_replaces_it():
    plan, store, homes = plan_of(memory=300), StateStore(), JoinHomes()
    log, sizes = WindowLog(store), []
    with patch.object(window_log, "LEAST_LOG_BYTES", 40_000), patch.object(window_log, "CHUNK_BYTES", 10_000):
        for parts, watermark_ms in entries(4, 30, 100):
            before = log.header()
            step(homes, plan, store, parts, watermark_ms)
            header = log.header()
            brought = sum(len(content) for _, content in parts)
            if header.log_bytes:
                assert header.log_bytes == brought + (before.log_bytes if before else 0)
                assert header.snapshot_bytes == (before.snapshot_bytes if before else 0)
            else:
                assert header.chunks == -(-header.snapshot_bytes // 10_000) == len(store.values["snapshot"])
                assert not store.values["log"]
            sizes.append((header.snapshot_bytes, header.log_bytes))
    snapshots = [snapshot for snapshot, rest in sizes if not rest]
    assert 2 < len(snapshots) < 15
    assert all(rest <= max(snapshot, 40_000) for snapshot, rest in sizes)
    close([homes])


def test_packed_rows_are_the_rows_cut_by_key_and_unpacked_they_are_results():
    plan = plan_of(groups=(8, 1, 5, 0))
    contents = [content for parts, _ in entries(5, 3, 200) for side, content in parts if side == 0]
    batches = [read_message(content) for content in contents]
    packed = list(pack_rows(plan, 0, iter(batches)))
    assert all(batch.schema == PACKED for batch in packed)
    keys_of_group: dict[int, set[int]] = {}
    rows = []
    for batch in packed:
        assert batch["group"].to_pylist() == [8, 1, 5, 0]
        for row in batch.to_pylist():
            if row["rows"] is not None:
                part = read_message(row["rows"])
                keys_of_group.setdefault(row["group"], set()).update(part["k"].to_pylist())
                rows += part.to_pylist()
                assert part["id"].to_pylist() == sorted(part["id"].to_pylist()), "in the order of the stream"
    key = lambda row: row["id"]  # noqa: E731
    assert sorted(rows, key=key) == sorted((row for batch in batches for row in batch.to_pylist()), key=key)
    assert sum(len(keys) for keys in keys_of_group.values()) == len(set().union(*keys_of_group.values()))
    assert next(pack_rows(plan, 1, iter([])))["rows"].null_count == 4
    results = pa.RecordBatch.from_arrays([[1], pa.array([5], SIDE.field("at").type), [7],
                                          pa.array([6], SIDE.field("at").type), [8]], schema=plan.schema)  # fmt: skip
    given_out = pa.record_batch({"results_packed": [write_message(results), None, write_message(results)]})
    assert list(unpack_rows(plan, iter([given_out]))) == [results, results]


@pytest.mark.parametrize("module", [key_partitions, kept_join, window_packing, window_plan])
def test_the_examples_in_docstrings_run(module):
    found = doctest.testmod(module)
    assert found.attempted > 0
    assert found.failed == 0


def test_a_state_of_another_plan_is_refused():
    plan = plan_of()
    plan.require_same(json.dumps(plan_of().description))
    with pytest.raises(InvalidArgument, match=r"policy was life, is prob.*start the query with a new checkpoint"):
        plan.require_same(json.dumps(plan_of("life").description))
    with pytest.raises(InvalidArgument, match=r"window was \[30000, 30000\], is \[20000, 20000\]"):
        plan.require_same(json.dumps(plan_of(window="30 ms").description))
