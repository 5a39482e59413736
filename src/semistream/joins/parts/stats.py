"""JoinStats: exact counts of what an operator did, in the units of the papers' cost models."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field, fields

import numpy as np

from semistream.kernels.array_types import Bools
from semistream.relation.read.disk import DiskCounts

_TRACE_POINTS = 1000


@dataclass(frozen=True)
class TracePoint:
    """What a self-tuning operator has run with since ``time_s`` of its clock, and why.

    ``rate`` is the stream's in rows per second (None while it is not known), ``service_rate`` the operator's with these
    parameters, ``memory_bytes`` what they take: MESH's lambda, mu and M.
    """

    time_s: float
    pages_per_step: int
    rows_per_step: int
    rate: float | None
    service_rate: float
    memory_bytes: int


@dataclass
class JoinStats:
    """Counts of operations. Every stream tuple ends in ``matched`` or ``unmatched``; until then it is in neither.

    ``steps`` are iterations, of which ``waits`` had their pages read only then, and not ahead.
    ``rows_in`` and ``rows_done`` count stream tuples taken and finished, ``packets`` how often some were taken in
    together, ``outputs`` result rows and ``batches`` how many they came in. ``inserts`` and ``expiries`` are tuples put
    into and removed from the operator's index of the stream, ``level_probes`` how often a level of tuples that wait met
    a run of pages, ``probes`` the R-tuples (or, for an index join, the stream
    tuples) looked up. The cost of a run on a simulated disk is
    ``pages_seek * seek_s + (pages_seek + pages_sequential) * transfer_s``; a page of which several column groups are
    read counts once for each. ``cache_hits`` are stream tuples that found all they needed in a cache. ``late`` tuples
    were through after their deadline, ``worst_lateness_s`` the most.
    ``versions`` says, for each version of R, how many tuples were joined with it: those pushed first with the first.
    ``trace`` holds the latest changes of an operator's parameters, if it tunes itself.
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

    @property
    def rows_waiting(self) -> int:
        """Stream tuples taken and not finished."""
        return self.rows_in - self.rows_done

    @property
    def pages_read(self) -> int:
        """Pages of R read, by seek or sequentially."""
        return self.pages_seek + self.pages_sequential

    def count_done(self, matched: Bools) -> None:
        """Count stream tuples that are finished; ``matched`` says which met a partner."""
        met = int(np.count_nonzero(matched))
        self.rows_done += matched.size
        self.matched += met
        self.unmatched += matched.size - met

    def count_disk(self, counts: DiskCounts) -> None:
        """Take over what the operator's disk has counted."""
        self.requests = counts.requests
        self.pages_seek = counts.seeks
        self.pages_sequential = counts.pages_sequential
        self.bytes_read = counts.bytes

    def as_dict(self) -> dict[str, int | float]:
        """The counts by name, without the versions and the trace."""
        return {f.name: getattr(self, f.name) for f in fields(self) if f.name not in ("versions", "trace")}
