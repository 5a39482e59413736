"""A worker's part of a batch with shed rows: it follows the decision, and a repair completes it."""

from __future__ import annotations

import shutil
from collections import Counter
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from semistream.budget import MemoryBudget
from semistream.errors import InvalidArgument, PipelineError
from semistream.pipelines.inputs.shed_archive import ArchiveSplit, archive_schema
from semistream.pipelines.inputs.splits import SourceSplit
from semistream.pipelines.ledger.entries import ArchivedFile
from semistream.pipelines.overload.row_values import ValuedRows
from semistream.pipelines.overload.task_shedding import ROWS_PART, TaskShedding, summarize_inputs
from semistream.pipelines.spec.row_rules import RowRule
from semistream.pipelines.tables.writer import TableLayout
from semistream.pipelines.task.batch_task import BatchTask
from semistream.shedding import STRATEGIES, MatchCounts, batch_seed
from tests.pipelines.broken_files import break_pages
from tests.pipelines.steps.chain_model import PAIRS, SOURCE, Step, build_relations
from tests.pipelines.test_batch_task import read, task_plan

STEP = Step(1, "a", "inner")
RESULTS = Counter(key for key, _ in PAIRS[1])
NAMES = ["keep_w", "sample_w", "top_w", "cluster_sampling"]
AT, GOAL_S = 1000.0, 30.0

rows_of = st.lists(st.tuples(st.one_of(st.none(), st.integers(0, 4)), st.integers(0, 9)), max_size=12)


@pytest.fixture(scope="module")
def relations(tmp_path_factory):
    return build_relations(tmp_path_factory.mktemp("relations"))


def valued(relations, **changes):
    relation = relations[1]
    counts = MatchCounts.of(relation, MemoryBudget("1MB"))
    given = ValuedRows(str(relation.path), relation.version, ("a",), 1 << 20, counts.unique)
    return replace(given, **changes)


def inputs_of(folder, files, partition):
    """Splits of files with some rows each, and Spark's rows in two batches."""
    inputs = []
    for part, stream in enumerate(files):
        path = folder / f"{part}.parquet"
        pq.write_table(pa.table(_columns(stream)), path)
        inputs.append(SourceSplit(str(path), (0,), 1, rows=len(stream), part=part, came_ms=990_000 + part))
    half = len(partition) // 2
    for stream in (partition[:half], partition[half:]):
        columns = _columns(stream)
        raw, came = pa.nulls(len(stream), pa.string()), pa.array([995_000] * len(stream), pa.int64())
        inputs.append(pa.record_batch({**columns, "raw": raw, "came": came}))
    return inputs


def _columns(stream):
    return {name: pa.array([row[i] for row in stream], pa.int64()) for i, name in enumerate("ab")}


def decide(shedding, name, inputs, w):
    strategy = STRATEGIES[name]()
    asked = shedding if name in ("top_w", "cluster_sampling") else replace(shedding, valued=None)
    decision = strategy.decide(summarize_inputs(asked, strategy, inputs, 0), w, batch_seed("p", 7))
    return replace(shedding, decision=decision.to_json())


def run(folder, relations, shedding, inputs, batch=7, rules=(), routed=None, takes_copies=False):
    plan, chain = task_plan(folder, [STEP], relations, at=AT, batch=batch, rules=rules)
    partition_by = ("shed_by", "batch_id")
    archive = TableLayout(str(folder / "shed"), archive_schema(SOURCE), partition_by, takes_copies=takes_copies)
    plan = replace(plan, tables={**plan.tables, "shed": archive}, shedding=shedding, routed=routed)
    task = BatchTask(plan, chain)
    assert list(task.run(inputs)) == []
    return task.work()


def ends(folder, works):
    """Rows by where they ended."""
    joined = Counter((row["a"], row["b"], row["v1"]) for row in read(folder, "joined", works))
    unmatched = Counter((row["a"], row["b"]) for row in read(folder, "unmatched", works))
    return joined, unmatched


