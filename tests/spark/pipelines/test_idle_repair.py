"""``repair: idle``: the pipeline repairs rows shed in a burst by itself while it runs."""

from __future__ import annotations

import time

import pyarrow as pa
import pytest

from tests.spark.pipelines.overloads import archive_ids, archived_rows, believe_slow, overloaded
from tests.spark.pipelines.warehouse import orders, rows, star

pytestmark = pytest.mark.spark

_QUIET, _MOST_S = 3, 120


@pytest.mark.parametrize("format", ["delta", "parquet"])
def test_rows_shed_in_a_burst_come_back_between_the_batches_of_a_quiet_time(spark, warehouse, format):
    from semistream.spark.pipelines.pipeline import Pipeline

    sent, reports = [orders(600)], []
    warehouse.put(sent[0], "burst.parquet")
    patch = pytest.MonkeyPatch()
    believe_slow(0.05, patch.setattr)

    def watch(report):
        """After the burst, restore the real cost of rows, and send a few more after each batch."""
        patch.undo()
        reports.append(report)
        if report.source_batch is not None and len(sent) <= _QUIET:
            sent.append(orders(20, seed=len(sent), first=580 + 20 * len(sent)))
            warehouse.put(sent[-1], f"quiet-{len(sent)}.parquet")

    def stopping():
        all_in = sum(report.rows_in for report in reports if report.source_batch is not None) == 600 + 20 * _QUIET
        return (all_in and reports[-1].overload.missing.rows == 0) or time.monotonic() > begin + _MOST_S

    begin = time.monotonic()
    try:
        spec = overloaded(warehouse, format=format, overload={"repair": "idle"})
        Pipeline.from_dict(spec).run(spark, watch=watch, stopping=stopping)
    finally:
        patch.undo()
    shed = reports[0].outcomes["shed"]
    assert shed > 300
    repairs = [report for report in reports if report.source_batch is None]
    assert sum(report.rows_in for report in repairs) == shed
    assert all(report.outcomes["shed"] == 0 for report in reports[1:])
    assert reports[0].overload.missing.rows == shed, "they were missing for a while"
    joined, unmatched = star(pa.concat_tables(sent))
    assert rows(warehouse.table("sink")) == joined
    assert rows(warehouse.table("unmatched"), "id", "stopped_at") == unmatched
    assert (archive_ids(warehouse.folder), archived_rows(warehouse.folder)) == ([], 0)


def test_rows_that_would_make_others_late_are_not_repaired_yet(spark, warehouse):
    from semistream.spark.pipelines.pipeline import Pipeline

    stream, reports = orders(600), []
    warehouse.put(stream, "0.parquet")
    spec = overloaded(warehouse, overload={"repair": "idle"})
    looked = 0

    def stopping():
        nonlocal looked
        looked += bool(reports)
        return looked > 5

    with pytest.MonkeyPatch.context() as patch:
        believe_slow(0.05, patch.setattr)
        Pipeline.from_dict(spec).run(spark, watch=reports.append, stopping=stopping)
    (report,) = reports
    assert report.outcomes["shed"] == archived_rows(warehouse.folder) > 300
