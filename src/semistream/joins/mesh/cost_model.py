"""What an iteration of MESHJOIN costs in seconds: MESH (2), (3) and (5).

Chooses b and w of MESHJOIN: the least memory for a rate, or the best rate for the memory (MESH 3.3).

What a scan of MESHJOIN serves: the counts behind MESH (2) and (3).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, fields
from typing import Protocol, Self

from semistream.costs.machine import Machine
from semistream.costs.work import Work
from semistream.costs.workload import Workload
from semistream.errors import InvalidArgument, require_numbers
from semistream.relation.read.disk_costs import DiskCosts


@dataclass(frozen=True)
class MeshFactors:
    """The cost factors of MESH Table 1, in seconds.

    The defaults are of the order of what one core and one solid-state disk take with pages of 64 KiB. They need not be
    exact: `AdaptiveMeshJoin` corrects their sum by what its own iterations take. Their proportions decide how it trades
    pages for tuples.

    ==============  ===================  ============================================================
    MESH            here                 seconds for
    ==============  ===================  ============================================================
    c_I/O(b)        ``read_s(b)``        b pages that lie together: ``seek_s``, and ``transfer_s`` for each
    c_E             ``expire_s``         removing a tuple from the window
    c_S             ``stream_s``         taking a tuple from a batch of the stream
    c_A             ``add_s``            encoding a tuple's key and adding it to the window
    c_H             ``probe_s``          a row of R that is probed
    c_O             ``output_s``         a row of the result
    (none)          ``packet_s``         a packet, however few tuples it has: calls, and a batch of results of its own
    ==============  ===================  ============================================================

    >>> MeshFactors(seek_s=0.01, transfer_s=0.0001).read_s(100)
    0.02
    """

    seek_s: float = 100e-6
    transfer_s: float = 16e-6
    expire_s: float = 10e-9
    stream_s: float = 20e-9
    add_s: float = 100e-9
    probe_s: float = 10e-9
    output_s: float = 150e-9
    packet_s: float = 1e-3

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if not (value >= 0 and math.isfinite(value)):
                raise InvalidArgument(f"{field.name} is {value}; a cost is a number of seconds, zero or more.")

    @classmethod
    def of(cls, machine: Machine, *, page_bytes: float, values_per_result: int) -> Self:
        """Derive the factors from a machine's disk and from the costs of its AMESHJOIN, or else of its MESHJOIN.

        Pages have ``page_bytes`` on average, and a result has ``values_per_result`` values of R. `OperatorCosts` has
        ``entry_s`` for taking a tuple in and ``tuple_s`` for everything else that is done for it, so they become
        ``stream_s`` and ``expire_s``, and ``add_s`` is zero: only the sum of the three is in the model. ``output_s`` is
        the cost of the values alone. An iteration takes in one packet, even if it does several loops at once, so its
        ``step_s`` is part of ``packet_s`` and not of ``seek_s``, which each loop costs. If neither operator was
        measured, all factors but those of the disk are the defaults.
        """
        seek_s, transfer_s = machine.disk.seek_s, machine.disk.request_s(page_bytes, 1, requests=0)
        costs = machine.operators.get("adaptive_mesh") or machine.operators.get("mesh")
        if costs is None:
            return cls(seek_s, transfer_s)
        return cls(
            seek_s,
            transfer_s,
            expire_s=costs.tuple_s,
            stream_s=costs.entry_s,
            add_s=0.0,
            probe_s=costs.row_s,
            output_s=values_per_result * costs.value_s,
            packet_s=costs.packet_s + costs.step_s,
        )

    def read_s(self, pages: float) -> float:
        """Seconds to read pages that lie one behind the other."""
        return self.seek_s + self.transfer_s * pages

    def row_s(self, results: float) -> float:
        """Seconds that a tuple takes from the stream to its expiry, with so many results."""
        return self.expire_s + self.stream_s + self.add_s + results * self.output_s


PARQUET_FACTORS = MeshFactors(probe_s=300e-9)
"""The order of what plain Parquet takes: each row is decoded, and its code computed and sorted, before it is probed."""


@dataclass(frozen=True)
class MeshCosts:
    """The cost of iterations over one relation, of ``rows_per_page`` (MESH: v_P / v_R).

    MESH (2) counts the results of an iteration as a share sigma of the rows of R that are probed. Sigma grows with the
    window, that is with w, which is being sought; but over one scan each tuple of the stream meets all its partners, so
    in the long run w tuples in are ``w * results_per_row`` results out. That is what is counted here, and ``packets``
    for each loop: less than one if several are done at once. ``correction`` is by how much real time exceeds the sum of
    the factors.
    """

    factors: MeshFactors
    rows_per_page: float
    results_per_row: float = 1.0
    correction: float = 1.0

    def loop_s(self, pages: int, rows: float, packets: float = 1) -> float:
        """Seconds of a loop that joins ``pages`` and admits ``rows``: c_loop of MESH (2)."""
        return self._pages_s(pages, packets) + rows * self._row_s

    def service_rate(self, pages: int, rows: float, packets: float = 1) -> float:
        """Tuples per second that such loops take from the stream: mu of MESH (3)."""
        seconds = self.loop_s(pages, rows, packets)
        return rows / seconds if seconds > 0 else math.inf

    def least_rows(self, rate: float, pages: int, packets: float = 1) -> int | None:
        """The least w that sustains ``rate`` with b = ``pages``: MESH (5) with equality, solved for w.

        c_loop is linear in w, so that is ``w = rate * c_pages / (1 - rate * c_row)``. None if no w does: one tuple
        alone takes more time than there is until the next.
        """
        spare = 1 - rate * self._row_s
        return max(math.ceil(rate * self._pages_s(pages, packets) / spare), 1) if spare > 0 else None

    def expected_s(self, *, loops: int, pages: int, rows: int, results: int, packets: float) -> float:
        """Seconds, without correction, of ``loops`` that join ``pages``, admit ``rows``, give out ``results`` and end
        ``packets`` in all.
        """
        own = self.factors
        page_s = own.transfer_s + self.rows_per_page * own.probe_s
        per_unit = (
            (loops, own.seek_s),
            (pages, page_s),
            (rows, own.row_s(0)),
            (results, own.output_s),
            (packets, own.packet_s),
        )
        return sum(number * seconds for number, seconds in per_unit)

    def _pages_s(self, pages: int, packets: float) -> float:
        """What a loop takes whatever is admitted."""
        return self.correction * self.expected_s(loops=1, pages=pages, rows=0, results=0, packets=packets)

    @property
    def _row_s(self) -> float:
        """What each tuple that is admitted adds."""
        return self.correction * self.factors.row_s(self.results_per_row)


class MeshMemoryModel(Protocol):
    """What b and w ask for in memory: MESH (1), as published or as an implementation has it."""

    @property
    def num_pages(self) -> int:
        """N_R: pages of a scan."""

    @property
    def fixed_pages(self) -> int | None:
        """b, if it cannot be chosen."""

    def loops(self, pages: int) -> int:
        """How many loops of b = ``pages`` are done at once."""

    def total(self, pages: int, rows: int) -> int:
        """M of MESH (1)."""

    def fits(self, pages: int, rows: int) -> bool:
        """Whether there is so much."""

    def most_rows(self, pages: int) -> float:
        """The greatest w that fits with b = ``pages``; below 1, the share of loops in which a tuple can enter."""


@dataclass(frozen=True)
class MeshParameters:
    """b and w: pages that a loop joins, and tuples that it admits."""

    pages_per_step: int
    rows_per_step: int


@dataclass(frozen=True)
class MeshTuner:
    """The two objectives of MESH 3.3 over a cost model and a memory model.

    The paper finds the best b by calculus, with real numbers. Here b and w are whole, and so is the number of
    loops in a scan, ceil(N_R / b). Of all b that make the same number, the least takes the least memory and the least
    time, hence the best b is ceil(N_R / q) for some q. There are at most 2 * sqrt(N_R) + 2 such values: all of
    them are tried, and the choice is exact. Where the memory fixes b, only w is chosen.
    """

    costs: MeshCosts
    memory: MeshMemoryModel

    def least_memory(self, rate: float) -> MeshParameters | None:
        """The b and w of least memory by MESH (1) that sustain ``rate`` by MESH (5), if any do in the budget."""
        best: tuple[int, MeshParameters] | None = None
        for pages in self._pages_to_try():
            rows = self.costs.least_rows(rate, pages, self._packets(pages))
            if rows is not None and self.memory.fits(pages, rows):
                total = self.memory.total(pages, rows)
                if best is None or total < best[0]:
                    best = total, MeshParameters(pages, rows)
        return None if best is None else best[1]

    def greatest_rate(self) -> MeshParameters:
        """The b and w of the greatest service rate by MESH (3) that fit the budget.

        Where not even w = 1 has a window of w * N_R / b tuples, w is 1 and the window is what fits: a tuple then enters
        when one has left.
        """
        best = -math.inf, MeshParameters(1, 1)
        for pages in self._pages_to_try():
            most = self.memory.most_rows(pages)
            if most > 0:
                rows = math.floor(most) if most >= 1 else most
                best = max(
                    best,
                    (self.service_rate(pages, rows), MeshParameters(pages, max(math.floor(rows), 1))),
                    key=lambda tried: tried[0],
                )
        return best[1]

    def service_rate(self, pages: int, rows: float) -> float:
        """Tuples per second by MESH (3)."""
        return self.costs.service_rate(pages, rows, self._packets(pages))

    def _pages_to_try(self) -> list[int]:
        fixed = self.memory.fixed_pages
        return steps_to_try(self.memory.num_pages) if fixed is None else [fixed]

    def _packets(self, pages: int) -> float:
        """Packets per loop."""
        return 1 / self.memory.loops(pages)


def steps_to_try(num_pages: int) -> list[int]:
    """All values of ceil(num_pages / q), and no more than a few others, in ascending order.

    >>> steps_to_try(10)
    [1, 2, 3, 4, 5, 10]
    """
    root = math.isqrt(num_pages) + 1
    few = range(1, min(root, num_pages) + 1)
    return sorted({*few, *(-(-num_pages // q) for q in few)})


@dataclass(frozen=True)
class MeshModel:
    """MESHJOIN with a window of ``window_rows`` (w * N_R / b of MESH) that reads up to ``run_pages`` (b) at once.

    While all of R goes by once, each slot of the window serves one tuple, whatever its key is. A scan is one request
    after the other, so only its first begins with a seek.
    """

    window_rows: float
    run_pages: float
    packet_rows: float = math.inf  # that are taken in at once, at most

    def __post_init__(self) -> None:
        require_numbers(self, "window_rows", "run_pages")

    def work(self, workload: Workload, costs: DiskCosts) -> Work:  # noqa: ARG002
        """What each tuple takes of a scan."""
        served, pages = served_at_once(self.window_rows, workload.batch_rows), workload.num_pages
        return Work(
            seeks=1 / served,
            pages=pages / served,
            steps=math.ceil(pages / self.run_pages) / served,
            probes=workload.relation_rows / served,
            waits=served / 2,
            longest_wait=served,
            packets=1 / min(self.packet_rows, served),
        )


@dataclass(frozen=True)
class AdaptiveMeshModel:
    """AMESHJOIN in a memory: `MeshModel` with the b and w of the greatest rate on the disk at hand.

    The processor's time is left out of the choice: it does not depend on b, and is the same for each tuple.
    """

    memory: MeshMemoryModel

    def work(self, workload: Workload, costs: DiskCosts) -> Work:
        """What each tuple takes of a scan with these b and w."""
        return self.tuned(workload, costs).work(workload, costs)

    def tuned(self, workload: Workload, costs: DiskCosts) -> MeshModel:
        """MESHJOIN with the b and w that it runs with."""
        page_s = costs.request_s(workload.page_bytes, 1) - costs.seek_s
        factors = MeshFactors(
            costs.seek_s, page_s, expire_s=0.0, stream_s=0.0, add_s=0.0, probe_s=0.0, output_s=0.0, packet_s=0.0
        )
        best = MeshTuner(MeshCosts(factors, workload.rows_per_page), self.memory).greatest_rate()
        pages, rows = best.pages_per_step, best.rows_per_step
        return MeshModel(min(rows, self.memory.most_rows(pages)) * math.ceil(workload.num_pages / pages), pages)


def served_at_once(capacity: float, batch_rows: float) -> float:
    """Tuples that go through together if up to ``capacity`` can, and none may be left at the end of a batch.

    >>> served_at_once(100, 1000), served_at_once(100, 250), served_at_once(100, 30)
    (100.0, 83.33333333333333, 30.0)
    """
    return batch_rows / math.ceil(batch_rows / capacity) if math.isfinite(batch_rows) else float(capacity)
