"""WindowStats: what became of every tuple of a window join."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field


@dataclass
class StreamCounts:
    """Tuples of one stream. Every one that came in is in exactly one of the other counts.

    ``late`` came after the allowed lateness and were handed out; ``waiting`` have an instant that is not complete;
    ``queued`` wait for a slow processor, ``dropped`` left its queue and never came to the join (`SlowCpu`);
    ``null_keys`` cannot match; ``in_memory`` are kept now; ``expired`` left their window; ``evicted`` left before, for
    want of memory.
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
    """Counts of both streams, results with their total weight, and an estimate of the results that evictions cost.

    The estimate adds up, for each evicted tuple, the partners that were to be expected in the rest of its life (or if
    results have weights, the weight of these), by the policy's own probabilities. It is None where these are not known
    (policy ``random``, unbounded windows), and knows nothing of what a queue has dropped.
    """

    left: StreamCounts = field(default_factory=StreamCounts)
    right: StreamCounts = field(default_factory=StreamCounts)
    results: int = 0
    weight: float = 0.0
    missing_estimate: float | None = 0.0

    def as_dict(self) -> dict[str, object]:
        """All counts by name."""
        return asdict(self)
