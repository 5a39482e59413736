"""A worker's part of a batch: every row has one outcome, even with several results or a wait."""

from collections import Counter
from dataclasses import replace

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from semistream import MeshJoin
from semistream.errors import PipelineError
from semistream.pipelines.inputs.splits import RowsSplit, SourceSplit, share_among_owners
from semistream.pipelines.ledger.entries import TaskResult
from semistream.pipelines.spec.row_rules import RowRule
from semistream.pipelines.steps.chain import Chain
from semistream.pipelines.tables.quarantine import INVALID_SCHEMA
from semistream.pipelines.tables.writer import TableLayout
from semistream.pipelines.task.batch_task import BatchTask, TaskPlan, stopped_schema
from semistream.pipelines.task.routed_keys import RoutedKeys
from semistream.pipelines.task.row_accounts import OUTCOMES
from tests.pipelines.broken_files import break_pages
from tests.pipelines.steps.chain_model import SOURCE, Step, build_links, build_relations, follow

DAY_S = 86400.0


@pytest.fixture(scope="module")
def relations(tmp_path_factory):
    return build_relations(tmp_path_factory.mktemp("relations"))


def task_plan(folder, steps, relations, *, at=1000.0, batch=0, phase=0, retry_s=DAY_S, rules=()):
    links = build_links(steps, relations, MeshJoin)
    entering = tuple(join.stream_schema for _, join in links)
    leaving = links[-1][0].passed_on(links[-1][1].schema)
    joined = pa.schema([field for field in leaving if not field.name.startswith("__")])
    schemas = {"joined": joined, "invalid": INVALID_SCHEMA}
    schemas |= dict.fromkeys(["unmatched", "duplicate"], stopped_schema(SOURCE))
    plan = TaskPlan(
        batch, at, phase, SOURCE, tuple(rules),
        {name: TableLayout(str(folder / name), schema) for name, schema in schemas.items()},
        entering, tuple(link.label for link, _ in links), (1,) * len(steps), (retry_s,) * len(steps),
        str(folder / "rows"),
    )  # fmt: skip
    return plan, Chain(links)


def run(plan, chain, inputs):
    task = BatchTask(plan, chain)
    assert list(task.run(inputs)) == []
    return task.work()


def batch_of(stream):
    columns = [pa.array([row[i] for row in stream], pa.int64()) for i in range(2)]
    return pa.RecordBatch.from_arrays([*columns, pa.nulls(len(stream), pa.string())], names=["a", "b", "raw"])


def by_origin(folder, files):
    origins = {}
    for file in files:
        origins.setdefault(file.origin, []).append(file)
    return [RowsSplit(str(folder / "rows"), tuple(own)) for own in origins.values()]


def read(folder, name, works):
    tables = [pq.read_table(folder / name / file.path) for work in works for file in work.files.get(name, [])]
    return [row for table in tables for row in table.to_pylist()]


values = st.one_of(st.none(), st.integers(0, 5))
streams = st.lists(st.tuples(values, values), max_size=20)
STEPS = [Step(1, "a", "inner", "keep"), Step(0, "v1", "inner", "wait"), Step(2, "b", "first", "stall")]


