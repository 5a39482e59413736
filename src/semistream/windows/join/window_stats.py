"""WindowStats: counts of the tuples and results of a window join."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field


@dataclass
class StreamCounts:
    """Tuples of one stream. Each of the ``rows_in`` tuples is in exactly one of the other counts.

    ``late`` tuples came after the allowed lateness and were handed out. ``waiting`` tuples belong to an incomplete
    instant. ``queued`` tuples wait for a slow processor; ``dropped`` ones left its queue without reaching the join
    (`SlowCpu`). ``null_keys`` cannot match. ``in_memory`` tuples are held now. ``expired`` tuples left their window;
    ``evicted`` ones left earlier, for lack of memory.
    """

    rows_in: int = 0
    late: int = 0
    waiting: int = 0
    queued: int = 0
    null_keys: int = 0
    in_memory: int = 0
    expired: int = 0
    evicted: int = 0
    dropped: int = 0


@dataclass
class WindowStats:
    """Counts of the tuples and results of a window join, and an estimate of the results lost to evictions.

    Each tuple pushed is in exactly one of the counts ``late``, ``waiting``, ``queued``, ``null_keys``, ``in_memory``,
    ``expired``, ``evicted`` and ``dropped`` of its stream (`StreamCounts`); ``rows_in`` is their sum.

    Parameters
    ----------
    left, right : StreamCounts
        Tuples of each stream.
    results : int
        Results so far.
    weight : float
        Total weight of the results; 0 if results have no weights.
    missing_estimate : float or None
        Expected results lost to evictions: the sum, over all evicted tuples, of the expected partners in the rest of
        their life (or their weight, if results have weights), by the policy's own probabilities. None if these are
        unknown (policy ``random``, unbounded windows). Excludes losses from tuples dropped by a queue.

    Examples
    --------
    >>> import pyarrow as pa
    >>> from semistream.windows import WindowJoin
    >>> stream, rows = pa.schema([("k", pa.int64())]), pa.record_batch({"k": [1, 1, 1, 1]})
    >>> join = WindowJoin(stream, stream, on="k", window=3, memory=2, policy="random")
    >>> results = [*join.push_left(rows), *join.push_right(rows), *join.finish()]
    >>> join.stats.results, join.stats.left.rows_in, join.stats.left.evicted, join.stats.missing_estimate
    (10, 4, 2, None)

    References
    ----------
    docs/windows.md.
    """

    left: StreamCounts = field(default_factory=StreamCounts)
    right: StreamCounts = field(default_factory=StreamCounts)
    results: int = 0
    weight: float = 0.0
    missing_estimate: float | None = 0.0

    def as_dict(self) -> dict[str, object]:
        """Return all counts by name."""
        return asdict(self)
