"""Expected reads of a plan, against joins on a simulated disk and against SSIJ's worst case."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from semistream import Relation
from semistream.costs.expected_reads import expected_reads
from semistream.costs.key_frequencies import KeyFrequencies
from semistream.datasets import Zipf
from semistream.errors import InvalidArgument
from semistream.joins.sweep.operator import SweepJoin
from semistream.relation import DiskCosts, SimulatedDisk

ROWS = 60_000
SEEK_S, TRANSFER_S = 0.008, 0.0005


@pytest.fixture(scope="module")
def relation(tmp_path_factory: pytest.TempPathFactory) -> Relation:
    path: Path = tmp_path_factory.mktemp("reads") / "r"
    return Relation.build(pa.table({"key": range(ROWS), "n": range(ROWS)}), path, key="key", page_bytes=2048)


@pytest.mark.parametrize("exponent", [0.0, 0.5, 1.0, 1.5])
@pytest.mark.parametrize("tuples", [20, 200, 2_000, 40_000])
def test_what_a_join_reads_on_a_simulated_disk(relation: Relation, exponent: float, tuples: int) -> None:
    costs = DiskCosts(SEEK_S, transfer_s_per_page=TRANSFER_S, follows=0.0)
    seconds, reads = [], max(4, 4000 // tuples)
    with SweepJoin(
        relation,
        pa.schema([("key", pa.int64()), ("seq", pa.int64())]),
        on="key",
        memory="16MB",
        disk=SimulatedDisk(seek_s=SEEK_S, transfer_s=TRANSFER_S),
    ) as join:
        for seed in range(reads):  # each has its hot keys elsewhere
            batch = next(Zipf(exponent, ROWS, seed=seed).batches(tuples))
            before_s = costs.request_s(0, join.stats.pages_read, join.stats.pages_seek)
            assert sum(result.num_rows for result in [*join.push(batch), *join.flush()]) == tuples
            seconds.append(costs.request_s(0, join.stats.pages_read, join.stats.pages_seek) - before_s)
        run_bytes = join.run_bytes
    page_bytes = relation.nbytes // relation.num_pages
    wanted = KeyFrequencies.zipf(exponent, ROWS).pages(relation.num_pages, tuples)
    expected = expected_reads(
        relation.num_pages, wanted, costs, page_bytes=page_bytes, most_bytes=run_bytes, goes_on=True
    )
    expected_s = costs.request_s(expected.pages * page_bytes, expected.pages, requests=expected.seeks)
    assert expected_s == pytest.approx(np.mean(seconds), rel=0.06)


def test_no_plan_is_dearer_than_ssij_s_worst_case() -> None:
    """SSIJ V: a seek for each wanted page, or all of R in sequences as long as can be."""
    costs, pages, most = DiskCosts(SEEK_S, transfer_s_per_page=TRANSFER_S), 50_000, 200
    for wanted in np.geomspace(1, pages, 20):
        reads = expected_reads(pages, float(wanted), costs, page_bytes=8192, most_bytes=most * 8192, most_pages=most)
        apart = wanted * (SEEK_S + TRANSFER_S)
        scan = pages / most * SEEK_S + pages * TRANSFER_S
        assert wanted <= reads.pages * (1 + 1e-9)
        assert costs.request_s(reads.pages * 8192, reads.pages, requests=reads.seeks) <= min(apart, scan) * 1.02


def test_all_of_r_is_read_without_seeks_and_nothing_by_nothing() -> None:
    costs = DiskCosts(SEEK_S, transfer_s_per_page=TRANSFER_S)
    assert expected_reads(1000, 1000, costs, page_bytes=4096, most_bytes=10 * 4096) == (1, 1000)
    assert expected_reads(1000, 0, costs, page_bytes=4096, most_bytes=10 * 4096) == (0, 0)
    with pytest.raises(InvalidArgument, match="wanted_pages is 1001"):
        expected_reads(1000, 1001, costs, page_bytes=4096, most_bytes=10 * 4096)
