"""Waiting rows that go on, rows that change a relation, and output on the console."""

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from semistream.errors import InvalidArgument
from semistream.pipelines.ledger.entries import WaitingFile
from semistream.pipelines.spec.column_types import type_name
from semistream.pipelines.spec.pipeline_spec import TableSpec
from semistream.pipelines.steps.update_rows import UpdateRows, last_of_keys, without_key
from semistream.pipelines.tables.outbox import ConsoleTable
from semistream.pipelines.tables.table import Owner
from semistream.pipelines.tables.writer import TableWriter
from semistream.pipelines.task.waiting_rows import WaitingPolicy
from semistream.relation import Relation, Transaction

files = st.builds(
    WaitingFile,
    path=st.uuids().map(str),
    rows=st.just(1),
    link=st.integers(0, 1),
    origin=st.sampled_from("xyz"),
    since=st.sampled_from([10.0, 50.0]),
    version=st.sampled_from([None, 1, 2]),
)


@settings(deadline=None, max_examples=60)
@given(waiting=st.lists(files, max_size=8), now=st.sampled_from([60.0, 70.0, 200.0]), drains=st.booleans())
def test_all_files_of_an_origin_go_on_if_one_can(waiting, now, drains):
    policy = WaitingPolicy(versions=[2, 1], retry_s=[60.0, float("inf")])

    def goes_on(file):
        if file.version is None:
            return drains
        return file.version != (2, 1)[file.link] or (file.link == 0 and file.since + 60 <= now)

    origins = {file.origin for file in waiting if goes_on(file)}
    assert policy.taken(waiting, now, drains=drains) == [file for file in waiting if file.origin in origins]


def test_many_small_files_are_written_together():
    waiting = [WaitingFile(f"{i}", 1, 0, f"{i}", 0.0, version=1) for i in range(300)]
    policy = WaitingPolicy([1], [float("inf")])
    assert policy.taken(waiting, 1.0, drains=True) == waiting
    assert policy.taken(waiting, 1.0, drains=False) == []
    assert policy.taken(waiting[:256], 1.0, drains=True) == []


changes = st.lists(st.tuples(st.integers(0, 4), st.text("abé", max_size=2), st.booleans()), max_size=12)


@settings(deadline=None, max_examples=10)
@given(batches=st.lists(changes, max_size=3))
def test_the_last_row_of_a_key_counts(tmp_path_factory, batches):
    schema = pa.schema([("k", pa.int64()), ("v", pa.string())])
    relation = Relation.build(schema.empty_table(), tmp_path_factory.mktemp("updates") / "r", key="k")
    expected = {}
    for number, batch in enumerate(batches, start=1):
        for key, value, deletes in batch:
            expected.pop(key, None)
            if not deletes:
                expected[key] = value
        rows = pa.table({"k": [k for k, _, _ in batch], "v": [v for _, v, _ in batch]}, schema=schema)
        update = UpdateRows(rows, pa.array([deletes for _, _, deletes in batch], pa.bool_()))
        for _ in range(2):
            relation = relation.change(update.change, Transaction("p", number))
    assert {row["k"]: row["v"] for row in relation.scan().read_all().to_pylist()} == expected


@settings(deadline=None, max_examples=60)
@given(rows=st.lists(st.tuples(st.one_of(st.none(), st.integers(0, 2)), st.sampled_from(["a", None])), max_size=9))
def test_keys_of_several_columns(rows):
    table = pa.table(
        {"a": pa.array([a for a, _ in rows], pa.int64()), "b": pa.array([b for _, b in rows], pa.string())}
    )
    last = {row: i for i, row in enumerate(rows)}
    assert last_of_keys(table, ["a", "b"]).to_pylist() == sorted(last.values())
    assert pc.cast(without_key(table, ["a", "b"]), pa.int8()).to_pylist() == [int(None in row) for row in rows]


def test_the_console_shows_the_first_rows_once(tmp_path, capsys):
    schema = pa.schema([("id", pa.int64()), ("name", pa.string())])
    outbox = tmp_path / "env=test" / "outbox"
    console = ConsoleTable(TableSpec(format="console", rows=3), schema, Owner("p", "x"), outbox)
    console.open()
    writer = TableWriter(console.layout, "0")
    writer.write(pa.record_batch({"id": range(1200), "name": ["é", None] * 600}))
    written = writer.close()
    console.commit(0, written)
    assert capsys.readouterr().out == "batch 0: 1,200 rows\nid  name\n0   é\n1\n2   é\n"
    console.commit(0, written)
    assert capsys.readouterr().out == ""
    writer = TableWriter(console.layout, "1")
    writer.write(pa.record_batch({"id": [1], "name": ["x"]}))
    (left,) = writer.close()
    assert console.vacuum({left.path}) == []
    assert console.vacuum(set()) == [outbox / left.path]


def test_a_type_that_pipeline_files_do_not_know_is_named():
    with pytest.raises(InvalidArgument, match=r"uint32 is not a type of pipeline files, which support boolean, .*cast"):
        type_name(pa.uint32())
