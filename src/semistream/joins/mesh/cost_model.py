"""Cost models of MESHJOIN and AMESHJOIN, and the tuning of b and w.

`MeshCosts` predicts the seconds of an iteration: MESH (2), (3) and (5). `MeshTuner` chooses b and w for the least
memory at a rate, or for the best rate in a memory (MESH 3.3). `MeshModel` and `AdaptiveMeshModel` predict the counts of
work per tuple behind MESH (2) and (3).
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
    """Cost factors of MESHJOIN (MESH Table 1), in seconds.

    The defaults have the order of magnitude of one core and one solid-state disk, with pages of 64 KiB. They need not
    be exact: `AdaptiveMeshJoin` corrects their sum by the measured time of its iterations. Their proportions decide how
    it trades pages for tuples.

    ==============  ===================  ============================================================
    MESH            here                 seconds for
    ==============  ===================  ============================================================
    c_I/O(b)        ``read_s(b)``        reading b contiguous pages: ``seek_s``, plus ``transfer_s`` for each
    c_E             ``expire_s``         removing a tuple from the window
    c_S             ``stream_s``         taking a tuple from a batch of the stream
    c_A             ``add_s``            encoding a tuple's key and adding it to the window
    c_H             ``probe_s``          probing a row of R
    c_O             ``output_s``         emitting a row of the result
    (none)          ``packet_s``         a packet of any size: calls, and a batch of results of its own
    ==============  ===================  ============================================================

    Parameters
    ----------
    seek_s, transfer_s : float
        Seconds of a seek, and of reading a page. Defaults: 100 and 16 microseconds.
    expire_s, stream_s, add_s : float
        Seconds per stream tuple. Defaults: 10, 20 and 100 nanoseconds.
    probe_s, output_s : float
        Seconds per row of R, and per row of the result. Defaults: 10 and 150 nanoseconds.
    packet_s : float
        Seconds per packet. Default: 1 millisecond.

    Examples
    --------
    >>> MeshFactors(seek_s=0.01, transfer_s=0.0001).read_s(100)
    0.02

    References
    ----------
    MESH 3.2, Table 1.
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
                raise InvalidArgument(f"{field.name} is {value}; a cost must be a finite number of seconds, 0 or more.")

    @classmethod
    def of(cls, machine: Machine, *, page_bytes: float, values_per_result: int) -> Self:
        """Derive the factors from a machine's disk and from the costs of its AMESHJOIN, or else of its MESHJOIN.

        Pages have ``page_bytes`` on average, and a result has ``values_per_result`` values of R. `OperatorCosts` has
        ``entry_s`` for taking in a tuple and ``tuple_s`` for the rest of its work. They become ``stream_s`` and
        ``expire_s``, and ``add_s`` is zero, because the model only uses the sum of the three. ``output_s`` is the cost
        of the values alone. An iteration takes in one packet, even if it does several loops at once, so its ``step_s``
        is part of ``packet_s`` and not of ``seek_s``, which every loop costs. If neither operator was measured, all
        factors except those of the disk are the defaults.
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
        """Return the seconds to read ``pages`` contiguous pages."""
        return self.seek_s + self.transfer_s * pages

    def row_s(self, results: float) -> float:
        """Return the seconds spent on a tuple from intake to expiry, with ``results`` results."""
        return self.expire_s + self.stream_s + self.add_s + results * self.output_s


PARQUET_FACTORS = MeshFactors(probe_s=300e-9)
"""Factors for plain Parquet, where each row is decoded and its code computed and sorted before it is probed."""


@dataclass(frozen=True)
class MeshCosts:
    """Cost of iterations over one relation with ``rows_per_page`` rows per page (MESH: v_P / v_R).

    MESH (2) counts the results of an iteration as a share sigma of the rows of R probed. Sigma grows with the window,
    and thus with w, the unknown. But over one scan each stream tuple meets all its matches, so in the long run w tuples
    yield ``w * results_per_row`` results, and these are counted here. ``packets`` is the number of packets per loop,
    less than one if several loops are done at once. ``correction`` is the ratio of real time to the sum of the factors.
    """

    factors: MeshFactors
    rows_per_page: float
    results_per_row: float = 1.0
    correction: float = 1.0

    def loop_s(self, pages: int, rows: float, packets: float = 1) -> float:
        """Return the seconds of a loop that joins ``pages`` and admits ``rows``: c_loop of MESH (2)."""
        return self._pages_s(pages, packets) + rows * self._row_s

    def service_rate(self, pages: int, rows: float, packets: float = 1) -> float:
        """Return the tuples per second that such loops take from the stream: mu of MESH (3)."""
        seconds = self.loop_s(pages, rows, packets)
        return rows / seconds if seconds > 0 else math.inf

    def least_rows(self, rate: float, pages: int, packets: float = 1) -> int | None:
        """Return the least w that sustains ``rate`` with b = ``pages``: MESH (5) with equality, solved for w.

        c_loop is linear in w, so ``w = rate * c_pages / (1 - rate * c_row)``. The result is None if no w sustains the
        rate, because a single tuple takes longer than the time until the next.
        """
        spare = 1 - rate * self._row_s
        return max(math.ceil(rate * self._pages_s(pages, packets) / spare), 1) if spare > 0 else None

    def expected_s(self, *, loops: int, pages: int, rows: int, results: int, packets: float) -> float:
        """Return the uncorrected seconds of ``loops`` loops with these totals.

        They join ``pages``, admit ``rows``, emit ``results`` and expire ``packets``.
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
        """Return the seconds of a loop that admits nothing."""
        return self.correction * self.expected_s(loops=1, pages=pages, rows=0, results=0, packets=packets)

    @property
    def _row_s(self) -> float:
        """Seconds that each admitted tuple adds to a loop."""
        return self.correction * self.factors.row_s(self.results_per_row)


