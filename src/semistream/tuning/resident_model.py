"""What looking tuples up in an R that is in memory costs."""

from __future__ import annotations

from dataclasses import dataclass

from semistream.relation.disk_costs import DiskCosts
from semistream.tuning.checks import require_numbers
from semistream.tuning.mesh_model import served_at_once
from semistream.tuning.work import Work
from semistream.tuning.workload import Workload


@dataclass(frozen=True)
class ResidentModel:
    """Look-ups of up to ``rows_at_once`` tuples together in an R that was read once: the disk takes no time.

    No tuple waits for another, so that results come with the push that asks for them.
    """

    rows_at_once: float

    def __post_init__(self) -> None:
        require_numbers(self, "rows_at_once", least=1)

    def work(self, workload: Workload, costs: DiskCosts) -> Work:  # noqa: ARG002
        """What each tuple takes of its look-up."""
        rows = served_at_once(self.rows_at_once, workload.batch_rows)
        return Work(
            seeks=0.0,
            pages=0.0,
            steps=1 / rows,
            probes=1.0,
            waits=0.0,
            longest_wait=0.0,
            hits=1.0,
            packets=1 / rows,
            reads_ahead=False,
        )
