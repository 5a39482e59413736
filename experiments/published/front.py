"""FRONT (1)-(7): the best share of the memory for a front stage.

M. A. Naeem, G. Weber, G. Dobbie & C. Lutteroth, A Generic Front-Stage for Semi-Stream Processing, CIKM 2013, section
3.2, equations (1) to (7).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from semistream.costs.key_frequencies import KeyFrequencies
from semistream.errors import require_numbers

_GOLDEN = (math.sqrt(5) - 1) / 2
_CLOSE = 1e-6  # precision of the best cache size, relative to the largest one


@dataclass(frozen=True)
class FrontModel:
    """Service rate of a join behind a cache of R's hottest tuples, by the size of the cache.

    ==================  ==========================================================================================
    FRONT               here
    ==================  ==========================================================================================
    M, R_t, v_R         ``memory_bytes``, ``relation_rows``, ``row_bytes``
    8                   ``recorder_bytes`` for each cached tuple, in addition to its own bytes
    p_N(h_R), (1)       `hit_rate`, for any distribution; the paper has Zipf's with exponent 1
    mu_dp, (3)          `missed_rate` of the join behind: proportional to its memory, inversely to the size of R
    mu_cm, (4)          `rate`
    (5)-(7)             `best_cached_rows`
    ==================  ==========================================================================================

    The paper leaves the unit of (3) open. ``full_rate``, the tuples per second of the join behind with as much memory
    as R has bytes, turns it into tuples per second.

    One error is corrected, and one case explained. (6) treats the numerator of (4) as a constant, although it falls
    with h_R. The result, mu_dp * p' / (1 - p)^2, is above 0 wherever memory is left, so it has no root, and (7) is
    above 0 too. The correct derivative is ((M - c h) p'(h) - c (1 - p(h))) / (R_t v_R (1 - p)^2) with c = v_R + 8; its
    root is where one more cached tuple gains as much as it costs. If the cache could hold every key of the stream, the
    rate of (4) is infinite: something other than R's disk then bounds the rate.
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
        """Largest h_R: it fills the memory, or covers all of R."""
        return min(self.memory_bytes / (self.row_bytes + self.recorder_bytes), self.relation_rows)

    def hit_rate(self, cached_rows: float) -> float:
        """Return p_N(h_R) of FRONT (1)."""
        return self.frequencies.share(cached_rows)

    def missed_rate(self, cached_rows: float) -> float:
        """Return mu_dp of FRONT (3): tuples per second of the join behind, counting only cache misses."""
        left = self.memory_bytes - (self.row_bytes + self.recorder_bytes) * cached_rows
        return self.full_rate * max(left, 0.0) / (self.relation_rows * self.row_bytes)

    def rate(self, cached_rows: float) -> float:
        """Return mu_cm of FRONT (4): tuples per second of cache and join together."""
        if cached_rows >= self.frequencies.asked_keys:
            return math.inf
        return self.missed_rate(cached_rows) / (1 - self.hit_rate(cached_rows))

    def best_cached_rows(self) -> float:
        """Return the h_R with the highest rate.

        With hotter keys first, 1 - p(h) is convex, and the ratio of a falling line to it has a single maximum.
        Golden-section search therefore finds it for any distribution.
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
