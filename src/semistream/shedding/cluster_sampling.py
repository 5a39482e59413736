"""ClusterSampling: keep a fixed number of rows, each with a probability proportional to its matches."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np

from semistream.kernels.array_types import Int64s
from semistream.shedding.decision import Account, Decision, Kept, SampleDesign, row_ranks
from semistream.shedding.kernels import draw_systematic
from semistream.shedding.strategy import Strategy, require_rows
from semistream.shedding.stream_part import StreamPart
from semistream.shedding.summary import BatchSummary, PartSummary, chance_quotas


@dataclass(frozen=True)
class ClusterDecision(Decision):
    """Decision by a systematic sample of rows in the order of their ranks, part after part (see `ClusterSampling`).

    Parameters
    ----------
    certain
        Number of matches from which rows are kept for certain.
    draws, total
        A row with fewer matches m > 0 is kept with probability m * ``draws`` / ``total``, where ``total`` is the sum of
        these m in the batch.
    starts
        Start of each part on the line of the systematic sample, modulo ``total``.
    unmatched, unmatched_quotas
        Rows without a match, and how many of them each part keeps: they get the room left after all other rows.
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
        """Build from the JSON content of a decision."""
        lists = {name: tuple(record[name]) for name in ("starts", "unmatched_quotas")}
        return cls(**{**cls._fields(record), **lists})


class ClusterSampling(Strategy):
    """Strategy that keeps exactly ``min(w, rows)`` rows, each with a probability proportional to its matches.

    ``w`` is the limit given to `decide` and `shed`, in rows. The probability is ``min(1, c m)`` for m matches, with the
    c for which the probabilities add up to w: rows whose c m would exceed 1 are kept for certain. Rows without a match
    are kept only if all others are, as far as there is room. Each row's probability is exact, in integer arithmetic,
    which makes `estimate` unbiased even if the matches are not exact (`MatchCounts.bound`); if they are, the estimated
    count of all results has no error beyond rounding.

    The paper, after Srivastava and Widom, does not say how to draw. With independent draws, the number of rows kept
    would vary by sqrt(w), more than the join has time for. This is randomised systematic sampling: rows lie on a line
    in the order of their ranks, each with its probability as length, and a comb of step 1 with a random start picks the
    rows under its teeth.

    Examples
    --------
    >>> import numpy as np
    >>> kept = ClusterSampling().shed(StreamPart(4, matches=np.array([1, 2, 1, 8])), 2, seed=3)
    >>> kept.rows, kept.inclusion.tolist()
    (2, [0.25, 0.5, 0.25, 1.0])

    References
    ----------
    MESH 4.1, Table 2: Many-to-Many / RANDOM-SAMPLE. U. Srivastava & J. Widom, VLDB 2004. H. O. Hartley & J. N. K. Rao,
    Sampling with unequal probabilities and without replacement, Ann. Math. Statist. 33(2), 1962.
    """

    name = "cluster_sampling"
    is_sample = True

    def summarize(self, part: StreamPart) -> PartSummary:
        """Count the rows with each number of matches."""
        return PartSummary.of_matches(part, self.name)

    def _decide(self, batch: BatchSummary, limit: float, seed: int) -> Decision:
        w, rows = require_rows(limit), batch.rows
        drawn = _draws(batch.matches, rows, w)
        by_chance = (batch.matches > 0) & (batch.matches < drawn.certain)
        matches, some = batch.matches[by_chance], rows[by_chance]
        total = int(matches @ some)
        generator = np.random.Generator(np.random.PCG64([seed, 1]))
        place = int(generator.integers(total)) if total else 0
        unmatched = batch.rows_in_parts(batch.matches == 0)
        unmatched_quotas = chance_quotas(unmatched, min(drawn.spare, sum(unmatched)), seed)
        starts, kept = [], []
        for of_part, always, spare in zip(
            batch.results_in_parts(by_chance),
            batch.rows_in_parts(batch.matches >= drawn.certain),
            unmatched_quotas,
            strict=True,
        ):
            starts.append(place)
            teeth, place = divmod(place + of_part * drawn.draws, total) if total else (0, 0)
            kept.append(always + teeth + spare)
        chances = matches * (drawn.draws / total) if total else np.zeros(0)
        certain = batch.matches >= drawn.certain
        all_rows, results = int(rows.sum()), int(batch.matches @ rows)
        kept_results = int(batch.matches[certain] @ rows[certain]) + round(float((matches * some) @ chances))
        keep = min(w, all_rows)
        return ClusterDecision(
            strategy=self.name,
            seed=seed,
            parts=batch.numbers,
            rows=batch.rows_in_parts(),
            kept=tuple(kept),
            results=batch.results_in_parts(),
            account=Account(keep, all_rows - keep, kept_results, results - kept_results),
            design=SampleDesign(drawn.draws, float(some @ (chances * (1 - chances)))),
            certain=drawn.certain,
            draws=drawn.draws,
            total=total,
            starts=tuple(starts),
            unmatched=sum(unmatched),
            unmatched_quotas=unmatched_quotas,
        )


class _Draws(NamedTuple):
    certain: int  # matches from which rows are kept for certain
    draws: int  # rows drawn from the other matching rows
    spare: int  # room left when all matching rows are kept


def _draws(matches: Int64s, rows: Int64s, w: int) -> _Draws:
    """Find the rows to keep for certain: from the most matches down, while a row's share of the places left is >= 1.

    This never takes more places than are left: a class of n rows with m matches has n m of the remaining ``total``, so
    if m * places >= total, then n <= places.
    """
    places, total = w, int(matches @ rows)
    certain = int(matches.max(initial=0)) + 1
    for m, n in zip(matches[::-1].tolist(), rows[::-1].tolist(), strict=True):
        if m == 0 or m * places < total:
            break
        certain, places, total = m, places - n, total - m * n
    return _Draws(certain, places if total else 0, 0 if total else places)
