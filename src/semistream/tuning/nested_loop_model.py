"""What looking up each tuple of the stream costs: index nested loops, the papers' baseline."""

from __future__ import annotations

from dataclasses import dataclass

from semistream.relation.disk_costs import DiskCosts
from semistream.tuning.checks import require_numbers
from semistream.tuning.mesh_model import served_at_once
from semistream.tuning.work import Work
from semistream.tuning.workload import Workload


@dataclass(frozen=True)
class NestedLoopModel:
    """Index nested loops that look up to ``rows_at_once`` up together, in the order of their keys.

    They meet the pages that hold what they ask for ``pages_at_once``, as many as there is room for.

    Each page that any of them needs is read once, by a request of its own, unless the system's page cache has it: the
    tree's file is mapped. The papers look up one tuple after the other, for which ``rows_at_once`` is 1: a seek and a
    page for each.
    """

    rows_at_once: float = 1.0
    pages_at_once: float = 1.0

    def __post_init__(self) -> None:
        require_numbers(self, "rows_at_once", "pages_at_once", least=1)

    def work(self, workload: Workload, costs: DiskCosts) -> Work:  # noqa: ARG002
        """What each tuple takes of its look-up."""
        rows = served_at_once(self.rows_at_once, workload.batch_rows)
        asked = workload.frequencies.pages(workload.num_pages, rows)
        pages = asked / rows
        return Work(
            seeks=pages,
            pages=pages,
            steps=1 / rows,
            probes=1.0,
            waits=rows,
            longest_wait=rows,
            packets=1 / rows,
            level_probes=max(asked / self.pages_at_once, 1.0) / rows,
            reads_ahead=False,
            mapped=True,
        )
