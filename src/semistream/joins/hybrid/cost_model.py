"""What an iteration of HYBRIDJOIN serves: w of HYBRID (2)."""

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
"""What of the tuples of a part is served where parts lie wherever tuples wait, instead of one beside the other: between
two of them there are gaps, which are read with pages that were read not long before. It was measured."""


@dataclass(frozen=True)
class HybridModel:
    """HYBRIDJOIN with a disk buffer for ``buffer_rows`` of R (d) and ``waiting_rows`` in its hash table (h_S).

    ==================  ==========================================================================================
    HYBRID              here
    ==================  ==========================================================================================
    R_t, d, h_S         ``relation_rows``, ``buffer_rows``, ``waiting_rows``
    w, (2)              `served_rows`; as printed, with k, in ``experiments/published/hybrid.py``
    c_loop, mu, (3, 4)  there too; here `Work` has the counts that they are made of
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

    def served_rows(self) -> float:
        """Tuples that an iteration is expected to serve: w."""
        return self._served(self._arrivals_to_the_head)

    def longest_wait(self) -> float:
        """Tuples that come until one that has come is at the head of the queue, and is served: n."""
        return self._arrivals_to_the_head

    def _served(self, n: float) -> float:
        parts = self._parts
        return float(1 / (parts.keys @ (parts.probability / (1 + parts.probability * n))))

    @cached_property
    def _parts(self) -> KeyFrequencies:
        """How many parts of R there are with which share of the stream."""
        return self.frequencies.in_pages(self.relation_rows / self.buffer_rows)

    @cached_property
    def _arrivals_to_the_head(self) -> float:
        """n, in which as many tuples wait as there is room for; that grows with n, so halving finds it."""
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
    """HYBRIDJOIN with room for ``waiting_rows`` that reads up to ``run_pages`` at once, as many as are worth it if a
    seek takes as long as ``seek_bytes``.

    Whether it pays to read pages around the one that is needed depends on how many tuples wait for them: the number of
    pages is the one that serves the most tuples for the time of the disk, of those that were tried, each twice the one
    before (HYBRID 4.5 seeks the best size of the disk buffer in the same way).
    """

    waiting_rows: float
    run_pages: int
    seek_bytes: float
    packet_rows: float = math.inf  # that are taken in at once, at most

    def __post_init__(self) -> None:
        require_numbers(self, "waiting_rows", "run_pages", least=1)
        require_numbers(self, "seek_bytes", least=0)

    def work(self, workload: Workload, costs: DiskCosts) -> Work:  # noqa: ARG002
        """What each tuple takes of an iteration."""
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
    """1, 2, 4, ... and ``most`` itself.

    >>> powers_of_two(5)
    [1, 2, 4, 5]
    """
    return sorted({*(1 << shift for shift in range(most.bit_length())), most})
