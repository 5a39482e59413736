"""Cost model of a join behind a cache of R's hottest rows: FRONT (4)."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from semistream.costs.work import OperatorModel, Work
from semistream.costs.workload import Workload
from semistream.errors import require_numbers
from semistream.relation.read.disk_costs import DiskCosts


@dataclass(frozen=True)
class FrontedModel:
    """Model of any join behind a cache of ``cached_rows`` rows of R: FRONT (4), with the join's own model for (3).

    ``experiments/published/front.py`` has (1)-(7) as printed, and explains the errors in (6) and (7).
    """

    cached_rows: float
    behind: OperatorModel
    batch_rows: float = math.inf  # most rows in a batch of results from the cache

    def __post_init__(self) -> None:
        require_numbers(self, "cached_rows", least=0)

    def work(self, workload: Workload, costs: DiskCosts) -> Work:
        """Return the work per tuple in cache and join; only tuples that miss the cache reach the join."""
        rows = workload.results_per_tuple or 1.0  # rows of R per key
        cached_keys = self.cached_rows / rows
        missed = self.behind.work(workload.behind_cache(cached_keys), costs)
        both = missed.behind_cache(workload.frequencies.share(cached_keys))
        found = (1 - both.joined) * workload.results_per_tuple
        return replace(both, batches=both.batches + found / self.batch_rows)