@settings(deadline=None, max_examples=40)
@given(stream=streams, cut=st.integers(0, 20), second=st.sampled_from(["wait", "end", "keep", "stall"]))
def test_outcomes_add_up_where_rows_have_several_results(tmp_path_factory, relations, stream, cut, second):
    folder = tmp_path_factory.mktemp("task")
    steps = [STEPS[0], Step(0, "v1", "inner", second), STEPS[2]]
    plan, chain = task_plan(folder, steps, relations)
    parts = [part for part in (stream[:cut], stream[cut:]) if part]
    work = run(plan, chain, [batch_of(part) for part in parts])
    expected = [list(follow({"a": a, "b": b}, steps)) for a, b in stream]
    outcomes, stalled = dict.fromkeys(OUTCOMES, 0), 0
    for results in expected:
        ends = {"pending" if outcome == "waiting" else outcome for outcome, _, _ in results}
        if "stalled" in ends:
            stalled += 1
        else:
            outcomes[next(outcome for outcome in OUTCOMES if outcome in ends)] += 1
    assert (work.rows_in, work.outcomes, work.stalled_rows) == (len(stream), outcomes, stalled)
    assert sum(work.outcomes.values()) + work.stalled_rows == work.rows_in
    counted = Counter(outcome for results in expected for outcome, _, _ in results)
    for name in ("joined", "unmatched", "duplicate"):
        assert sum(file.rows for file in work.files[name]) == counted[name] == len(read(folder, name, [work]))
    assert sum(file.rows for file in work.waiting) == counted["waiting"]
    assert sum(file.rows for file in work.stalled) == counted["stalled"]
    assert len({file.origin for file in [*work.waiting, *work.stalled]}) <= 1


@settings(deadline=None, max_examples=15)
@given(streams=st.lists(streams, min_size=1, max_size=3))
def test_rows_that_waited_count_once_each_and_none_is_lost(tmp_path_factory, relations, streams):
    """Tasks stop rows before two links; later they all go on, over their days, and end in the unmatched table."""
    folder = tmp_path_factory.mktemp("task")
    steps = [Step(1, "a", "inner", "wait"), Step(0, "v1", "inner", "wait")]
    first = []
    for stream in streams:
        plan, chain = task_plan(folder, steps, relations)
        first.append(run(plan, chain, [batch_of(stream)] if stream else []))
    before = TaskResult.total(first)
    waiting = [file for work in first for file in work.waiting]
    plan, chain = task_plan(folder, steps, relations, at=1000.0 + DAY_S / 2, batch=1)
    again = run(plan, chain, by_origin(folder, waiting))
    assert again.rows_in == before.outcomes.get("pending", 0)
    assert again.outcomes["pending"] == again.rows_in  # nothing has changed, so each of them waits on
    assert {file.since for file in again.waiting} <= {1000.0}
    plan, chain = task_plan(folder, steps, relations, at=1000.0 + DAY_S, batch=2)
    last = run(plan, chain, by_origin(folder, again.waiting))
    assert (last.rows_in, last.outcomes["unmatched"], last.waiting) == (again.rows_in, again.rows_in, [])
    expected = Counter()
    for a, b in [row for stream in streams for row in stream]:
        for outcome, at, row in follow({"a": a, "b": b}, steps):
            expected[("joined", row["v0"]) if outcome == "joined" else ("unmatched", f"step {at}"), a, b] += 1
    found = Counter((("unmatched", row["stopped_at"]), row["a"], row["b"]) for row in read(folder, "unmatched", [last]))
    found.update((("joined", row["v0"]), row["a"], row["b"]) for row in read(folder, "joined", first))
    assert found == expected


def test_rows_that_waited_before_another_step_are_refused(tmp_path, relations):
    steps = [Step(0, "a", "inner", "wait")]
    plan, chain = task_plan(tmp_path, steps, relations)
    work = run(plan, chain, [batch_of([(1, 1)])])
    for other in ([Step(2, "b", "inner"), Step(0, "a", "inner")], steps):
        plan, chain = task_plan(tmp_path, other, relations)
        (file,) = work.waiting
        moved = type(file)(file.path, file.rows, 1, file.origin, file.since, file.version)
        with pytest.raises(PipelineError, match="1 rows wait before step 2 with the columns"):
            run(plan, chain, [RowsSplit(plan.rows_folder, (moved,))])


