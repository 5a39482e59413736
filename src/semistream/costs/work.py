"""Work: what an operator is expected to do for a stream tuple, in the counts that operators keep of themselves."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from semistream.costs.workload import Workload
from semistream.relation.read.disk_costs import DiskCosts


@dataclass(frozen=True)
class Work:
    """Counts for each stream tuple, on average in the long run.

    ``seeks`` and ``pages`` are read, ``steps`` iterations done and ``probes`` rows of R met; ``packets`` is how often
    tuples are taken in, and ``batches`` how many of results are given out. ``level_probes`` is how often a level of
    tuples that wait together meets what an iteration has read, and ``fresh`` how many rows of R come into results for
    the first time in a pass. ``hits`` is the share of the tuples that a cache answers; ``looked_up`` is the share that
    is looked up in a tuple cache first, and ``joined`` the share that is left for the join behind it. ``waits`` says
    how many tuples come until half of those before them have their results, ``longest_wait`` until all have. Of those
    joined, ``gathered`` are taken in while nothing is read, and ``clumped`` are joined so: many ask for the same row,
    and all that can be read ahead is there long before they are done. Unless it ``reads_ahead``, the disk works only
    while the operator waits for it, which it does in ``waited`` of its iterations. If it ``reads_at_once``, lanes read
    its runs (`ReadLanes`). If pages are ``mapped``, the system's page cache holds as many of them as it has room for,
    beside the operator's own memory.
    """

    seeks: float
    pages: float
    steps: float
    probes: float
    waits: float
    longest_wait: float
    hits: float = 0.0
    looked_up: float = 0.0
    joined: float = 1.0
    packets: float = 0.0
    batches: float = 0.0
    gathered: float = 0.0
    waited: float = 0.0
    level_probes: float = 0.0
    fresh: float = 0.0
    clumped: float = 0.0
    reads_ahead: bool = True
    reads_at_once: bool = False
    mapped: bool = False

    def behind_cache(self, hits: float) -> Work:
        """The same work for those tuples alone that a tuple cache does not answer, of which it answers ``hits``.

        A tuple that is answered does not wait; so half of all have their results at once if half are answered.
        """
        missed = 1 - hits
        late = max(0.5 - hits, 0.0) / missed if missed > 0 else 0.0  # of those missed, that come before the median
        return Work(
            seeks=self.seeks * missed,
            pages=self.pages * missed,
            steps=self.steps * missed,
            probes=self.probes * missed,
            waits=2 * late * self.waits / missed if missed > 0 else 0.0,
            longest_wait=self.longest_wait / missed if missed > 0 else 0.0,
            hits=hits + self.hits * missed,
            looked_up=1.0,
            joined=missed,
            packets=self.packets * missed,
            batches=self.batches * missed,
            gathered=self.gathered * missed,
            waited=self.waited * missed,
            level_probes=self.level_probes * missed,
            fresh=self.fresh * missed,
            clumped=self.clumped * missed,
            reads_ahead=self.reads_ahead,
            reads_at_once=self.reads_at_once,
            mapped=self.mapped,
        )


class OperatorModel(Protocol):
    """What an operator makes of the memory that it has."""

    def work(self, workload: Workload, costs: DiskCosts) -> Work:
        """What it does for each tuple of the stream, with plans for a disk of such costs."""
