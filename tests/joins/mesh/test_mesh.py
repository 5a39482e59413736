"""MeshJoin as the paper describes it: Fig. 2, the cyclic scan, the counts of its cost model."""

from __future__ import annotations

import pyarrow as pa
import pytest

from semistream import MeshJoin, Relation
from semistream.errors import InvalidArgument
from semistream.relation import SimulatedDisk


def pages_relation(folder, pages: int, rows_per_page: int = 1) -> Relation:
    """A relation of exactly so many pages; row i of page p has the key p * rows_per_page + i."""
    rows = pages * rows_per_page
    filler = pa.array([b"\x00" * (3400 // rows_per_page)] * rows)
    relation = Relation.build(pa.table({"k": range(rows), "filler": filler}), folder / "r", key="k", page_bytes=4096)
    assert relation.num_pages == pages
    return relation


def one(key: int) -> pa.RecordBatch:
    return pa.record_batch({"s": pa.array([key], pa.int64())})


def test_operation_of_fig_2(tmp_path) -> None:
    """MESH Fig. 2: two pages; a tuple joins the page at hand, the next one, and is discarded."""
    relation = pages_relation(tmp_path, pages=2)
    join = MeshJoin(relation, one(0).schema, on={"s": "k"}, memory="1MB", columns=[], rows_per_step=1, pages_per_step=1)

    def step() -> list[int]:
        return [value for batch in join.step() for value in batch.column("s").to_pylist()]

    with join:
        assert list(join.push(one(1))) == []  # t = 0: s1 meets p1; its partner lies in p2
        assert step() == []
        assert join.stats.rows_waiting == 1
        assert list(join.push(one(0))) == []  # t = 1: p2 joins s1 and s2; s1 has met all of R and goes
        assert step() == [1]
        assert join.stats.rows_waiting == 1
        assert list(join.push(one(1))) == []  # t = 2: p1 again, joins s2 and s3; s2 goes
        assert step() == [0]
        assert join.stats.rows_waiting == 1
        assert [b.column("s").to_pylist() for b in join.flush()] == [[1]]
    assert join.stats.steps == 4
    assert join.stats.pages_read == 4


def test_expired_tuples_have_met_every_page_once(tmp_path) -> None:
    relation = pages_relation(tmp_path, pages=7, rows_per_page=3)
    schema = one(0).schema
    with MeshJoin(relation, schema, on={"s": "k"}, memory="1MB", columns=[], pages_per_step=2) as join:
        assert join.runs == 4  # 7 pages in runs of 2: the last is shorter
        for key in range(21):
            assert len(list(join.push(one(key)))) == 0
            list(join.step())
        list(join.flush())
        assert join.stats.matched == 21
        assert join.stats.outputs == 21


def test_w_tuples_are_admitted_between_two_iterations(tmp_path) -> None:
    relation = pages_relation(tmp_path, pages=3)
    batch = pa.record_batch({"s": pa.array(range(10), pa.int64())})
    with MeshJoin(relation, batch.schema, on={"s": "k"}, memory="1MB", rows_per_step=4, pages_per_step=1) as join:
        list(join.push(batch))
        assert join.stats.steps == 2  # 4, step, 4, step, 2
        assert join.stats.rows_in == 10


def test_counts_are_those_of_the_cost_model(tmp_path) -> None:
    """MESH (2): per iteration b page reads, w adds and expiries, and a probe per R-tuple in the b pages."""
    relation = pages_relation(tmp_path, pages=6, rows_per_page=4)
    disk = SimulatedDisk(seek_s=0.010, transfer_s=0.001)
    batch = pa.record_batch({"s": pa.array(range(24), pa.int64())})
    with MeshJoin(
        relation, batch.schema, on={"s": "k"}, memory="1MB", rows_per_step=8, pages_per_step=2, disk=disk
    ) as join:
        list(join.push(batch))
        list(join.flush())
        stats = join.stats
    scans_of_two_pages = 2 + 3  # the third packet enters after two iterations and stays for a whole scan
    assert stats.steps == scans_of_two_pages
    assert stats.pages_read == 2 * scans_of_two_pages
    assert stats.probes == 4 * 2 * scans_of_two_pages
    assert stats.inserts == stats.expiries == 24
    assert stats.outputs == 24
    seeks = 2  # to the first page, and back to it when the scan wraps
    assert (stats.pages_seek, stats.pages_sequential) == (seeks, 10 - seeks)
    assert disk.now_s == pytest.approx(seeks * 0.010 + 10 * 0.001)


def test_an_idle_join_reads_nothing(tmp_path) -> None:
    relation = pages_relation(tmp_path, pages=3)
    with MeshJoin(relation, one(0).schema, on={"s": "k"}, memory="1MB") as join:
        assert list(join.step()) == []
        assert list(join.flush()) == []
        assert join.stats.pages_read == 0


@pytest.mark.parametrize("option", ["rows_per_step", "pages_per_step"])
def test_options_below_one_are_refused(tmp_path, option: str) -> None:
    relation = pages_relation(tmp_path, pages=1)
    with pytest.raises(InvalidArgument, match=f"{option} is 0"):
        MeshJoin(relation, one(0).schema, on={"s": "k"}, memory="1MB", **{option: 0})
