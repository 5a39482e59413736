"""What an iteration of HYBRIDJOIN serves and costs: HYBRID (1)-(4)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from semistream.tuning.checks import require_numbers
from semistream.tuning.frequencies import Floats, KeyFrequencies
from semistream.tuning.mesh_costs import MeshFactors

PUBLISHED_K = 1.36
"""k of HYBRID (2), as its authors measured it: with exponent 1 and keys in the order of their frequency."""


@dataclass(frozen=True)
class HybridModel:
    """HYBRIDJOIN with a disk buffer for ``buffer_rows`` of R (d) and ``waiting_rows`` in its hash table (h_S).

    ==================  ==========================================================================================
    HYBRID              here
    ==================  ==========================================================================================
    R_t, d, h_S         ``relation_rows``, ``buffer_rows``, ``waiting_rows``
    w, (2)              `served_rows`; `published_served_rows` as in the paper, by a factor k that was measured
    c_loop, (3)         `loop_s`
    mu, (4)             `rate`
    ==================  ==========================================================================================

    The paper has w = k * h_S * d / R_t. Where k comes from can be said. A part of R is read when the oldest tuple that
    waits for it has come to the head of the queue; by then others wait for it too. If a tuple comes to the head after
    n others have come, and a share q of the stream asks for the part, then 1 + q n tuples are served at once, and it
    takes another 1 / q until one comes again: of the time between two reads, n + 1 / q, one waits during n. So on
    average ``q n / (1 + q n) * (1 + q n / 2)`` wait for it, and all parts together have h_S: that gives n, and then
    w = 1 / sum(q / (1 + q n)). With all parts alike and many tuples for each, k comes down to 2.
    """

    frequencies: KeyFrequencies
    relation_rows: float
    buffer_rows: float
    waiting_rows: float

    def __post_init__(self) -> None:
        require_numbers(self, "relation_rows", "buffer_rows", "waiting_rows", least=1)

    def published_served_rows(self, k: float = PUBLISHED_K) -> float:
        """w of HYBRID (2)."""
        return k * self.waiting_rows * self.buffer_rows / self.relation_rows

    def served_rows(self) -> float:
        """Tuples that an iteration is expected to serve: w."""
        parts, share = self._parts()
        n = self._arrivals_to_the_head(parts, share)
        return float(1 / (parts @ (share / (1 + share * n))))

    def loop_s(self, factors: MeshFactors, pages: float) -> float:
        """c_loop of HYBRID (3), with ``pages`` to read; its factors are those of MESH Table 1."""
        probing_s = self.buffer_rows * factors.probe_s
        return factors.read_s(pages) + probing_s + self.served_rows() * factors.row_s(1)

    def rate(self, factors: MeshFactors, pages: float) -> float:
        """mu of HYBRID (4), in tuples per second."""
        return self.served_rows() / self.loop_s(factors, pages)

    def _parts(self) -> tuple[Floats, Floats]:
        """How many parts of R there are with which share of the stream.

        A hot key makes its part hot, all other keys lie anywhere: a part has its hottest key's frequency, and as much
        of the rest as any other.
        """
        count = max(self.relation_rows / self.buffer_rows, 1.0)
        keys, probability = self.frequencies.keys, self.frequencies.probability
        hot = np.minimum(np.cumsum(keys), count)
        parts = np.diff(hot, prepend=0.0)
        rest = 1.0 - float(parts @ probability)
        parts, share = np.append(parts, count - hot[-1]), np.append(probability, 0.0) + rest / count
        return parts[parts > 0], share[parts > 0]

    def _arrivals_to_the_head(self, parts: Floats, share: Floats) -> float:
        """n, in which as many tuples wait as there is room for; that grows with n, so halving finds it."""

        def waiting(n: float) -> float:
            met = share * n
            return float(parts @ (met / (1 + met) * (1 + met / 2)))

        low, high = 0.0, 1.0
        while waiting(high) < self.waiting_rows:
            low, high = high, 2 * high
        for _ in range(60):
            middle = (low + high) / 2
            low, high = (middle, high) if waiting(middle) < self.waiting_rows else (low, middle)
        return high
