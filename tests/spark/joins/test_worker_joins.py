"""The worker's side of a join, run without Spark: joins kept, joins dropped, and their cost."""

import pickle
import re
import socket

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from semistream.errors import NotARelation
from semistream.relation import BufferedDisk, Relation

pytest.importorskip("pyspark", reason="pip install 'semistream[spark]' to run these")

from semistream import EngineJoin, MeshJoin, ResidentJoin
from semistream.pipelines.plan.join_plan import JoinPlan
from semistream.pipelines.task.worker_joins import WorkerJoins
from semistream.spark.joins.join import join_partition

STREAM = pa.schema([("k", pa.int64())])


@pytest.fixture
def relation(tmp_path):
    return Relation.build(pa.table({"k": range(2000), "v": range(2000)}), tmp_path / "r", key="k", page_bytes=1024)


def plan_of(relation, *, on="k", where=None, how="inner", memory="200kB", operator=MeshJoin, disk="auto", **options):
    return JoinPlan.of(
        relation,
        STREAM,
        on=on,
        where=where,
        how=how,
        memory=memory,
        operator=operator,
        columns=None,
        suffix="_right",
        disk=disk,
        options=options,
    )


def batches(*groups):
    return iter([pa.record_batch({"c0": pa.array(keys, pa.int64())}) for keys in groups])


def run(plan, joins, *groups):
    return [row for batch in join_partition(plan, batches(*groups), joins) for row in batch.to_pylist()]


def operator_of(joins, plan, part=0):
    with joins.lend(plan) as worker_join:
        return worker_join.operator(part)


def test_equal_plans_share_one_engine_and_every_task_drains_it(relation):
    joins = WorkerJoins()
    assert run(plan_of(relation), joins, [1, 2], [3]) == [{"k": k, "v": k} for k in (1, 2, 3)]
    first = operator_of(joins, plan_of(relation))
    assert first.stats.rows_waiting == 0
    assert run(plan_of(relation), joins, [7]) == [{"k": 7, "v": 7}]
    assert operator_of(joins, plan_of(relation)) is first
    assert len(joins) == 1


@pytest.mark.parametrize("operator", [MeshJoin, ResidentJoin, "auto"])
def test_the_disk_is_the_one_that_the_plan_names(relation, operator, monkeypatch):
    opened, disk = [], BufferedDisk()
    monkeypatch.setattr(Relation, "disk", lambda self, named="auto": opened.append(named) or disk)
    plan = pickle.loads(pickle.dumps(plan_of(relation, operator=operator, disk="buffered", memory="1MB")))
    opened.clear()
    assert run(plan, WorkerJoins(), [1, 2]) == [{"k": k, "v": k} for k in (1, 2)]
    assert {named for named in opened if named is not disk} == {"buffered"}


def test_conditions_travel_and_equal_ones_share_one(relation):
    joins = WorkerJoins()
    where = [pc.field("v") > 3, "s.k >= r.v"]
    plans = [pickle.loads(pickle.dumps(plan_of(relation, on=None, where=list(where)))) for _ in range(2)]
    assert plans[0] == plans[1]
    assert hash(plans[0]) == hash(plans[1])
    assert plan_of(relation, on=None, where=where[1:]) != plans[0]
    for plan in plans:
        assert run(plan, joins, [5]) == [{"k": 5, "k_right": 4, "v": 4}, {"k": 5, "k_right": 5, "v": 5}]
    assert len(joins) == 1


def test_an_engine_stays_within_the_plans_memory(relation):
    joins, plan = WorkerJoins(), plan_of(relation, memory="60kB")
    for start in range(0, 4000, 1000):
        run(plan, joins, range(start, start + 1000))
    stats = operator_of(joins, plan).stats
    assert stats.rows_done == 4000
    assert 0 < stats.peak_bytes <= stats.budget_bytes == 60_000


def test_no_more_engines_are_kept_than_allowed_and_the_oldest_goes(relation):
    joins = WorkerJoins(kept=2)
    plans = [plan_of(relation, memory=memory) for memory in (200_000, 300_000, 400_000)]
    kept = [operator_of(joins, plan) for plan in plans]
    assert len(joins) == 2
    assert [operator_of(joins, plan) for plan in plans[1:]] == kept[1:]
    assert operator_of(joins, plans[0]) is not kept[0]


