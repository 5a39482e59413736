"""SECURITY.md: the modes that it states are those of what is created, and the tests that it names exist."""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from semistream.cli.pipeline.commands import SPARK_LOG, prepare_log
from semistream.pipelines.ledger.entries import ArchivedBatch, ArchivedFile, BatchManifest, Plan, TaskResult
from semistream.pipelines.ledger.ledger import Ledger
from semistream.pipelines.tables.writer import TableLayout, TableWriter
from semistream.relation import Relation

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "SECURITY.md").read_text()

pytestmark = pytest.mark.skipif(os.name != "posix", reason="modes are of POSIX")


@pytest.fixture(params=[0o022, 0o077, 0o002])
def mask(request) -> Iterator[int]:
    before = os.umask(request.param)
    yield request.param
    os.umask(before)


def test_the_modes_of_what_is_created_are_by_the_mask(tmp_path, mask):
    folder = tmp_path / "all"
    relation = Relation.build(pa.table({"k": [1, None], "v": ["a", "b"]}), folder / "r", key="k")
    relation.update(upserts=pa.table({"k": [1], "v": ["c"]}))
    with Ledger.open(folder / "c", "p") as ledger:
        ledger.write_plan(Plan(0, 0, {}, 1.0))
        ledger.write_prepared(BatchManifest(0, TaskResult(), []))
        ledger.write_archived(ArchivedBatch(0, [ArchivedFile("a", 1, 0)], 1, 1.0, 0, 0))
        ledger.write_update("r", 1, {})
    writer = TableWriter(
        TableLayout(str(folder / "t"), pa.schema([("k", pa.int64()), ("p", pa.string())]), ("p",)), "x"
    )
    writer.write(pa.record_batch({"k": [1], "p": ["a"]}))
    assert writer.close()
    log = prepare_log(folder / "c")
    found = {path: stat.S_IMODE(path.stat().st_mode) for path in folder.rglob("*")}
    assert found.pop(log) == 0o600
    assert len(found) > 15
    for path, mode in found.items():
        assert mode == (0o777 if path.is_dir() else 0o666) & ~mask, path


def test_a_log_from_before_is_kept_as_it_is(tmp_path):
    (tmp_path / SPARK_LOG).write_text("before")
    assert prepare_log(tmp_path).read_text() == "before"


def test_the_page_is_one_page_and_names_tests_that_exist():
    assert len(TEXT.split()) < 1000
    named = re.findall(r"`(tests/[\w/.]+)`", TEXT)
    assert len(named) >= 8
    assert all((ROOT / name).exists() for name in named)
    for page in ("README.md", "docs/architecture.md", "docs/cluster.md"):
        assert "SECURITY.md" in (ROOT / page).read_text(), page


def test_it_invents_no_address():
    assert not re.search(r"[\w.]+@[\w.]+", TEXT)
    assert "private vulnerability reporting" in TEXT
