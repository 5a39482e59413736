"""What an iteration of MESHJOIN costs in seconds: MESH (2), (3) and (5)."""

from __future__ import annotations

import math
from dataclasses import dataclass, fields
from typing import Self

from semistream.errors import InvalidArgument
from semistream.tuning.machine import Machine


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
        """Those of a machine's disk and kernels, for pages of a size and results with so many columns of R."""
        disk, kernels = machine.disk, machine.kernels
        return cls(
            seek_s=disk.seek_s,
            transfer_s=disk.request_s(page_bytes, 1, requests=0),
            expire_s=kernels.expire_s,
            stream_s=kernels.encode_s,
            add_s=kernels.insert_s + kernels.sort_s,
            probe_s=kernels.probe_s,
            output_s=kernels.output_s + values_per_result * kernels.gather_s,
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