@settings(deadline=None, max_examples=30)
@given(
    files=st.lists(rows_of, max_size=3),
    partition=rows_of,
    name=st.sampled_from(NAMES),
    w=st.integers(0, 30),
)
def test_exactly_w_rows_go_on_and_a_repair_makes_the_tables_whole(
    tmp_path_factory, relations, files, partition, name, w
):
    folder = tmp_path_factory.mktemp("task")
    inputs = inputs_of(folder, files, partition)
    bare = TaskShedding("p", GOAL_S, AT, SOURCE, valued=valued(relations))
    whole = run(folder / "whole", relations, bare, inputs)
    assert whole.outcomes["shed"] == 0
    shedding = decide(bare, name, inputs, w)
    work = run(folder / "shed", relations, shedding, inputs)
    rows = [row for stream in (*files, partition) for row in stream]
    shed = read(folder / "shed", "shed", [work])
    assert work.rows_in == sum(work.outcomes.values()) == len(rows)
    assert work.outcomes["shed"] == len(shed) == max(len(rows) - w, 0)
    assert sum(work.arrivals.values()) == len(rows) - len(shed)
    assert len({row["row_id"] for row in shed}) == len(shed)
    again = run(folder / "again", relations, shedding, inputs)
    assert Counter(map(_key, read(folder / "again", "shed", [again]))) == Counter(map(_key, shed))
    lost = sum(RESULTS[row["a"]] for row in shed)
    assert (work.counts.get("missing_low", 0), work.counts.get("missing_high", 0)) == (lost, lost)
    if name == "top_w":
        gone = Counter(RESULTS[row["a"]] for row in shed)
        least = sorted(RESULTS[a] for a, _ in rows)[: len(shed)]
        assert gone == Counter(least), "rows with more results were shed"
    repaired = [ArchivedFile(file.path, file.rows, 7) for file in work.files["shed"]]
    split = ArchiveSplit(str(folder / "shed" / "shed"), tuple(repaired))
    repair = run(folder / "shed", relations, bare, [split], batch=8)
    assert (repair.rows_in, repair.outcomes["shed"], repair.arrivals) == (len(shed), 0, {})
    assert ends(folder / "shed", [work, repair]) == ends(folder / "whole", [whole])


def _key(row):
    return (row["row_id"], row["a"], row["b"], row["came_at"])


def test_rows_tell_when_they_came_and_whose_they_were(tmp_path, relations):
    inputs = inputs_of(tmp_path, [[(0, 1)]], [(2, 3), (1, 1)])
    bare = TaskShedding("p", GOAL_S, AT, SOURCE, valued=valued(relations))
    work = run(tmp_path / "t", relations, decide(bare, "keep_w", inputs, 0), inputs)
    shed = {row["row_id"]: row for row in read(tmp_path / "t", "shed", [work])}
    assert set(shed) == {0, ROWS_PART << 40, (ROWS_PART << 40) + 1}
    assert [round(shed[i]["came_at"].timestamp() * 1000) for i in sorted(shed)] == [990_000, 995_000, 995_000]
    assert [file.partition for file in work.files["shed"]] == [{"shed_by": "p", "batch_id": "7"}]
    assert work.arrivals == {}


def test_the_wait_of_the_first_shed_row_is_reported(tmp_path, relations):
    inputs = inputs_of(tmp_path, [[(0, 1)], [(0, 2)]], [(2, 3), (1, 1)])
    bare = TaskShedding("p", GOAL_S, AT, SOURCE, valued=valued(relations))
    assert run(tmp_path / "none", relations, bare, inputs).peaks == {}
    work = run(tmp_path / "all", relations, decide(bare, "keep_w", inputs, 0), inputs)
    assert work.peaks["shed_age_ms"] == 1_000_000 - 990_000
    ahead = [replace(inputs[0], came_ms=2_000_000)]  # by a clock that jumped
    assert run(tmp_path / "ahead", relations, decide(bare, "keep_w", ahead, 0), ahead).peaks["shed_age_ms"] == 0


def test_an_archive_that_a_worker_cannot_write_ends_its_task_and_leaves_no_file(tmp_path, relations):
    inputs = inputs_of(tmp_path, [[(1, 1), (2, 2), (3, 3)]], [(2, 3), (1, 1)])
    bare = TaskShedding("p", GOAL_S, AT, SOURCE, valued=valued(relations))
    folder = tmp_path / "t"
    run(folder, relations, bare, inputs)
    before = sorted(folder.rglob("*.parquet"))
    shutil.rmtree(folder / "shed", ignore_errors=True)
    (folder / "shed").write_text("in the way")
    with pytest.raises(PipelineError, match=r"shed.* cannot be written"):
        run(folder, relations, decide(bare, "keep_w", inputs, 2), inputs, batch=8)
    assert sorted(folder.rglob("*.parquet")) == before


