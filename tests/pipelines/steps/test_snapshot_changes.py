"""Snapshots against the previous one, by brute force: new, changed, equal and deleted rows, and the new R."""

import math
from collections import Counter
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from semistream import SweepJoin
from semistream.pipelines.ledger.entries import TaskResult, WrittenFile
from semistream.pipelines.spec.row_rules import RowRule
from semistream.pipelines.steps.chain import ROW
from semistream.pipelines.steps.snapshot_changes import (
    BEFORE,
    MET,
    UPSERTS,
    ChangeChain,
    ChangesPlan,
    MetRows,
    end_snapshot,
    publish_snapshot,
    same_values,
)
from semistream.pipelines.tables.quarantine import INVALID_SCHEMA
from semistream.pipelines.tables.writer import TableLayout, TableWriter
from semistream.pipelines.task.batch_task import SINCE, BatchTask, TaskPlan
from semistream.relation import Relation, Transaction

KINDS = ("inserted", "updated", "unchanged", "deleted")
SCHEMAS = {
    "string": pa.schema([("k", pa.string()), ("v", pa.float64()), ("w", pa.string())]),
    "int": pa.schema([("k", pa.int64()), ("v", pa.float64()), ("w", pa.string())]),
}


def compare(folder, relation, schema, tasks, number, emit=KINDS, rules=()):
    """Compare one snapshot, in parts as tasks have them; return the rows, their counts, and R after it."""
    stream = pa.schema([*schema, (ROW, pa.int64()), (SINCE, pa.int64())])
    joined = TableLayout(str(folder / "out"), schema.append(pa.field("change", pa.string())))
    rows_folder = folder / "rows"
    rows_folder.mkdir(exist_ok=True)
    plan = ChangesPlan(len(stream), f"k{BEFORE}", ("v", "w"), "change", emit)
    works = []
    for part, rows in enumerate(tasks):
        join = SweepJoin(
            relation, stream, on={"k": "k"}, how="left", columns=schema.names, suffix=BEFORE, memory="256KB"
        )
        met, upserts = MetRows(relation), TableWriter(TableLayout(str(rows_folder), schema), f"{number}-{part}-upserts")
        join.watch_joined(met.meet)
        chain = ChangeChain(plan, join, schema, upserts)
        tables = {"joined": joined, "invalid": TableLayout(str(folder / "invalid"), INVALID_SCHEMA)}
        task_plan = TaskPlan(
            number, 0.0, 0, schema, rules, tables, (stream,), ("r",), (1,), (math.inf,), str(rows_folder)
        )
        task = BatchTask(task_plan, chain)
        columns = [pa.array([row[i] for row in rows], field.type) for i, field in enumerate(schema)]
        batch = pa.RecordBatch.from_arrays([*columns, pa.nulls(len(rows), pa.string())], names=[*schema.names, "raw"])
        assert list(task.run([batch])) == []
        work = task.work()
        work.files[UPSERTS] = upserts.close()
        met.save(rows_folder / f"{number}-{part}.npy")
        work.files[MET] = [WrittenFile(f"{number}-{part}.npy", met.bits.size, 0)]
        work.counts.update(chain.counts)
        works.append(work)
    total = end_snapshot(relation, plan, TaskResult.total(works), rows_folder, joined, f"{number}-0")
    assert sum(total.outcomes.values()) == total.rows_in == sum(map(len, tasks))
    transaction = Transaction("p", number)
    after = publish_snapshot(relation, total, rows_folder, transaction)
    assert publish_snapshot(relation, total, rows_folder, transaction).version == after.version
    files = total.files.get("joined", [])
    told = [row for file in files for row in pa.parquet.read_table(Path(joined.path) / file.path).to_pylist()]
    return [tuple(map(_plain, row.values())) for row in told], total, after


def _plain(value):
    return "NaN" if isinstance(value, float) and math.isnan(value) else value


def contents(relation):
    return {row["k"]: (_plain(row["v"]), row["w"]) for row in relation.scan().read_all().to_pylist()}


payloads = st.tuples(st.sampled_from([None, math.nan, 0.0, 1.5]), st.sampled_from([None, "", "x", "é"]))


@st.composite
def snapshots(draw):
    kind = draw(st.sampled_from(list(SCHEMAS)))
    keys = st.integers(-3, 6) if kind == "int" else st.sampled_from(["", "a", "aa", "b" * 40, "b" * 39 + "c", "é", "z"])
    return kind, draw(st.lists(st.dictionaries(keys, payloads, max_size=8), min_size=1, max_size=3))


