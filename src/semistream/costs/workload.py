"""Workload: a stream and its relation R as the cost models see them."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from semistream.costs.key_frequencies import KeyFrequencies
from semistream.errors import InvalidArgument, require_numbers

_LEAST_BATCH_ROWS = 1e-9


@dataclass(frozen=True)
class Workload:
    """The input of a join, independent of the operator that runs it.

    ==========================  ======================================================  ======================
    name                        meaning                                                 in the papers
    ==========================  ======================================================  ======================
    ``frequencies``             frequencies of R's keys in the stream                   FRONT p_N, HYBRID's k
    ``relation_rows``           rows of R                                               R_t
    ``num_pages``               pages of R                                              N_R
    ``page_bytes``              bytes of a page                                         v_P
    ``results_per_tuple``       rows of R joined with a stream tuple                    sigma of MESH (2), f_R
    ``values_per_result``       columns of R in a result                                (none)
    ``rate``                    arrivals in tuples per second; None: as fast as the     lambda
                                operator accepts them
    ``batch_rows``              tuples of a micro-batch, at whose end no tuple may      (none)
                                wait; infinite if the stream is never drained
    ``spread``                  stream tuples for each tuple left to join, if a cache   (none)
                                answers the others
    ==========================  ======================================================  ======================
    """

    frequencies: KeyFrequencies
    relation_rows: float
    num_pages: int
    page_bytes: float
    results_per_tuple: float = 1.0
    values_per_result: float = 1.0
    rate: float | None = None
    batch_rows: float = math.inf
    spread: float = 1.0

    def __post_init__(self) -> None:
        require_numbers(self, "relation_rows", "num_pages", "page_bytes")
        require_numbers(self, "results_per_tuple", "values_per_result", least=0)
        if self.rate is not None:
            require_numbers(self, "rate")
        if not self.batch_rows >= _LEAST_BATCH_ROWS:
            raise InvalidArgument(
                f"batch_rows is {self.batch_rows}; give a number above 0, of at least {_LEAST_BATCH_ROWS}."
            )

    @property
    def values_per_tuple(self) -> float:
        """Values of R in the results of one tuple."""
        return self.results_per_tuple * self.values_per_result

    @property
    def rows_per_page(self) -> float:
        """Average rows in a page."""
        return self.relation_rows / self.num_pages

    def behind_cache(self, cached_rows: float) -> Workload:
        """Return the workload left if a cache answers the ``cached_rows`` hottest rows of R."""
        missed = 1 - self.frequencies.share(cached_rows)
        return replace(
            self,
            frequencies=self.frequencies.rest(cached_rows),
            rate=None if self.rate is None else max(self.rate * missed, 1e-9),
            batch_rows=max(self.batch_rows * missed, 1.0) if math.isfinite(self.batch_rows) else math.inf,
            spread=self.spread / missed if missed > 0 else math.inf,
        )