def test_invalid_rows_are_refused_and_never_shed(tmp_path, relations):
    inputs = inputs_of(tmp_path, [[(0, n) for n in range(8)]], [(2, n) for n in range(8)])
    bare = TaskShedding("p", GOAL_S, AT, SOURCE, valued=valued(relations))
    rules = [RowRule("b", False, None, 3)]
    work = run(tmp_path / "t", relations, decide(bare, "sample_w", inputs, 4), inputs, rules=rules)
    assert work.outcomes["invalid"] == 8
    assert work.outcomes["shed"] + work.outcomes["joined"] == 8
    assert all(row["b"] <= 3 for row in read(tmp_path / "t", "shed", [work]))


def test_a_file_that_breaks_off_is_shed_as_far_as_it_goes(tmp_path, relations):
    path = tmp_path / "0.parquet"
    table = pa.table({"a": [0] * 40_000, "b": range(40_000)})
    pq.write_table(table, path, row_group_size=20_000, compression="snappy", use_dictionary=False)
    break_pages(path, group=1, column=0)
    splits = [SourceSplit(str(path), (group,), 1, rows=20_000, part=group) for group in (0, 1)]
    bare = TaskShedding("p", GOAL_S, AT, SOURCE, valued=valued(relations))
    work = run(tmp_path / "t", relations, decide(bare, "top_w", splits, 5_000), splits)
    assert (work.outcomes["invalid"], work.rows_in) == (1, 20_001)
    assert (work.outcomes["shed"], work.outcomes["joined"]) == (15_000, 5_000)


def test_a_batch_divided_differently_is_refused(tmp_path, relations):
    inputs = inputs_of(tmp_path, [], [(0, n) for n in range(10)])
    bare = TaskShedding("p", GOAL_S, AT, SOURCE, valued=valued(relations))
    decided = decide(bare, "keep_w", inputs, 4)
    for others in (inputs[:1], [*inputs, inputs[0]]):
        with pytest.raises(PipelineError, match="no longer has the 10 rows of the shedding decision"):
            run(tmp_path / "t", relations, decided, others)
        assert list((tmp_path / "t").rglob("*.parquet")) == []
    with pytest.raises(InvalidArgument, match="when the decision was made"):
        run(tmp_path / "t", relations, decide(bare, "top_w", inputs, 4), inputs[:1])


def test_unknown_missing_results_are_bounded(tmp_path, relations):
    inputs = inputs_of(tmp_path, [[(0, 1), (4, 1), (None, 1)]], [])
    for given_, expected in [
        (valued(relations, unique=True), {"missing_low": 0, "missing_high": 3}),
        (valued(relations, unique=True, least_results=1), {"missing_low": 3, "missing_high": 3}),
        (valued(relations, more_conditions=True), {"missing_low": 0, "missing_high": 2}),
        (valued(relations, least_results=1), {"missing_low": 4, "missing_high": 4}),
        (None, {"unvalued": 3}),
    ]:
        bare = TaskShedding("p", GOAL_S, AT, SOURCE, valued=given_)
        work = run(tmp_path / "t", relations, decide(bare, "keep_w", inputs, 0), inputs)
        assert work.counts == expected


def test_a_file_of_the_archive_that_is_gone_is_named(tmp_path, relations):
    split = ArchiveSplit(str(tmp_path), (ArchivedFile("gone.parquet", 5, 3),))
    bare = TaskShedding("p", GOAL_S, AT, SOURCE)
    with pytest.raises(PipelineError, match=r"gone\.parquet, 5 rows of the archive .* restore the file"):
        run(tmp_path / "t", relations, bare, [split])


def test_weights_of_rows(relations):
    from semistream.pipelines.overload.arrival_times import ArrivedRows
    from semistream.shedding import Kept, SampleDesign

    arrived = ArrivedRows(np.zeros(2, np.int64), np.arange(2), Kept(np.array([True, True]), np.array([0.25, 1.0])))
    weight, batch, row, drawn, spread = (each.to_pylist() for each in arrived.sample_columns(9, SampleDesign(5, 0.5)))
    assert (weight, batch, row, drawn, spread) == ([4.0, 1.0], [9, 9], [0, 1], [5, 5], [0.5, 0.5])
    whole = replace(arrived, kept=None).sample_columns(9, None)
    assert [each.to_pylist() for each in (whole[0], whole[3])] == [[1.0, 1.0], [0, 0]]
    assert replace(arrived, kept=None, repaired=True).sample_columns(9, None)[0].to_pylist() == [0.0, 0.0]
