"""OverloadReport: latencies of a pipeline against its goal, and the results missing in its tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from semistream.pipelines.ledger.entries import ArchivedBatch

_SHARES = (0.5, 0.95, 0.99)


class Latencies(NamedTuple):
    """Percentiles (50, 95, 99) of the seconds from a row's arrival to its table, over the rows of a batch."""

    p50_s: float
    p95_s: float
    p99_s: float

    @classmethod
    def of(cls, arrivals: Mapping[str, int], tick_ms: int, now: float) -> Latencies | None:
        """Compute them from the rows that came in each tick of ``tick_ms``, all done ``now``; None if none came.

        A row counts as come at the beginning of its tick, and never later than now.

        >>> Latencies.of({"10": 90, "8": 10}, 100, now=2.0)
        Latencies(p50_s=1.0, p95_s=1.2, p99_s=1.2)
        """
        if not arrivals:
            return None
        taken = np.array([max(now - int(tick) * tick_ms / 1000, 0.0) for tick in arrivals])
        rows = np.array(list(arrivals.values()))
        order = np.argsort(taken)
        upto = np.cumsum(rows[order])
        places = [int(np.searchsorted(upto, share * upto[-1])) for share in _SHARES]
        return cls(*(round(float(taken[order][place]), 3) for place in places))


@dataclass(frozen=True)
class Missing:
    """Rows shed and not yet repaired, since when, and bounds on the results missing for them.

    ``results_high`` is None, unknown, if some rows have no value from a relation.
    """

    rows: int = 0
    since: float | None = None
    results_low: int = 0
    results_high: int | None = 0

    @classmethod
    def of(cls, archived: Sequence[ArchivedBatch]) -> Missing:
        """Sum over the archived batches; a partly repaired one counts its results in proportion to the rows left."""
        if not archived:
            return cls()
        left = [(each, each.rows / max(each.shed_rows, 1)) for each in archived]
        unknown = any(each.unvalued for each in archived)
        return cls(
            rows=sum(each.rows for each in archived),
            since=min(each.oldest for each in archived),
            results_low=sum(int(each.missing_low * share) for each, share in left),
            results_high=None if unknown else sum(-int(-each.missing_high * share // 1) for each, share in left),
        )


@dataclass(frozen=True)
class OverloadReport:
    """Report on a batch under a latency goal: latencies, rows shed, and rows and results missing after it."""

    goal_s: float
    latencies: Latencies | None
    shed_rows: int
    shed_share: float
    missing: Missing
    at: float

    @property
    def oldest_s(self) -> float:
        """Age in seconds of the oldest row not yet repaired."""
        return 0.0 if self.missing.since is None else max(self.at - self.missing.since, 0.0)

    def as_dict(self) -> dict[str, Any]:
        """Return the report as fields of a line of the metrics file."""
        nothing = dict.fromkeys(Latencies._fields)
        return {
            "goal_s": self.goal_s,
            **(nothing if self.latencies is None else self.latencies._asdict()),
            "shed_share": round(self.shed_share, 4),
            "archived_rows": self.missing.rows,
            "archived_oldest_s": round(self.oldest_s, 3),
            "results_missing_low": self.missing.results_low,
            "results_missing_high": self.missing.results_high,
        }
