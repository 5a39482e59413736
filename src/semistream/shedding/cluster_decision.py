"""ClusterDecision: rows are kept with a probability proportional to their matches, exactly so many in all."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from semistream.kernels.systematic import draw_systematic
from semistream.shedding.decision import Decision, Kept
from semistream.shedding.seeds import row_ranks
from semistream.shedding.stream_part import StreamPart


@dataclass(frozen=True)
class ClusterDecision(Decision):
    """A systematic sample of rows in the order of their ranks, part after part (see `ClusterSampling`).

    Parameters
    ----------
    certain
        Rows with so many matches or more are kept for certain.
    draws, total
        A row with fewer matches m > 0 is kept with probability m * ``draws`` / ``total``, where ``total`` is the sum of
        these m in the batch.
    starts
        Where on the line of the systematic sample the rows of each part begin, modulo ``total``.
    unmatched, unmatched_quotas
        Rows without a match, and how many of them each part keeps: what is left when all others are kept.
    """

    kind: ClassVar[str] = "cluster"
    certain: int
    draws: int
    total: int
    starts: tuple[int, ...]
    unmatched: int
    unmatched_quotas: tuple[int, ...]

    def _apply(self, part: StreamPart, place: int) -> Kept:
        matches = part.require_matches(self.strategy)
        order = np.argsort(row_ranks(self.seed, part.number, part.rows))
        inclusion = np.ones(part.rows)
        mask = matches >= self.certain
        if self.total:
            np.divide(matches * self.draws, self.total, out=inclusion, where=~mask)  # below 1: products < total
            draw_systematic(order, matches, self.certain, self.draws, self.total, self.starts[place], mask)
        unmatched = order[matches[order] == 0]
        mask[unmatched[: self.unmatched_quotas[place]]] = True
        inclusion[unmatched] = sum(self.unmatched_quotas) / self.unmatched if self.unmatched else 0.0
        return Kept(mask, inclusion)

    @classmethod
    def from_record(cls, record: dict[str, Any]) -> ClusterDecision:
        """The decision read back."""
        lists = {name: tuple(record[name]) for name in ("starts", "unmatched_quotas")}
        return cls(**{**cls._fields(record), **lists})