@settings(deadline=None, max_examples=10)
@given(given=snapshots(), cut=st.integers(0, 8))
@example(given=("int", [{1: (math.nan, None), 2: (0.0, "x")}, {1: (math.nan, None), 2: (None, "x")}, {}]), cut=1)
def test_snapshots_are_told_by_the_one_before(tmp_path_factory, given, cut):
    kind, states = given
    folder, schema = tmp_path_factory.mktemp("changes"), SCHEMAS[kind]
    relation = Relation.build(schema.empty_table(), folder / "r", key="k", page_bytes=512)
    before = {}
    for number, state in enumerate(states, start=1):
        rows = [(key, *payload) for key, payload in state.items()]
        found, total, relation = compare(folder, relation, schema, [rows[:cut], rows[cut:]], number)
        now = {key: tuple(map(_plain, payload)) for key, payload in state.items()}
        expected = Counter()
        for key in now.keys() | before.keys():
            if key not in now:
                expected[key, *before[key], "deleted"] += 1
            else:
                kind_now = "inserted" if key not in before else "unchanged" if now[key] == before[key] else "updated"
                expected[key, *now[key], kind_now] += 1
        assert Counter(found) == expected
        counted = Counter(row[-1] for row in expected.elements())
        assert {each: total.counts.get(each, 0) for each in KINDS} == {each: counted[each] for each in KINDS}
        assert contents(relation) == now
        before = now


def test_only_the_requested_kinds_are_emitted_and_all_are_counted(tmp_path):
    schema = SCHEMAS["int"]
    relation = Relation.build(schema.empty_table(), tmp_path / "r", key="k")
    _, _, relation = compare(tmp_path, relation, schema, [[(1, 1.0, "a"), (2, 1.0, "b"), (3, 1.0, "c")]], 1)
    rows = [[(1, 1.0, "a"), (2, 9.0, "b"), (4, 1.0, "d")]]
    found, total, _ = compare(tmp_path, relation, schema, rows, 2, emit=("updated",))
    assert found == [(2, 9.0, "b", "updated")]
    assert total.counts == {"inserted": 1, "updated": 1, "unchanged": 1, "deleted": 1}
    assert total.outcomes["joined"] == 3


def test_a_snapshot_with_an_invalid_row_deletes_nothing(tmp_path):
    """The invalid row may be one of the rows without a match."""
    schema, rules = SCHEMAS["int"], (RowRule("v", most=5),)
    relation = Relation.build(schema.empty_table(), tmp_path / "r", key="k")
    _, _, relation = compare(tmp_path, relation, schema, [[(1, 1.0, "a"), (2, 1.0, "b"), (3, 1.0, "c")]], 1)
    found, total, relation = compare(
        tmp_path, relation, schema, [[(1, 2.0, "a"), (2, 9.0, "b"), (4, 1.0, "d")]], 2, rules=rules
    )
    assert Counter(row[-1] for row in found) == {"updated": 1, "inserted": 1}
    assert (total.counts["deleted"], total.counts["deletes_withheld"]) == (0, 2)
    assert set(contents(relation)) == {1, 2, 3, 4}
    found, total, relation = compare(tmp_path, relation, schema, [[(1, 2.0, "a"), (2, 2.0, "b"), (4, 1.0, "d")]], 3)
    assert Counter(row[-1] for row in found) == {"unchanged": 2, "updated": 1, "deleted": 1}
    assert set(contents(relation)) == {1, 2, 4}


def test_a_key_that_comes_twice_leaves_one_of_its_rows(tmp_path):
    schema = SCHEMAS["int"]
    relation = Relation.build(schema.empty_table(), tmp_path / "r", key="k")
    found, _, relation = compare(tmp_path, relation, schema, [[(1, 1.0, "a"), (1, 2.0, "b")], [(1, 3.0, "c")]], 1)
    assert len(found) == 3
    assert {row[-1] for row in found} == {"inserted"}
    assert relation.num_rows == 1
    assert contents(relation)[1] in {(1.0, "a"), (2.0, "b"), (3.0, "c")}
    found, _, relation = compare(tmp_path, relation, schema, [[]], 2)
    assert [row[-1] for row in found] == ["deleted"]
    assert relation.num_rows == 0


@pytest.mark.parametrize(
    ("type_", "left", "right"),
    [
        (pa.float32(), [math.nan, 0.0, None, 1.0], [math.nan, -0.0, None, 2.0]),
        (pa.string(), ["a", "", None, "a"], ["a", "", None, None]),
        (pa.binary(), [b"a", b"", None, b"x"], [b"a", b"", None, b"y"]),
        (pa.bool_(), [True, False, None, True], [True, False, None, False]),
        (pa.decimal128(5, 2), [1, 0, None, 2], [1, 0, None, None]),
        (pa.timestamp("us", "UTC"), [1, -1, None, 2], [1, -1, None, 3]),
        (pa.date32(), [1, -1, None, None], [1, -1, None, 3]),
    ],
)
def test_values_are_the_same_also_if_they_are_null_or_nan(type_, left, right):
    assert same_values(pa.array(left, type_), pa.array(right, type_)).tolist() == [True, True, True, False]
