"""Cost model of SSIJ: the expected reads of a join phase; the paper has only the worst case (SSIJ V)."""

from __future__ import annotations

import math
from dataclasses import dataclass

from semistream.costs.expected_reads import ExpectedReads, expected_reads
from semistream.costs.work import Work
from semistream.costs.workload import Workload
from semistream.errors import require_numbers
from semistream.relation.read.disk_costs import DiskCosts


@dataclass(frozen=True)
class IndexModel:
    """Model of SSIJ with its thresholds and cache.

    SSIJ looks up ``input_rows`` tuples at once (IB_thresh), starts a join phase when ``stream_rows`` wait (SB_thresh),
    caches ``cached_pages`` of R (CR), and reads up to ``run_bytes`` and ``run_pages`` (maxScan) in a sequence.

    In the worst case of SSIJ V (``experiments/published/ssij.py``) the wanted pages lie as far apart as possible, and
    the cache answers nothing. The paper does not model the distribution of keys. Here the cached pages are those asked
    for most, and answer their share of the stream at once. The other tuples fill the stream buffer. Their distribution
    gives the number of distinct pages they ask for, which are placed at random.
    """

    input_rows: float
    stream_rows: float
    cached_pages: float
    run_bytes: int
    run_pages: int

    def __post_init__(self) -> None:
        require_numbers(self, "input_rows", "stream_rows", "run_bytes", "run_pages")
        require_numbers(self, "cached_pages", least=0)

    def work(self, workload: Workload, costs: DiskCosts) -> Work:
        """Return the work per tuple: its share of the phases."""
        pages = workload.frequencies.in_pages(workload.num_pages)
        cached = min(self.cached_pages, workload.num_pages)
        hits, rest = pages.share(cached), pages.rest(cached)
        missed = max(1 - hits, 1e-12)
        looked_up = self.input_rows * math.ceil(self.stream_rows / (self.input_rows * missed))
        tuples = min(looked_up, workload.batch_rows)
        wanted = min(rest.distinct(tuples * missed), workload.num_pages - cached)
        reads = self._reads(workload, costs, max(wanted, 0.0))
        steps = 1 + tuples / self.input_rows
        return Work(
            seeks=reads.seeks / tuples,
            pages=reads.pages / tuples,
            steps=steps / tuples,
            probes=1.0 + reads.pages * workload.rows_per_page / tuples,
            waits=self.input_rows / 2 if hits > 0.5 else tuples / 2,
            longest_wait=tuples,
            hits=hits,
            packets=1 / self.input_rows,
        )

    def _reads(self, workload: Workload, costs: DiskCosts, wanted: float) -> ExpectedReads:
        return expected_reads(
            workload.num_pages,
            wanted,
            costs,
            page_bytes=int(workload.page_bytes),
            most_bytes=self.run_bytes,
            most_pages=self.run_pages,
        )
