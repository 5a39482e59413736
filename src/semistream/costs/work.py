"""Work: the expected work of an operator per stream tuple, in the same counts that operators keep in their stats."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from semistream.costs.workload import Workload
from semistream.relation.read.disk_costs import DiskCosts


@dataclass(frozen=True)
class Work:
    """Counts per stream tuple, as long-run averages.

    ===================  ============================================================================================
    ``seeks``            seeks of the disk
    ``pages``            pages of R read
    ``steps``            iterations of the operator's loop
    ``probes``           rows of R matched against waiting tuples
    ``waits``            tuples that arrive until half of the earlier ones have their results
    ``longest_wait``     tuples that arrive until all of the earlier ones have their results
    ``hits``             share of the tuples answered by a cache
    ``looked_up``        share of the tuples looked up in a tuple cache first
    ``joined``           share of the tuples left for the join behind that cache
    ``packets``          packets in which the operator accepts tuples
    ``batches``          batches of results
    ``gathered``         share of the tuples accepted while nothing is read
    ``waited``           iterations that wait for the disk
    ``level_probes``     matches of a level (tuples that wait together) against the pages of an iteration
    ``fresh``            rows of R used in a result for the first time in a pass
    ``clumped``          share of the tuples joined while nothing is read: many ask for the same row, and everything
                         that fits in the read-ahead buffers arrives long before they are joined
    ===================  ============================================================================================

    Unless the operator ``reads_ahead``, the disk works only while the operator waits for it. If it ``reads_at_once``,
    lanes read its runs (`ReadLanes`). If its pages are ``mapped``, the system's page cache holds as many of them as it
    has room for, in addition to the operator's own memory.
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
        """Return this work behind a tuple cache that answers the share ``hits`` of the stream.

        A tuple answered by the cache does not wait: from a hit rate of one half on, the median wait is 0.
        """
        missed = 1 - hits
        late = max(0.5 - hits, 0.0) / missed if missed > 0 else 0.0  # share of the misses below the median wait
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
    """Cost model of an operator in a given memory."""

    def work(self, workload: Workload, costs: DiskCosts) -> Work:
        """Return the work per stream tuple, with read plans for a disk of these costs."""