class MeshMemoryModel(Protocol):
    """Memory that b and w need: MESH (1), as published or as implemented."""

    @property
    def num_pages(self) -> int:
        """Pages of a scan (N_R)."""

    @property
    def fixed_pages(self) -> int | None:
        """b if it is fixed, None if it can be chosen."""

    def loops(self, pages: int) -> int:
        """Return the number of loops of b = ``pages`` done at once."""

    def total(self, pages: int, rows: int) -> int:
        """Return M of MESH (1), in bytes."""

    def fits(self, pages: int, rows: int) -> bool:
        """Return True if b = ``pages`` and w = ``rows`` fit in the memory."""

    def most_rows(self, pages: int) -> float:
        """Return the greatest w that fits with b = ``pages``; below 1, the share of loops in which a tuple enters."""


@dataclass(frozen=True)
class MeshParameters:
    """The parameters b and w: pages joined and tuples admitted by a loop."""

    pages_per_step: int
    rows_per_step: int


@dataclass(frozen=True)
class MeshTuner:
    """The two objectives of MESH 3.3, over a cost model and a memory model.

    The paper finds the best b by calculus, in real numbers. Here b and w are integers, and so is the number of loops in
    a scan, ceil(N_R / b). Among all b with the same number of loops, the least takes the least memory and time, so the
    best b is ceil(N_R / q) for some q. There are at most 2 * sqrt(N_R) + 2 such values. All of them are tried, so the
    choice is exact. If the memory model fixes b, only w is chosen.
    """

    costs: MeshCosts
    memory: MeshMemoryModel

    def least_memory(self, rate: float) -> MeshParameters | None:
        """Return the b and w that sustain ``rate`` by MESH (5) with the least memory by MESH (1); None if none fits."""
        best: tuple[int, MeshParameters] | None = None
        for pages in self._pages_to_try():
            rows = self.costs.least_rows(rate, pages, self._packets(pages))
            if rows is not None and self.memory.fits(pages, rows):
                total = self.memory.total(pages, rows)
                if best is None or total < best[0]:
                    best = total, MeshParameters(pages, rows)
        return None if best is None else best[1]

    def greatest_rate(self) -> MeshParameters:
        """Return the b and w of the greatest service rate by MESH (3) that fit in the budget.

        If not even the N_R / b tuples of w = 1 fit, w is 1 and the window is as large as possible: a tuple then enters
        when another has left.
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
        """Return the tuples per second by MESH (3)."""
        return self.costs.service_rate(pages, rows, self._packets(pages))

    def _pages_to_try(self) -> list[int]:
        fixed = self.memory.fixed_pages
        return steps_to_try(self.memory.num_pages) if fixed is None else [fixed]

    def _packets(self, pages: int) -> float:
        """Return the packets per loop."""
        return 1 / self.memory.loops(pages)


def steps_to_try(num_pages: int) -> list[int]:
    """Return all values of ceil(num_pages / q), and a few others, in ascending order.

    >>> steps_to_try(10)
    [1, 2, 3, 4, 5, 10]
    """
    root = math.isqrt(num_pages) + 1
    few = range(1, min(root, num_pages) + 1)
    return sorted({*few, *(-(-num_pages // q) for q in few)})


@dataclass(frozen=True)
class MeshModel:
    """Model of MESHJOIN with a window of ``window_rows`` (MESH: w * N_R / b) and reads of up to ``run_pages`` (b).

    In one scan of R each slot of the window serves one tuple, whatever its key. The requests of a scan are sequential,
    so only the first needs a seek.
    """

    window_rows: float
    run_pages: float
    packet_rows: float = math.inf  # most tuples taken in at once

    def __post_init__(self) -> None:
        require_numbers(self, "window_rows", "run_pages")

    def work(self, workload: Workload, costs: DiskCosts) -> Work:  # noqa: ARG002
        """Return the work per tuple: its share of a scan."""
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
    """Model of AMESHJOIN in a memory: `MeshModel` with the b and w of the greatest rate on the given disk.

    CPU time does not affect the choice: it is independent of b and the same for each tuple.
    """

    memory: MeshMemoryModel

    def work(self, workload: Workload, costs: DiskCosts) -> Work:
        """Return the work per tuple: its share of a scan with these b and w."""
        return self.tuned(workload, costs).work(workload, costs)

    def tuned(self, workload: Workload, costs: DiskCosts) -> MeshModel:
        """Return the model of MESHJOIN with the chosen b and w."""
        page_s = costs.request_s(workload.page_bytes, 1) - costs.seek_s
        factors = MeshFactors(
            costs.seek_s, page_s, expire_s=0.0, stream_s=0.0, add_s=0.0, probe_s=0.0, output_s=0.0, packet_s=0.0
        )
        best = MeshTuner(MeshCosts(factors, workload.rows_per_page), self.memory).greatest_rate()
        pages, rows = best.pages_per_step, best.rows_per_step
        return MeshModel(min(rows, self.memory.most_rows(pages)) * math.ceil(workload.num_pages / pages), pages)


def served_at_once(capacity: float, batch_rows: float) -> float:
    """Return the tuples served together, at most ``capacity``, if none may wait at the end of a batch.

    >>> served_at_once(100, 1000), served_at_once(100, 250), served_at_once(100, 30)
    (100.0, 83.33333333333333, 30.0)
    """
    return batch_rows / math.ceil(batch_rows / capacity) if math.isfinite(batch_rows) else float(capacity)