def test_rows_that_break_rules_or_cannot_be_read_are_refused_with_the_reason(tmp_path, relations):
    steps = [Step(0, "a", "inner")]
    plan, chain = task_plan(tmp_path, steps, relations, rules=[RowRule("a", not_null=True), RowRule("b", most=3)])
    rows = batch_of([(0, 1), (None, 9), (2, 9), (4, 1)])
    raw = pa.array([None, None, None, '{"a": broken'])
    work = run(plan, chain, [rows.set_column(2, "raw", raw)])
    assert (work.outcomes["joined"], work.outcomes["invalid"]) == (1, 3)
    found = {row["raw"]: row["reason"] for row in read(tmp_path, "invalid", [work])}
    assert found == {
        '{"a": null, "b": 9}': "a is null",
        '{"a": 2, "b": 9}': "b is above 3",
        '{"a": broken': "the row cannot be read with the source's columns and types",
    }


def test_a_file_that_breaks_off_is_read_as_far_as_it_goes(tmp_path, relations):
    path = tmp_path / "source.parquet"
    table = pa.table({"a": [0] * 40_000, "b": range(40_000)})
    pq.write_table(table, path, row_group_size=20_000, compression="snappy", use_dictionary=False)
    break_pages(path, group=1, column=1)
    plan, chain = task_plan(tmp_path, [Step(0, "a", "inner")], relations)
    work = run(plan, chain, [SourceSplit(str(path), (0,), 1), SourceSplit(str(path), (1,), 1)])
    assert (work.outcomes["joined"], work.outcomes["invalid"]) == (20_000, 1)
    (row,) = read(tmp_path, "invalid", [work])
    assert "the rest of the file, row groups 1 cannot be read" in row["reason"]
    assert str(path) in row["raw"]
    plan, chain = task_plan(tmp_path / "again", [Step(0, "a", "inner")], relations)
    with pytest.raises(PipelineError, match=r"source\.parquet cannot be read"):
        run(plan, chain, [SourceSplit(str(path), (1,), 1, stop=True)])
    assert list((tmp_path / "again").rglob("*.parquet")) == []


def test_values_that_have_no_place_in_the_source_s_type_are_refused_one_by_one(tmp_path, relations):
    plan, chain = task_plan(tmp_path, [Step(0, "a", "inner")], relations)
    table = pa.table({"a": pa.array([0, 2**63, 2, 4, 2**64 - 1], pa.uint64()), "b": [1, 2, 3, 4, 5]})
    pq.write_table(table, tmp_path / "s.parquet")
    work = run(plan, chain, [SourceSplit(str(tmp_path / "s.parquet"), (0,), 1)])
    assert (work.outcomes["joined"], work.outcomes["invalid"]) == (3, 2)
    assert [row["raw"] for row in read(tmp_path, "invalid", [work])] == [
        f'{{"a": {2**63}, "b": 2}}',
        f'{{"a": {2**64 - 1}, "b": 5}}',
    ]


@settings(deadline=None, max_examples=30)
@given(stream=streams, cuts=st.lists(st.integers(-1, 6), max_size=3, unique=True).map(sorted))
def test_tasks_that_each_read_all_rows_for_their_part_come_to_the_same_as_one(
    tmp_path_factory, relations, stream, cuts
):
    folder = tmp_path_factory.mktemp("owners")
    steps, rules = [Step(1, "a", "inner", "end")], [RowRule("b", most=4)]
    pq.write_table(pa.table(batch_of(stream).select(["a", "b"])), folder / "s.parquet")
    (folder / "broken.parquet").write_bytes(b"nothing")
    splits = [SourceSplit(str(folder / name)) for name in ("s.parquet", "broken.parquet")]
    routed = RoutedKeys(("a",), ("id",), (pa.int64(),), tuple(cuts))
    works = []
    for part in share_among_owners(splits, routed.num_parts):
        plan, chain = task_plan(folder, steps, relations, rules=rules)
        works.append(run(replace(plan, routed=routed), chain, part))
    together = TaskResult.total(works)
    alone = run(*task_plan(folder, steps, relations, rules=rules), splits)
    assert (together.rows_in, together.outcomes) == (alone.rows_in, alone.outcomes)
    for name in ("joined", "unmatched", "invalid"):
        own, other = (Counter(map(str, read(folder, name, each))) for each in (works, [alone]))
        assert own == other
