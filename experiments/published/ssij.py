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

    In the worst case the cache answers no tuple, each tuple needs a different block, and the blocks are as far apart as
    possible. The best plan is then a seek for each block, or a scan of all of R in sequences of maxScan blocks
    (``run_pages``). V assumes that as many tuples wait as an online phase may leave, Tup(SB): the threshold
    (``stream_rows``) plus one input buffer (``input_rows``).
    """
    tuples, pages = model.stream_rows + model.input_rows, workload.num_pages
    scan_s = costs.request_s(pages * workload.page_bytes, pages, requests=pages / model.run_pages)
    return max(1 / costs.request_s(workload.page_bytes, 1), tuples / scan_s)