class FailsOnce(MeshJoin):
    failed: list["FailsOnce"] = []  # noqa: RUF012 (what failed, for the test to see)

    def drain(self):
        if not self.failed:
            self.failed.append(self)
            raise OSError("the disk is gone")
        yield from super().drain()


def test_an_engine_whose_operator_raised_is_never_used_again(relation):
    joins, plan = WorkerJoins(), plan_of(relation, operator=FailsOnce)
    with pytest.raises(OSError, match="the disk is gone"):
        run(plan, joins, [1, 2])
    assert len(joins) == 0
    assert run(plan, joins, [5]) == [{"k": 5, "v": 5}]
    assert operator_of(joins, plan) is not FailsOnce.failed[0]


def test_an_engine_of_an_abandoned_task_is_never_used_again(relation):
    joins, plan = WorkerJoins(), plan_of(relation)
    results = join_partition(plan, batches(range(500)), joins)
    next(results)
    results.close()
    assert len(joins) == 0
    assert run(plan, joins, [5]) == [{"k": 5, "v": 5}]


def test_a_task_sees_the_version_that_is_current_when_it_starts(relation):
    joins, plan = WorkerJoins(), plan_of(relation)
    assert run(plan, joins, [1]) == [{"k": 1, "v": 1}]

    def keys_and_an_update_between_them():
        yield from batches([1])
        relation.update(pa.table({"k": [1, 2], "v": [-1, -2]}))
        yield from batches([2])

    during = join_partition(plan, keys_and_an_update_between_them(), joins)
    assert [row for batch in during for row in batch.to_pylist()] == [{"k": 1, "v": 1}, {"k": 2, "v": 2}]
    assert run(plan, joins, [1, 2]) == [{"k": 1, "v": -1}, {"k": 2, "v": -2}]


def test_a_partition_without_rows_opens_no_operator(relation):
    joins, plan = WorkerJoins(), plan_of(relation)
    assert run(plan, joins) == []
    assert run(plan, joins, []) == []


def test_rows_of_several_parts_are_each_joined_with_theirs(relation):
    joins = WorkerJoins()
    plan = JoinPlan(**{**vars(plan_of(relation, how="left")), "cuts": (500, 1500)})
    keys = [0, 499, 500, 1499, 1500, 1999, 5000, -5]
    found = run(plan, joins, keys, [1600], keys[::-1])
    expected = [{"k": k, "v": k if 0 <= k < 2000 else None} for k in [*keys, 1600, *keys]]
    assert sorted(found, key=repr) == sorted(expected, key=repr)
    assert operator_of(joins, plan, 2).relation.num_pages < relation.num_pages


def test_a_relation_is_held_in_memory_while_it_fits_and_swept_when_it_has_outgrown_it(relation):
    plan, joins = plan_of(relation, operator="auto", memory="400kB"), WorkerJoins()
    assert run(plan, joins, [1, 5000]) == [{"k": 1, "v": 1}]
    held = operator_of(joins, plan)
    assert isinstance(held, ResidentJoin)
    relation.update(pa.table({"k": [1], "v": [-1]}))
    assert run(plan, joins, [1]) == [{"k": 1, "v": -1}]
    assert operator_of(joins, plan) is held
    relation.refreshed().update(pa.table({"k": range(2000, 40_000), "v": range(2000, 40_000)}))
    assert run(plan, joins, [1, 39_999]) == [{"k": 1, "v": -1}, {"k": 39_999, "v": 39_999}]
    assert isinstance(operator_of(joins, plan), EngineJoin)
    relation.refreshed().update(deletes=pa.table({"k": range(2000, 40_000)}))
    assert run(plan, joins, [1, 39_999]) == [{"k": 1, "v": -1}]
    assert isinstance(operator_of(joins, plan), ResidentJoin)


def test_an_operator_that_was_named_is_taken_though_all_of_r_fits(relation):
    plan, joins = plan_of(relation, operator="engine", memory="400kB"), WorkerJoins()
    assert run(plan, joins, [1]) == [{"k": 1, "v": 1}]
    assert isinstance(operator_of(joins, plan), EngineJoin)


def test_a_worker_without_the_relation_names_its_host(relation):
    plan = plan_of(relation)
    relation.path.rename(relation.path.with_name("elsewhere"))
    message = rf"worker on {re.escape(socket.gethostname())} cannot open {re.escape(plan.path)}, which the driver could"
    with pytest.raises(NotARelation, match=message):
        run(plan, WorkerJoins(), [1])
