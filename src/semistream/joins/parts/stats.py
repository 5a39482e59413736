"""JoinStats: exact counts of an operator's work, in the units of the papers' cost models."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field, fields

import numpy as np

from semistream.budget import format_bytes
from semistream.kernels.array_types import Bools
from semistream.relation.describe import html_table
from semistream.relation.read.disk import DiskCounts

_TRACE_POINTS = 1000


@dataclass(frozen=True)
class TracePoint:
    """Parameters of a self-tuning operator since ``time_s`` on its clock, and the rates they were chosen for.

    ``rate`` is the stream's rate in rows per second (None while unknown), ``service_rate`` the operator's rate with
    these parameters, and ``memory_bytes`` the memory they need: MESH's lambda, mu and M.
    """

    time_s: float
    pages_per_step: int
    rows_per_step: int
    rate: float | None
    service_rate: float
    memory_bytes: int


@dataclass(repr=False)
class JoinStats:
    """Exact counts of an operator's work.

    Every finished stream tuple is in exactly one of ``matched`` and ``unmatched``; a waiting tuple is in neither. The
    cost of a run on a simulated disk is ``pages_seek * seek_s + (pages_seek + pages_sequential) * transfer_s``.

    Parameters
    ----------
    rows_in, rows_done : int
        Stream tuples taken in, and finished.
    matched, unmatched : int
        Finished tuples with and without a match.
    outputs, batches : int
        Result rows, and the batches they came in.
    steps, waits : int
        Iterations, and those of them whose pages were read only then, not ahead.
    packets : int
        Times that stream tuples were taken in together.
    probes : int
        Tuples of R looked up in the operator's index of the stream; for an index join, stream tuples looked up in R.
    inserts, expiries : int
        Tuples added to and removed from the operator's index of the stream.
    level_probes : int
        Times that a level of waiting tuples met a run of pages.
    requests, pages_seek, pages_sequential, bytes_read : int
        Requests to the disk, pages read after a seek and sequentially, and bytes. A page counts once for each column
        group read.
    budget_bytes, peak_bytes : int
        Limit of the memory, and the most bytes charged to it at once.
    cache_hits : int
        Stream tuples answered from a cache alone.
    late, worst_lateness_s : int, float
        Tuples finished after their deadline, and the greatest delay in seconds.
    versions : dict of int to int
        Tuples joined with each version of R. Tuples pushed earlier were joined with earlier versions.
    trace : deque of TracePoint
        Latest changes of parameters by a self-tuning operator.

    Examples
    --------
    >>> stats = JoinStats(rows_in=5)
    >>> stats.count_done(np.array([True, True, False]))
    >>> stats.rows_waiting, stats.matched, stats.unmatched
    (2, 2, 1)

    References
    ----------
    MESH 3.2, SSIJ V (cost models); docs/architecture.md, "Invariants".
    """

    rows_in: int = 0
    rows_done: int = 0
    matched: int = 0
    unmatched: int = 0
    outputs: int = 0
    batches: int = 0
    steps: int = 0
    waits: int = 0
    packets: int = 0
    probes: int = 0
    inserts: int = 0
    expiries: int = 0
    level_probes: int = 0
    requests: int = 0
    pages_seek: int = 0
    pages_sequential: int = 0
    bytes_read: int = 0
    budget_bytes: int = 0
    peak_bytes: int = 0
    cache_hits: int = 0
    late: int = 0
    worst_lateness_s: float = 0.0
    versions: dict[int, int] = field(default_factory=dict)
    trace: deque[TracePoint] = field(default_factory=lambda: deque(maxlen=_TRACE_POINTS))

    def __repr__(self) -> str:
        more = f", {self.rows_waiting:,} waiting" if self.rows_waiting else ""
        more += f", {self.cache_hits / self.rows_in:.0%} answered by the cache" if self.cache_hits else ""
        memory = f"{format_bytes(self.peak_bytes)} of {format_bytes(self.budget_bytes)} used"
        return (
            f"JoinStats({self.rows_in:,} rows in: {self.matched:,} matched, {self.unmatched:,} unmatched{more}; "
            f"{self.outputs:,} results; {format_bytes(self.bytes_read)} of R read; {memory})"
        )

    def _repr_html_(self) -> str:
        counts = [(name, f"{value:,}") for name, value in self.as_dict().items() if value]
        return html_table(repr(self), ["count", ""], counts)

    @property
    def rows_waiting(self) -> int:
        """Stream tuples taken in and not finished."""
        return self.rows_in - self.rows_done

    @property
    def pages_read(self) -> int:
        """Pages of R read, after a seek or sequentially."""
        return self.pages_seek + self.pages_sequential

    def count_done(self, matched: Bools) -> None:
        """Count finished stream tuples, given their matched flags."""
        met = int(np.count_nonzero(matched))
        self.rows_done += matched.size
        self.matched += met
        self.unmatched += matched.size - met

    def count_disk(self, counts: DiskCounts) -> None:
        """Copy the counts of the operator's disk."""
        self.requests = counts.requests
        self.pages_seek = counts.seeks
        self.pages_sequential = counts.pages_sequential
        self.bytes_read = counts.bytes

    def as_dict(self) -> dict[str, int | float]:
        """Return the counts by name, without ``versions`` and ``trace``."""
        return {f.name: getattr(self, f.name) for f in fields(self) if f.name not in ("versions", "trace")}
