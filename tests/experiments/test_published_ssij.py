"""SSIJ as published: the throughput of the worst case."""

from __future__ import annotations

import pytest
from experiments.published.ssij import worst_rate

from semistream.costs.key_frequencies import KeyFrequencies
from semistream.costs.machine import Machine
from semistream.costs.workload import Workload
from semistream.joins.ssij.cost_model import IndexModel
from semistream.relation import DiskCosts


def test_the_worst_case_of_ssij() -> None:
    """SSIJ V: a seek for each tuple, or a scan of all of R for all that wait: MESHJOIN's throughput."""
    costs = DiskCosts(0.008, transfer_s_per_page=0.0001)
    workload = Workload(KeyFrequencies.uniform(10**6), 10**6, 10**4, 8192)
    few = IndexModel(input_rows=10, stream_rows=50, cached_pages=0, run_bytes=8192 * 400, run_pages=400)
    assert worst_rate(few, workload, costs) == pytest.approx(1 / 0.0081)
    many = IndexModel(input_rows=10_000, stream_rows=90_000, cached_pages=0, run_bytes=8192 * 400, run_pages=400)
    scan_s = 25 * 0.008 + 10**4 * 0.0001
    assert worst_rate(many, workload, costs) == pytest.approx(100_000 / scan_s)
    expected_s = Machine("theirs", costs).disk_s(many.work(workload, costs), workload)
    assert worst_rate(many, workload, costs) <= 1 / expected_s
