"""Vacuum removes exactly the files that no table shows and no restart needs."""

import shutil

import pyarrow as pa
import pytest
import yaml
from deltalake import DeltaTable

from semistream.errors import PipelineError
from semistream.pipelines.batch.housekeeping import vacuum_pipeline
from semistream.spark.pipelines.pipeline import Pipeline
from tests.spark.pipelines.warehouse import Warehouse, orders, rows

pytestmark = pytest.mark.spark


@pytest.fixture
def warehouse(tmp_path):
    return Warehouse(tmp_path)


def keyed(warehouse, format):
    """A pipeline with a phase for new keys; its table's partitions have names that need care."""
    keys = {"relation": str(warehouse.folder / "keys"), "key": "customer", "into": "customer_key"}
    spec = warehouse.spec({"surrogate_key": keys}, format=format)
    spec["sink"]["partition_by"] = ["customer"]
    file = warehouse.folder / "pipeline.yaml"
    file.write_text(yaml.safe_dump(spec))
    return spec, file


def named_orders(count, seed=0, first=0):
    """Orders of customers whose names contain characters that file names do not allow."""
    table = orders(count, seed, first)
    signs = ["a b", "c/d", "e%20f", "ü=1", "plain"]
    names = [f"{signs[int(name[1:]) % 5]} {seed}" for name in table.column("customer").to_pylist()]
    return table.set_column(2, "customer", pa.array(names))


@pytest.mark.parametrize("format", ["delta", "parquet"])
@pytest.mark.parametrize("point", ["after staged-0", "before commit of joined"])
def test_a_batch_that_was_cut_off_goes_on_after_a_vacuum(spark, warehouse, monkeypatch, format, point):
    first = named_orders(60)
    second = pa.concat_tables([named_orders(30, first=60), named_orders(30, seed=1, first=90)])  # half are known
    spec, file = keyed(warehouse, format)
    warehouse.put(first, "0.parquet")
    Pipeline.from_dict(spec).run(spark, once=True)

    def stop(passed):
        if passed == point:
            raise KeyError(point)

    with monkeypatch.context() as patch:
        patch.setattr("semistream.pipelines.ledger.ledger.reached", stop)
        patch.setattr("semistream.pipelines.batch.committer.reached", stop)
        warehouse.put(second, "1.parquet")
        with pytest.raises(PipelineError, match=point):
            Pipeline.from_dict(spec).run(spark, once=True)
    written = set((warehouse.folder / "tables").rglob("*.parquet"))
    orphans = [_twin(path) for path in sorted(written) if _is_a_worker_s(path)]
    assert orphans
    assert sorted(vacuum_pipeline(file)) == sorted(orphans)
    assert set((warehouse.folder / "tables").rglob("*.parquet")) == written
    Pipeline.from_dict(spec).run(spark, once=True)
    names = first.column_names
    assert rows(warehouse.table("sink"), *names) == rows(pa.concat_tables([first, second]), *names)
    assert vacuum_pipeline(file) == []


def test_files_that_an_older_version_names_and_those_of_others_stay(spark, warehouse):
    spec, file = keyed(warehouse, "delta")
    for i in range(2):
        warehouse.put(named_orders(40, first=40 * i), f"{i}.parquet")
        Pipeline.from_dict(spec).run(spark, once=True)
    path = warehouse.folder / "tables" / "sink"
    table = DeltaTable(str(path))
    before = rows(pa.table(table.to_pyarrow_table()))
    version = table.version()
    table.optimize.compact()
    other = path / "part-00000-of-another-writer.parquet"
    shutil.copy(next(path.rglob("*.parquet")), other)
    assert vacuum_pipeline(file) == []
    assert other.exists()
    assert rows(pa.table(DeltaTable(str(path), version=version).to_pyarrow_table())) == before


def _is_a_worker_s(path):
    """Return True if a file still has the name that its worker gave it."""
    return len(path.stem.rpartition("-")[2]) == 32


def _twin(path):
    """A file as a killed worker leaves it: half of its bytes, and a name that differs in the last part."""
    head = path.stem.rpartition("-")[0]
    twin = path.with_name(f"{head}-{'0' * 32}.parquet")
    twin.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    return twin
