"""explain() on Spark: memory per worker and in all, what workers make together, and what routing would change."""

import pyarrow as pa
import pytest

from semistream.costs.machine import Machine
from semistream.errors import BudgetError, InvalidArgument
from semistream.pipelines.plan.join_plan import JoinPlan
from semistream.relation import DiskCosts, Relation
from semistream.spark import explain, join
from semistream.spark.arrow_types import arrow_schema_of

pytestmark = pytest.mark.spark

SLOW = Machine("slow", DiskCosts(seek_s=0.008, transfer_s_per_byte=1e-8))


@pytest.fixture
def relation(tmp_path):
    columns = {f"c{i}": range(40_000) for i in range(8)}
    return Relation.build(pa.table({"k": range(40_000), **columns}), tmp_path / "r", key="k", page_bytes=4096)


@pytest.fixture
def stream(spark):
    return spark.range(3).withColumnRenamed("id", "k")


def test_memory_is_per_worker_and_added_up_over_the_slots(spark, stream, relation):
    slots = spark.sparkContext.defaultParallelism
    found = explain(stream, relation, on="k", memory="1MB", machine=SLOW)
    assert found.slots == slots
    assert found.worker.memory_bytes == 1_000_000
    assert found.total_memory_bytes == slots * 1_000_000
    text = str(found)
    assert f"{slots} task slots with 1 MB each: {slots} MB in all" in text
    assert found.worker.choice.operator in text
    assert "route='range' would give" in text


def test_routing_reads_less_where_the_disk_is_the_bound(stream, relation):
    """Each worker has only its part of R to read for as many rows, so that all together read R once."""
    found = explain(stream, relation, on="k", memory="1MB", batch_rows=200_000, machine=SLOW)
    assert found.worker.choice.bound_by == "disk"
    assert found.routed_rate > 1.5 * found.rate


def test_larger_micro_batches_share_more_reads(stream, relation):
    rates = [explain(stream, relation, on="k", memory="1MB", batch_rows=n, machine=SLOW).rate for n in (2_000, 50_000)]
    assert rates[0] < rates[1]


def test_nonsense_is_refused(stream, relation):
    with pytest.raises(InvalidArgument, match="rate is -5"):
        explain(stream, relation, on="k", rate=-5)
    with pytest.raises(InvalidArgument, match="batch_rows is -1"):
        explain(stream, relation, on="k", batch_rows=-1)
    with pytest.raises(InvalidArgument, match=r"batch_rows is .*; give a number above 0"):
        explain(stream, relation, on="k", batch_rows=-1)


def test_a_small_relation_needs_no_memory(stream, tmp_path):
    small = Relation.build(pa.table({"k": [1, 2], "v": ["a", "b"]}), tmp_path / "small", key="k")
    assert explain(stream, small, on="k").worker.memory_bytes == 1_000_000
    assert join(stream, small, on="k").count() == 2
    with pytest.raises(BudgetError, match="it needs at least"):
        join(stream, small, on="k", memory="10%")


@pytest.mark.parametrize("memory", ["1MB", "8MB"])
def test_the_operator_is_the_one_that_joins(stream, relation, memory):
    plan = JoinPlan.of(
        relation,
        arrow_schema_of(stream),
        on="k",
        how="inner",
        memory=memory,
        operator="auto",
        columns=None,
        suffix="_right",
        options={},
    )
    operator = plan.open_operator(relation)
    operator.close()
    assert operator.name == ("resident" if memory == "8MB" else "engine")
    for zipf in (0.0, 1.0):
        found = explain(stream, relation, on="k", memory=memory, zipf=zipf)
        assert found.worker.choice.operator == operator.name
        assert ("all of R fits in this memory" in str(found)) == (memory == "8MB")
