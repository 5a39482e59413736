"""FRONT (1)-(7): how much of the memory a front stage should have.

M. A. Naeem, G. Weber, G. Dobbie & C. Lutteroth, A Generic Front-Stage for Semi-Stream Processing, CIKM 2013, section
3.2, equations (1) to (7).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from semistream.costs.key_frequencies import KeyFrequencies
from semistream.errors import require_numbers

_GOLDEN = (math.sqrt(5) - 1) / 2
_CLOSE = 1e-6  # of all that could be cached, to which the best size is found


@dataclass(frozen=True)
class FrontModel:
    """Service rate of a join behind a cache of R's hottest tuples, by how many these are.

    ==================  ==========================================================================================
    FRONT               here
    ==================  ==========================================================================================
    M, R_t, v_R         ``memory_bytes``, ``relation_rows``, ``row_bytes``
    8                   ``recorder_bytes`` for each cached tuple, besides itself
    p_N(h_R), (1)       `hit_rate`, for any distribution: the paper has Zipf's with exponent 1
    mu_dp, (3)          `missed_rate`: the join behind, proportional to its memory and inversely to R
    mu_cm, (4)          `rate`
    (5)-(7)             `best_cached_rows`
    ==================  ==========================================================================================

    (3) gives tuples in a unit that the paper leaves open; ``full_rate`` is what the join behind does with as much
    memory as R has, and makes tuples per second of it.

    Two things are put right. In (6) the numerator of (4) is taken for a constant, although it falls with h_R: what is
    left, mu_dp * p' / (1 - p)^2, is above 0 wherever there is memory left, so it has no root, and (7) is above 0 too.
    The derivative is ((M - c h) p'(h) - c (1 - p(h))) / (R_t v_R (1 - p)^2) with c = v_R + 8; it has its root where
    one more cached tuple gains as much as it costs. And a cache never answers all: where it could hold every key that
    is asked for, the rate of (4) is infinite, which means that a rate is bound by something else than R's disk.
    """

    frequencies: KeyFrequencies
    memory_bytes: float
    relation_rows: float
    row_bytes: float
    recorder_bytes: float = 8.0
    full_rate: float = 1.0

    def __post_init__(self) -> None:
        require_numbers(self, "memory_bytes", "relation_rows", "row_bytes", "full_rate")

    @property
    def most_cached_rows(self) -> float:
        """h_R that takes all memory, or all of R."""
        return min(self.memory_bytes / (self.row_bytes + self.recorder_bytes), self.relation_rows)

    def hit_rate(self, cached_rows: float) -> float:
        """Return p_N(h_R) of FRONT (1)."""
        return self.frequencies.share(cached_rows)

    def missed_rate(self, cached_rows: float) -> float:
        """Return mu_dp of FRONT (3): tuples per second of the join behind, of those that the cache does not answer."""
        left = self.memory_bytes - (self.row_bytes + self.recorder_bytes) * cached_rows
        return self.full_rate * max(left, 0.0) / (self.relation_rows * self.row_bytes)

    def rate(self, cached_rows: float) -> float:
        """Return mu_cm of FRONT (4): tuples per second of both."""
        if cached_rows >= self.frequencies.asked_keys:
            return math.inf
        return self.missed_rate(cached_rows) / (1 - self.hit_rate(cached_rows))

    def best_cached_rows(self) -> float:
        """Return h_R of the greatest rate.

        The rate rises to one maximum and falls from there on if hotter keys come first: 1 - p(h) is convex, and the
        ratio of a line that falls to it has one. So golden sections find it, whatever the distribution.
        """
        if self.frequencies.asked_keys <= self.most_cached_rows:
            return self.frequencies.asked_keys
        low, high = 0.0, self.most_cached_rows
        while high - low > _CLOSE * self.most_cached_rows:
            left, right = high - _GOLDEN * (high - low), low + _GOLDEN * (high - low)
            if self.rate(left) < self.rate(right):
                low = left
            else:
                high = right
        return max(0.0, (low + high) / 2, key=self.rate)
