"""Records of shed rows in the ledger and the archive, and reports of them."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest
from deltalake import DeltaTable

from semistream.errors import PipelineError
from semistream.pipelines.inputs.shed_archive import archive_layout, archive_schema, archived_rows, leave_archive
from semistream.pipelines.ledger.entries import ArchivedBatch, ArchivedFile, Plan, ShedPlan
from semistream.pipelines.ledger.ledger import Ledger
from semistream.pipelines.open_tables import table_kind
from semistream.pipelines.overload.loss_report import Latencies, Missing
from semistream.pipelines.spec.pipeline_spec import TableSpec
from semistream.pipelines.tables.table import Owner
from semistream.pipelines.tables.writer import TableWriter

SOURCE = pa.schema([("id", pa.int64()), ("name", pa.string())])
FILES = [ArchivedFile("a.parquet", 3, 4), ArchivedFile("b.parquet", 2, 4)]
ARCHIVED = ArchivedBatch(4, FILES, 5, 100.0, 6, 10)


def test_entries_come_back_and_leave_when_nothing_is_left(tmp_path):
    with Ledger.open(tmp_path, "p") as ledger:
        assert (ledger.shed(0), ledger.archived, ledger.learnt) == (None, [], {})
        assert not (tmp_path / "archived").exists(), "nothing is made before it is needed"
        plan = Plan(0, None, {}, at=1.0, repaired=FILES)
        ledger.write_plan(plan)
        ledger.write_shed(0, ShedPlan(7, '{"kind": "cut"}'))
        ledger.write_archived(ARCHIVED)
        ledger.write_archived(replace(ARCHIVED, batch=2))
        ledger.write_done(0, {"seen": [[1.5, 10, 0]]})
    ledger = Ledger.read(tmp_path, "p")
    assert (ledger.plan(0), ledger.shed(0)) == (plan, ShedPlan(7, '{"kind": "cut"}'))
    assert [each.batch for each in ledger.archived] == [2, 4]
    assert ledger.learnt == {"seen": [[1.5, 10, 0]]}
    ledger.write_archived(replace(ARCHIVED, files=FILES[1:]))
    assert ledger.archived[1].rows == 2
    for _ in range(2):  # a replay does it again
        ledger.write_archived(replace(ARCHIVED, files=[]))
    assert [each.batch for each in ledger.archived] == [2]


@pytest.mark.parametrize("content", ["", "[]", "{}", '{"batch": 1}'])
def test_damaged_entries_are_named(tmp_path, content):
    with Ledger.open(tmp_path, "p") as ledger:
        ledger.write_archived(ARCHIVED)
        (tmp_path / "archived" / "000000000004.json").write_text(content)
        with pytest.raises(PipelineError, match=r"000000000004\.json is damaged"):
            _ = ledger.archived
        (tmp_path / "batches" / "000000000000.shed.json").write_text(content)
        with pytest.raises(PipelineError, match=r"000000000000\.shed\.json is damaged"):
            ledger.shed(0)


def test_plans_of_before_there_was_any_repair_are_read(tmp_path):
    with Ledger.open(tmp_path, "p") as ledger:
        ledger.write_plan(Plan(0, 0, {}, at=1.0))
        path = tmp_path / "batches" / "000000000000.planned.json"
        content = json.loads(path.read_text())
        del content["repaired"]
        path.write_text(json.dumps(content))
        assert ledger.plan(0) == Plan(0, 0, {}, at=1.0)


@pytest.mark.parametrize("format", ["delta", "parquet"])
def test_rows_leave_the_archive_once_and_those_of_others_stay(tmp_path, format):
    spec = TableSpec(format=format, path=tmp_path / "archive", partition_by=("shed_by", "batch_id"))
    tables = {}
    for pipeline in ("p", "q"):
        table = table_kind(spec, {})(spec, archive_schema(SOURCE), Owner(pipeline, "0" * 8), tmp_path)
        table.open()
        for batch in (4, 5):
            writer = TableWriter(archive_layout(table, 2), f"{batch:012d}-0")
            rows = pa.record_batch({"id": [batch, batch + 1], "name": ["x", None]}, schema=SOURCE)
            ids = np.arange(2)
            writer.write(archived_rows(rows, ids, ids, pipeline=pipeline, batch=batch, schema=table.layout.schema))
            written = writer.close()
            table.commit(batch, written)
            files = [ArchivedFile(path, 2, batch) for path in table.shown(batch, written)]
            tables[pipeline, batch] = (table, files)
            assert all((table.path / file.path).exists() for file in files)
    table, files = tables["p", 4]
    for _ in range(2):
        leave_archive(table, 9, files, [4])
    if format == "delta":
        left = DeltaTable(str(table.path)).to_pyarrow_table()
        found = set(zip(left.column("shed_by").to_pylist(), left.column("batch_id").to_pylist(), strict=True))
        assert found == {("p", 5), ("q", 4), ("q", 5)}
        leave_archive(*_of(tables["p", 5]), [])  # only a part of the batch is repaired
        assert DeltaTable(str(table.path)).to_pyarrow_table().num_rows == left.num_rows
    else:
        assert not (table.path / files[0].path).exists()
        others = [(t.path / f.path).exists() for key, (t, fs) in tables.items() if key != ("p", 4) for f in fs]
        assert others == [True] * 3


def _of(entry):
    return entry[0], 9, entry[1]


def test_missing_results_are_scaled_to_the_remaining_rows():
    assert Missing.of([]) == Missing(0, None, 0, 0)
    assert Missing.of([ARCHIVED]) == Missing(5, 100.0, 6, 10)
    part = replace(ARCHIVED, batch=6, files=FILES[:1], oldest=50.0)
    assert Missing.of([ARCHIVED, part]) == Missing(8, 50.0, 6 + 3, 10 + 6)
    assert Missing.of([replace(ARCHIVED, unvalued=1)]).results_high is None


def test_latencies_are_those_of_the_rows():
    arrivals = {"0": 1, "5": 98, "9": 1}
    assert Latencies.of(arrivals, 1000, now=10.0) == (5.0, 5.0, 5.0)
    assert Latencies.of({"0": 50, "5": 50}, 1000, now=10.0) == (5.0, 10.0, 10.0)
    assert Latencies.of({"99": 1}, 1000, now=10.0) == (0.0, 0.0, 0.0), "a clock that went back"
    assert Latencies.of({}, 1000, now=10.0) is None
