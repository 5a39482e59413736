"""SSIJ V: the worst-case throughput of the semi-streamed index join.

M. A. Bornea, A. Deligiannakis, Y. Kotidis & V. Vassalos, Semi-Streamed Index Join for Near-Real Time Execution of ETL
Transformations, ICDE 2011, section V, the equation of WCThr.
"""

from __future__ import annotations

from semistream.costs.workload import Workload
from semistream.joins.ssij.cost_model import IndexModel
from semistream.relation import DiskCosts


def worst_rate(model: IndexModel, workload: Workload, costs: DiskCosts) -> float:
    """Return WCThr of SSIJ V, in tuples per second.

    No tuple is answered by the cache, each needs a block of its own, and these lie as far apart as can be. Then it is
    best to read each by a seek, or all of R in scans of maxScan blocks (``run_pages``). V has as many tuples wait as an
    online phase may leave, Tup(SB): those of the threshold (``stream_rows``), and those of one input buffer
    (``input_rows``).
    """
    tuples, pages = model.stream_rows + model.input_rows, workload.num_pages
    scan_s = costs.request_s(pages * workload.page_bytes, pages, requests=pages / model.run_pages)
    return max(1 / costs.request_s(workload.page_bytes, 1), tuples / scan_s)
