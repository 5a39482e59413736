"""Reports of tasks and entries of the ledger are plain data: what others wrote is checked, and never run."""

import json
import pickle
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

import semistream
from semistream.errors import PipelineError, RelationError
from semistream.pipelines.ledger.entries import BatchManifest, Plan, TaskResult, WaitingFile, WrittenFile
from semistream.pipelines.ledger.ledger import Ledger
from semistream.pipelines.task.worker_task import read_work

FILES = {"joined": [WrittenFile("p=1/a.parquet", 3, 99, {"p": None}, {"numRecords": 3, "minValues": {"é": "ß"}}, 4, 5)]}
WAITING = WaitingFile("w.parquet", 2, 1, "w.parquet", since=12.5, version=3)
WORK = TaskResult(5, {"joined": 3, "pending": 2}, FILES, [WAITING], [], 0, {"n": 1}, {"b": 7}, {"12": 5})


class _Runs:
    """What a hostile pickle is: its loading runs a function."""

    def __reduce__(self):
        return Path.touch, (Path("unpickled"),)


def test_a_report_comes_back_as_it_was():
    assert read_work(WORK.to_json()) == WORK
    assert read_work(TaskResult().to_json()) == TaskResult()


def test_a_pickle_in_place_of_a_report_is_refused_and_not_run(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for content in (pickle.dumps(_Runs()), pickle.dumps(WORK)):
        with pytest.raises(PipelineError, match=r"a task's report of \d+ bytes cannot be read"):
            read_work(content)
    assert not list(tmp_path.iterdir())


def test_a_pickle_in_place_of_a_written_part_is_refused_and_not_run(tmp_path, monkeypatch):
    pytest.importorskip("pyspark", reason="pip install 'semistream[spark]' to run this")
    from semistream.relation.format.manifest import DataFile, WholeFile
    from semistream.relation.format.page_table import PageTable
    from semistream.spark.relation_builder import WrittenPart

    monkeypatch.chdir(tmp_path)
    ones = np.ones(2, np.int64)
    columns = {"file": ones, "offset": ones, "nbytes": ones, "rows": ones, "first_code": ones, "last_code": ones}
    table = PageTable.from_arrow(pa.table({**columns, "checksum": np.array([1, 2**64 - 1], np.uint64)}), [0])
    part = WrittenPart([DataFile("data/a", 9, 1, 8, 2**64 - 1)], table, WholeFile("data/n", 3, 4), 6)
    back = WrittenPart.from_bytes(part.to_bytes())
    assert replace(back, table=part.table) == part
    assert back.table.to_arrow().equals(part.table.to_arrow())
    for content in (pickle.dumps(_Runs()), part.to_bytes()[:-20], b""):
        with pytest.raises(RelationError, match=r"a task's result of \d+ bytes cannot be read"):
            WrittenPart.from_bytes(content)
    assert not list(tmp_path.iterdir())


WRONG = {
    "rows that are text": {"files": {"joined": [{"path": "a", "rows": "3", "nbytes": 1}]}},
    "rows below zero": {"files": {"joined": [{"path": "a", "rows": -3, "nbytes": 1}]}},
    "rows beyond 64 bits": {"files": {"joined": [{"path": "a", "rows": 10**30, "nbytes": 1}]}},
    "a file above the folder": {"files": {"joined": [{"path": "../a", "rows": 3, "nbytes": 1}]}},
    "an absolute file": {"waiting": [{"path": "/etc/passwd", "rows": 1, "link": 0, "origin": "a", "since": 1.0}]},
    "a file with a NUL": {"waiting": [{"path": "a\0b", "rows": 1, "link": 0, "origin": "a", "since": 1.0}]},
    "an unknown field": {"rows_out": 3},
    "a list of outcomes": {"outcomes": []},
    "a number as a count's name": {"outcomes": {"joined": 1.5}},
}


@pytest.mark.parametrize("wrong", WRONG.values(), ids=WRONG)
def test_a_wrong_field_is_refused_by_its_name(tmp_path, wrong):
    content = json.dumps({**json.loads(WORK.to_json()), **wrong}).encode()
    with pytest.raises(PipelineError, match=rf"cannot be read \({next(iter(wrong))}"):
        read_work(content)
    with Ledger.open(tmp_path, "p") as ledger:
        (tmp_path / "batches" / "000000000000.staged-0.json").write_bytes(content)
        with pytest.raises(PipelineError, match=r"staged-0\.json is damaged"):
            ledger.staged(0)


@pytest.mark.parametrize(
    "content",
    [
        b"[" * 100_000,
        b'{"a":' * 100_000,
        b'{"batch": ' + b"9" * 5000 + b"}",
        b'{"at": 1e999999}',
        b"\xed\xa0\x80",
        b"{}",
    ],
    ids=["brackets", "objects", "digits", "exponent", "surrogate", "empty"],
)
def test_hostile_text_is_refused_wherever_the_ledger_reads(tmp_path, content):
    with Ledger.open(tmp_path, "p") as ledger:
        for stage in ("planned", "shed", "staged-0", "prepared"):
            (tmp_path / "batches" / f"000000000000.{stage}.json").write_bytes(content)
        (tmp_path / "updates" / "r.json").write_bytes(content)
        for read in (ledger.plan, ledger.shed, ledger.staged, ledger.prepared, lambda _: ledger.update("r")):
            with pytest.raises(PipelineError, match="is damaged"):
                read(0)


def test_an_entry_torn_at_any_byte_is_refused(tmp_path):
    with Ledger.open(tmp_path, "p") as ledger:
        path = tmp_path / "batches" / "000000000000.prepared.json"
        ledger.write_prepared(BatchManifest(0, WORK, [WAITING]))
        whole = path.read_bytes()
        for end in range(0, len(whole.rstrip()), 7):
            path.write_bytes(whole[:end])
            with pytest.raises(PipelineError, match="is damaged"):
                ledger.prepared(0)


def test_files_that_the_ledger_did_not_write_are_no_batches(tmp_path):
    with Ledger.open(tmp_path, "p") as ledger:
        ledger.write_plan(Plan(0, 0, {}, 1.0))
        for name in ("1x.planned.json", "99999999999999999999.planned.json", "2.planned.json", "0.copy.planned.json"):
            (tmp_path / "batches" / name).write_text("{}")
        assert ledger.last_plan.batch == 0
        ledger.write_done(200)


def test_only_code_and_plans_of_this_user_are_unpickled():
    source = Path(semistream.__file__).parent
    found = {path.name for path in source.rglob("*.py") if re.search(r"pickle\.loads?\(|\.recv\(\)", path.read_text())}
    assert found == {
        "stored_code.py",  # kernels, from folders that only this user may write to
        "join_plan.py",  # an Arrow expression, within a plan that Spark itself pickles
    }
