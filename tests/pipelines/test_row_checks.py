"""Whatever goes wrong with a row, that row is invalid and no other."""

import json
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from semistream.pipelines.inputs.splits import SourceSplit
from semistream.pipelines.spec.row_rules import RowRule
from semistream.pipelines.steps.chain import Stopped
from semistream.pipelines.tables.quarantine import INVALID_SCHEMA, UNREADABLE
from semistream.pipelines.tables.writer import TableLayout
from semistream.pipelines.task.batch_task import BatchTask, TaskPlan
from semistream.pipelines.task.routed_keys import RoutedKeys
from semistream.pipelines.task.row_checks import why_invalid

FAILURES = [RecursionError, ValueError, OverflowError, pa.ArrowInvalid, pa.ArrowNotImplementedError, MemoryError]


@dataclass(frozen=True)
class Failing(RowRule):
    """A rule whose check fails on some values."""

    failure: type[Exception] = ValueError
    bad: tuple[int, ...] = ()

    def broken(self, values):
        if set(values.to_pylist()) & set(self.bad):
            raise self.failure("too much")
        return super().broken(values)


class Passing:
    """A chain in which every row is joined."""

    def push(self, rows):
        yield Stopped(rows, "joined", 0)

    def flush(self):
        return iter(())


@pytest.mark.parametrize("failure", FAILURES)
@settings(deadline=None, max_examples=20)
@given(values=st.lists(st.integers(0, 9), max_size=20), bad=st.sets(st.integers(0, 9), max_size=3))
def test_a_check_that_fails_on_a_row_refuses_that_row_only(failure, values, bad):
    rule = Failing("a", least=2, failure=failure, bad=tuple(bad))
    rows = pa.record_batch({"a": pa.array(values, pa.int64())})
    raw = pa.array([None if value != 9 else "nine" for value in values], pa.string())
    for value, reason in zip(values, why_invalid(rows, raw, [rule], None).to_pylist(), strict=True):
        if value in bad - {9}:
            assert "too much" in reason
        else:
            assert reason == (UNREADABLE if value == 9 else "a is below 2" if value < 2 else None)


def source_task(folder, schema, *, rules=(), routed=None):
    tables = {
        "joined": TableLayout(str(folder / "joined"), schema),
        "invalid": TableLayout(str(folder / "invalid"), INVALID_SCHEMA),
    }
    plan = TaskPlan(0, 1.0, 0, schema, rules, tables, (), (), (), (), str(folder / "rows"), routed=routed)
    return BatchTask(plan, Passing())


def written(task, folder, name):
    return [
        row for file in task.work().files.get(name, []) for row in pq.read_table(folder / name / file.path).to_pylist()
    ]


def test_text_that_is_not_utf_8_is_refused_row_by_row(tmp_path):
    schema = pa.schema([("id", pa.int64()), ("name", pa.string())])
    names = pa.array([b"a", b"\xff\xfe", None, "\udcff".encode("utf-8", "surrogatepass"), "é".encode()])
    offsets = pa.Array.from_buffers(pa.string(), 5, names.buffers())
    path = tmp_path / "0.parquet"
    pq.write_table(pa.table([pa.array(range(5)), offsets], schema=schema), path)
    task = source_task(tmp_path, schema)
    assert not list(task.run([SourceSplit(str(path))]))
    assert [row["id"] for row in written(task, tmp_path, "joined")] == [0, 2, 4]
    refused = written(task, tmp_path, "invalid")
    shown = [str(b"\xff\xfe"), str(b"\xed\xb3\xbf")]
    assert [json.loads(row["raw"]) for row in refused] == [{"id": i, "name": shown[i // 2]} for i in (1, 3)]
    assert all("UTF8" in row["reason"] for row in refused)


@pytest.mark.parametrize("owners", [None, 2])
def test_a_value_that_does_not_fit_is_told_once(tmp_path, owners):
    schema = pa.schema([("id", pa.int64()), ("at", pa.timestamp("us"))])
    path = tmp_path / "0.parquet"
    pq.write_table(pa.table({"id": [1, 2, 3, 4], "at": pa.array([0, 2**62, 5, -(2**62)], pa.timestamp("ms"))}), path)
    routed = None if owners is None else RoutedKeys(("id",), ("id",), (pa.int64(),), (3,))
    joined, invalid = [], []
    for owner in [None] if owners is None else range(owners):
        task = source_task(tmp_path / str(owner), schema, routed=routed)
        assert not list(task.run([SourceSplit(str(path), owner=owner)]))
        joined += written(task, tmp_path / str(owner), "joined")
        invalid += written(task, tmp_path / str(owner), "invalid")
    assert sorted(row["id"] for row in joined) == [1, 3]
    assert len(invalid) == 2
