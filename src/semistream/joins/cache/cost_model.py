"""What a join behind a cache of R's hottest rows takes: FRONT (4)."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from semistream.costs.work import OperatorModel, Work
from semistream.costs.workload import Workload
from semistream.errors import require_numbers
from semistream.relation.read.disk_costs import DiskCosts


@dataclass(frozen=True)
class FrontedModel:
    """Any join behind a cache of ``cached_rows`` of R: FRONT (4) with the model of the join itself instead of (3).

    ``experiments/published/front.py`` has (1)-(7) as printed, and what is wrong with (6) and (7).
    """

    cached_rows: float
    behind: OperatorModel
    batch_rows: float = math.inf  # of results from the cache that are given out together, at most

    def __post_init__(self) -> None:
        require_numbers(self, "cached_rows", least=0)

    def work(self, workload: Workload, costs: DiskCosts) -> Work:
        """What each tuple takes of both: of the join behind only if the cache misses it."""
        rows = workload.results_per_tuple or 1.0  # of R, for each key
        cached_keys = self.cached_rows / rows
        missed = self.behind.work(workload.behind_cache(cached_keys), costs)
        both = missed.behind_cache(workload.frequencies.share(cached_keys))
        found = (1 - both.joined) * workload.results_per_tuple
        return replace(both, batches=both.batches + found / self.batch_rows)
