"""Cost model of HYBRIDJOIN: the tuples that an iteration serves, w of HYBRID (2)."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

from semistream.costs.key_frequencies import KeyFrequencies
from semistream.costs.work import Work
from semistream.costs.workload import Workload
from semistream.errors import require_numbers
from semistream.relation.read.disk_costs import DiskCosts

_COVERED = 0.82
"""Measured share of the modelled tuples that a part really serves. The model has parts side by side; real ones lie
where tuples wait, and the gaps between them are read together with pages read shortly before."""


@dataclass(frozen=True)
class HybridModel:
    """Model of HYBRIDJOIN with ``buffer_rows`` of R in its disk buffer (d) and a hash table of ``waiting_rows`` (h_S).

    ==================  ==========================================================================================
    HYBRID              here
    ==================  ==========================================================================================
    R_t, d, h_S         ``relation_rows``, ``buffer_rows``, ``waiting_rows``
    w, (2)              `served_rows`; as printed, with k, in ``experiments/published/hybrid.py``
    c_loop, mu, (3, 4)  there too; here `Work` has the counts behind them
    ==================  ==========================================================================================

    The paper has w = k * h_S * d / R_t, without deriving k. This model derives it. A part of R is read when the oldest
    tuple waiting for it reaches the head of the queue; by then others wait for it too. Let a tuple reach the head after
    n others have come, and let a share q of the stream ask for the part. Then 1 + q n tuples are served at once, and
    the next tuple for the part comes after another 1 / q tuples. Tuples wait for the part during n of the n + 1 / q
    tuples between two reads, so on average ``q n / (1 + q n) * (1 + q n / 2)`` tuples wait for it. Over all parts these
    sum to h_S, which gives n, and then w = 1 / sum(q / (1 + q n)). With equal parts and many tuples for each, k tends
    to 2.
    """

    frequencies: KeyFrequencies
    relation_rows: float
    buffer_rows: float
    waiting_rows: float

    def __post_init__(self) -> None:
        require_numbers(self, "relation_rows", "buffer_rows", "waiting_rows", least=1)

    def served_rows(self) -> float:
        """Return the expected number of tuples served by an iteration: w."""
        return self._served(self._arrivals_to_the_head)

    def longest_wait(self) -> float:
        """Return the number of tuples that come before a new tuple reaches the head of the queue: n."""
        return self._arrivals_to_the_head

    def _served(self, n: float) -> float:
        parts = self._parts
        return float(1 / (parts.keys @ (parts.probability / (1 + parts.probability * n))))

    @cached_property
    def _parts(self) -> KeyFrequencies:
        """Parts of R by their share of the stream."""
        return self.frequencies.in_pages(self.relation_rows / self.buffer_rows)

    @cached_property
    def _arrivals_to_the_head(self) -> float:
        """The n at which the waiting tuples fill the memory; they increase with n, so bisection finds it."""
        parts = self._parts

        def waiting(n: float) -> float:
            met = parts.probability * n
            return float(parts.keys @ (met / (1 + met) * (1 + met / 2)))

        low, high = 0.0, 1.0
        while waiting(high) < self.waiting_rows:
            low, high = high, 2 * high
        for _ in range(40):
            middle = (low + high) / 2
            low, high = (middle, high) if waiting(middle) < self.waiting_rows else (low, middle)
        return high


@dataclass(frozen=True)
class HybridJoinModel:
    """Model of HYBRIDJOIN with room for ``waiting_rows`` tuples and reads of up to ``run_pages`` pages.

    Reading pages around the needed one pays if enough tuples wait for them. The model tries powers of two and takes the
    number of pages that serves the most tuples per disk time, where a seek takes as long as reading ``seek_bytes``.
    HYBRID 4.5 chooses the size of the disk buffer in the same way.
    """

    waiting_rows: float
    run_pages: int
    seek_bytes: float
    packet_rows: float = math.inf  # most tuples taken in at once

    def __post_init__(self) -> None:
        require_numbers(self, "waiting_rows", "run_pages", least=1)
        require_numbers(self, "seek_bytes", least=0)

    def work(self, workload: Workload, costs: DiskCosts) -> Work:  # noqa: ARG002
        """Return the work per tuple: its share of an iteration."""
        waiting = min(self.waiting_rows, max(workload.batch_rows, 1.0))
        tried = [
            (pages, HybridModel(workload.frequencies, workload.relation_rows, self._rows(workload, pages), waiting))
            for pages in powers_of_two(min(self.run_pages, workload.num_pages))
        ]

        def served_per_byte(setting: tuple[int, HybridModel]) -> float:
            pages, model = setting
            return model.served_rows() / (self.seek_bytes + pages * workload.page_bytes)

        pages, model = max(tried, key=served_per_byte)
        longest = model.longest_wait()
        served = model.served_rows() * (1.0 if pages == 1 else _COVERED)
        return Work(
            seeks=1 / served,
            pages=pages / served,
            steps=1 / served,
            probes=self._rows(workload, pages) / served,
            waits=min(waiting, longest / 2),
            longest_wait=longest,
            packets=1 / max(min(self.packet_rows, served), 1.0),
        )

    def _rows(self, workload: Workload, pages: int) -> float:
        return max(pages * workload.rows_per_page, 1.0)


def powers_of_two(most: int) -> list[int]:
    """Return 1, 2, 4, ... up to ``most``, and ``most`` itself.

    >>> powers_of_two(5)
    [1, 2, 4, 5]
    """
    return sorted({*(1 << shift for shift in range(most.bit_length())), most})
