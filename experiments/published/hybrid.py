"""HYBRID (2)-(4): tuples served and cost of an iteration of HYBRIDJOIN.

M. A. Naeem, G. Dobbie & G. Weber, HYBRIDJOIN for Near-Real-Time Data Warehousing, section 4.4.2, equations (2) to (4).
"""

from __future__ import annotations

from dataclasses import dataclass

from semistream import MeshFactors
from semistream.joins.hybrid.cost_model import HybridModel

PUBLISHED_K = 1.36
"""k of HYBRID (2), measured by its authors for exponent 1 and keys ordered by frequency."""


@dataclass(frozen=True)
class PublishedHybridModel(HybridModel):
    """Cost model of HYBRIDJOIN as printed, on top of the w that `HybridModel` derives.

    ==================  ==========================================================================================
    HYBRID              here
    ==================  ==========================================================================================
    R_t, d, h_S         ``relation_rows``, ``buffer_rows``, ``waiting_rows``
    w, (2)              `published_served_rows`, with a measured factor k; `served_rows` for any distribution
    c_loop, (3)         `loop_s`, with v_P / v_R = ``buffer_rows`` and the factors of MESH Table 1
    mu, (4)             `rate`
    ==================  ==========================================================================================

    >>> from semistream.costs.key_frequencies import KeyFrequencies
    >>> model = PublishedHybridModel(KeyFrequencies.zipf(1.0, 2_000_000), 2_000_000, 500, 100_000)
    >>> model.published_served_rows()
    34.0
    """

    def published_served_rows(self, k: float = PUBLISHED_K) -> float:
        """Return w of HYBRID (2)."""
        return k * self.waiting_rows * self.buffer_rows / self.relation_rows

    def loop_s(self, factors: MeshFactors, pages: float) -> float:
        """Return c_loop of HYBRID (3), with ``pages`` to read and the w of `served_rows`."""
        probing_s = self.buffer_rows * factors.probe_s
        return factors.read_s(pages) + probing_s + self.served_rows() * factors.row_s(1)

    def rate(self, factors: MeshFactors, pages: float) -> float:
        """Return mu of HYBRID (4), in tuples per second."""
        return self.served_rows() / self.loop_s(factors, pages)
