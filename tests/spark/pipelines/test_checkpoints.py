"""Checkpoints and tables that do not belong together are refused, and so is a second run at the same time."""

import json
import shutil

import pytest

from semistream.errors import PipelineError, PipelineRunning
from semistream.spark.pipelines.pipeline import Pipeline
from tests.spark.pipelines.warehouse import Warehouse, orders

pytestmark = pytest.mark.spark


@pytest.fixture(scope="module")
def ran(spark, tmp_path_factory):
    """A warehouse whose pipeline has run, and its pipeline; the tables of a kind each."""
    warehouse = Warehouse(tmp_path_factory.mktemp("warehouse"))
    warehouse.put(orders(120), "0.parquet")
    spec = warehouse.spec()
    spec["unmatched"]["format"] = "parquet"
    Pipeline.from_dict(spec).run(spark, once=True)
    assert warehouse.table("sink").num_rows
    assert warehouse.table("unmatched").num_rows
    return warehouse, spec


@pytest.fixture
def refused(spark, ran, tmp_path):
    """Runs a changed pipeline with a copy of the checkpoint; returns the refusal."""
    warehouse, spec = ran
    checkpoint = tmp_path / "checkpoint"
    shutil.copytree(spec["checkpoint"], checkpoint)

    def run(**changes):
        before = {name: warehouse.table(name).num_rows for name in ("sink", "unmatched")}
        with pytest.raises(PipelineError) as error:
            Pipeline.from_dict({**spec, "checkpoint": str(checkpoint), **changes}).run(spark, once=True)
        assert {name: warehouse.table(name).num_rows for name in before} == before
        return str(error.value)

    return checkpoint, run


def test_a_second_run_at_the_same_time_is_refused(spark, ran):
    pipeline = Pipeline.from_dict(ran[1])
    with pipeline.started(spark), pytest.raises(PipelineRunning, match="already runs in process"):
        pipeline.run(spark, once=True)
    pipeline.run(spark, once=True)


def test_a_checkpoint_of_another_pipeline_is_refused(refused):
    assert "belongs to the pipeline 'orders', not to 'others'" in refused[1](name="others")


def test_a_checkpoint_of_another_format_is_refused(refused):
    checkpoint, run = refused
    identity = json.loads((checkpoint / "pipeline.json").read_text())
    (checkpoint / "pipeline.json").write_text(json.dumps({**identity, "format": 0}))
    assert "has format 0; this version reads 1" in run()


def test_entries_without_their_identity_are_refused(refused):
    checkpoint, run = refused
    (checkpoint / "pipeline.json").unlink()
    assert "has entries of an unknown pipeline" in run()


def test_a_damaged_entry_is_named(refused):
    checkpoint, run = refused
    (entry,) = (checkpoint / "batches").glob("*.prepared.json")
    entry.write_bytes(entry.read_bytes()[:40])
    assert str(entry) in run()


def test_spark_s_part_of_a_checkpoint_cannot_be_left_out(refused):
    checkpoint, run = refused
    shutil.rmtree(checkpoint / "spark")
    assert "all rows would be added twice" in run()


def test_the_ledger_s_part_of_a_checkpoint_cannot_be_left_out(refused):
    checkpoint, run = refused
    for part in ("batches", "updates", "rows"):
        shutil.rmtree(checkpoint / part)
    (checkpoint / "pipeline.json").unlink()
    assert "from another checkpoint" in run()


@pytest.mark.parametrize("table", ["sink", "unmatched"])
def test_a_table_with_rows_of_another_checkpoint_is_refused(refused, ran, tmp_path, table):
    others = {name: {**ran[1][name], "path": str(tmp_path / name)} for name in {"sink", "unmatched"} - {table}}
    message = refused[1](checkpoint=str(tmp_path / "new"), **others)
    assert str(ran[1][table]["path"]) in message
    assert "from another checkpoint" in message
